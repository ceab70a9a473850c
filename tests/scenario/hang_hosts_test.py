"""A job over several hosts that stands still: stacks of all hosts, and one verdict."""
import glob
import json
import os
import sys
import unittest

from elastic_job import HostsTest

# Rank 1 is lost in a place of its own, the others wait for it.
HANG = """
import os, socket, threading, time
rank = os.environ["RANK"]
end = time.monotonic() + 2
while time.monotonic() < end:
    sum(range(10000))
def lost():
    time.sleep(1000)
def wait_for_others():
    ours, theirs = socket.socketpair()
    ours.recv(1)
open(os.path.join(os.environ["CASE"], "ready." + rank), "w").close()
lost() if rank == "1" else wait_for_others()
"""
HOSTS = ("h1", "h2", "h3")


class ReportedHosts(HostsTest):
    def read_of(self, name, *path):
        (file,) = glob.glob(self.path(f"logs.{name}", "*", "attempt_0", *path))
        return self.read(file)


class HangHosts(ReportedHosts):
    def start_hanging(self, *options):
        self.make_hosts(*HOSTS)
        self.write("hang.py", HANG)
        for name in HOSTS:
            self.node(name, "--hang-detection=silence=3", f"--log-dir=logs.{name}", "--event-log-handler=file:events." + name,
                      *options, nnodes="3", endpoint=self.endpoint("h1"), program=("hang.py",),
                      env={"PYTHON_EXEC": sys.executable})

    def test_all_hosts_give_their_stacks_and_the_odd_rank_is_blamed(self):
        self.start_hanging()
        self.assertEqual([self.nodes[name].end() for name in HOSTS], [1, 1, 1], self.story())
        ranks = {}
        for name in HOSTS:
            cause = json.loads(self.read_of(name, "failure.json"))["root_cause"]
            self.assertEqual((cause["global_rank"], cause["class"]), (1, "hang"), self.story())
            (stacks,) = [json.loads(self.read(path))
                         for path in glob.glob(self.path(f"logs.{name}", "*", "attempt_0", "0", "stacks.json"))]
            ranks[stacks["rank"]] = name
        self.assertEqual(sorted(ranks), [0, 1, 2])
        asked = [name for name in HOSTS if '"HANG"' in self.read(f"events.{name}")]
        self.assertTrue(asked)
        together = self.read_of(asked[0], "stacks.txt")
        for rank, name in ranks.items():
            self.assertRegex(together, rf"rank {rank} \(local rank 0, pid \d+\) on ")
        self.assertIn("2 ranks (0, 2) wait", together)

    def test_a_host_that_is_busy_keeps_the_others_waiting(self):
        """Its rank works alone for longer than the limit, as in an evaluation."""
        self.make_hosts("h1", "h2")
        self.write("busy.py", HANG.split("def lost")[0] + """
def go():
    return os.path.exists(os.path.join(os.environ["CASE"], "go"))
end = time.monotonic() + 8
while rank == "0" and time.monotonic() < end:
    sum(list(range(20000)))
if rank == "0": open(os.path.join(os.environ["CASE"], "go"), "w").close()
while not go(): time.sleep(0.02)
""")
        for name in ("h1", "h2"):
            self.node(name, "--hang-detection=silence=3", nnodes="2", endpoint=self.endpoint("h1"), program=("busy.py",),
                      env={"PYTHON_EXEC": sys.executable})
        self.assertEqual([self.nodes[name].end() for name in ("h1", "h2")], [0, 0], self.story())


# Steps for ever, as the page says.
STEPS = """
import itertools, time
import cpprun_progress
for step in itertools.count(1):
    cpprun_progress.step(step)
    cpprun_progress.message("on its way")
    time.sleep(0.02)
"""


class LostHosts(ReportedHosts):
    def lose(self, lost, heard):
        """Starts three nodes, and takes one host's power when the others know what there is to know."""
        self.make_hosts(*HOSTS)
        self.write("steps.py", STEPS)
        for name in HOSTS:
            self.node(name, f"--log-dir=logs.{name}", nnodes="3", endpoint=self.endpoint("h1"),
                      program=("steps.py",), env={"PYTHON_EXEC": sys.executable, "LOGLEVEL": "DEBUG"})
        for name, words in heard.items():
            self.see(lambda: words in self.nodes[name].said(), f"{words} from {name}")
        self.network.power_off(self.network[lost])

    def assert_quoted(self, name, node, host):
        report = json.loads(self.read_of(name, "failure.json"))
        (lost,) = report["lost_nodes"]
        self.assertEqual((lost["node"], lost["host"]), (node, host))
        (rank,) = lost["ranks"]
        self.assertEqual(rank["global_rank"], node)
        self.assertGreater(rank["progress"]["step"], 0)
        self.assertEqual(rank["progress"]["message"], "on its way")
        page = self.read_of(name, "post_mortem", "page.txt")
        self.assertIn(f"Last words of node {node} ({host})", page)
        self.assertRegex(page, rf"rank {node}: step \d+, .*message 'on its way'")

    def test_what_a_lost_host_said_last_is_in_the_others_reports(self):
        self.lose("h3", {"h3": "this node's words are in the workers' store"})
        for name in ("h1", "h2"):
            self.assertEqual(self.nodes[name].end(), 1, self.story())
            self.assertEqual(json.loads(self.read_of(name, "failure.json"))["root_cause"]["class"], "node_lost")
            self.assert_quoted(name, 2, "h3")

    def test_also_when_it_had_the_store(self):
        self.lose("h1", {"h2": "heard of node 0", "h3": "heard of node 0"})
        for name in ("h2", "h3"):
            self.assertEqual(self.nodes[name].end(), 3, self.story())
            self.assert_quoted(name, 0, "h1")


if __name__ == "__main__":
    unittest.main()

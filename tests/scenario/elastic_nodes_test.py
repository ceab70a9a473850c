"""Jobs whose number of nodes changes; here all nodes on one machine."""
import os
import signal
import socket
import struct
import unittest

from harness import free_port, until
from nodes_test import NodesTest

# Each start leaves a line; a worker ends when it is told, or when its world is the wanted one.
WORKER = """
    echo "$TORCHELASTIC_RESTART_COUNT $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE" >> $CASE/starts.$NODE
    until [ -e $CASE/end ]; do
      [ -e $CASE/fail.$NODE ] && rm $CASE/fail.$NODE && exit 7
      sleep 0.02
    done
"""


class ElasticTest(NodesTest):
    def setUp(self):
        super().setUp()
        self.endpoints = f"127.0.0.1:{self.port}"
        self.script("w.sh", WORKER)

    def listens(self, port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def member(self, name, nodes, *arguments, conf="last_call_timeout=0.1", **options):
        return self.start("--rdzv-backend=c10d", "--rdzv-endpoint", self.endpoints, "--rdzv-conf", conf, *arguments,
                          "./w.sh", env={"NODE": name, "PET_NNODES": nodes, "PET_NPROC_PER_NODE": "1", "PET_RDZV_ID": "job"},
                          **options)

    def starts(self, name):
        path = self.path(f"starts.{name}")
        return self.read(path).splitlines() if os.path.exists(path) else []

    def wait_for_start(self, name, count, job=None):
        self.assertTrue(until(lambda: len(self.starts(name)) >= count), (name, self.starts(name), job and job.err))
        return self.starts(name)[count - 1]

    def end_well(self, *jobs):
        self.write("end", "")
        self.assertEqual(self.end(*jobs), [0] * len(jobs), [job.err for job in jobs])


class Changes(ElasticTest):
    def test_a_node_joins_and_costs_no_restart(self):
        first = self.member("a", "1:2", "--max-restarts=0")
        self.assertEqual(self.wait_for_start("a", 1), "0 0/1 0/1")
        second = self.member("b", "1:2", "--max-restarts=0", "--nproc-per-node=2")
        self.assertEqual(self.wait_for_start("a", 2), "0 0/2 0/3")
        self.wait_for_start("b", 2)
        self.end_well(first, second)
        self.assertEqual(sorted(self.starts("b")), ["0 1/2 1/3", "0 1/2 2/3"])
        self.assertIn("joins; restarting all workers", first.err)

    def test_a_node_leaves_or_dies_and_the_other_goes_on(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
            first = self.member("a", "1:2", "--max-restarts=0")
            self.wait_for_start("a", 1)  # leads
            second = self.member("b", "1:2", "--max-restarts=0")
            self.wait_for_start("a", 2)
            self.wait_for_start("b", 1)
            second.signal(number)
            self.assertEqual(self.end(second), [code])
            self.assertEqual(self.wait_for_start("a", 3), "0 0/1 0/1")
            self.end_well(first)
            for name in ("end", "starts.a", "starts.b"):
                os.unlink(self.path(name))

    def test_a_failure_that_follows_from_a_lost_node_is_not_charged(self):
        first = self.member("a", "1:2", "--max-restarts=0")
        self.wait_for_start("a", 1)
        second = self.member("b", "1:2", "--max-restarts=0")
        self.wait_for_start("a", 2)
        self.wait_for_start("b", 1)
        os.kill(second.agent(), signal.SIGKILL)
        self.write("fail.a", "")  # as a collective does whose peer is gone
        self.assertEqual(self.end(second), [137])
        self.assertEqual(self.wait_for_start("a", 3, first), "0 0/1 0/1")
        self.end_well(first)
        self.assertIn("exit code 7", first.err)
        # On a slow machine this agent may itself be found silent first; it is the same to the budget.
        self.assertRegex(first.err, "not counted, since a node was lost|had lost touch and has stopped its workers")

    def test_a_failure_without_a_lost_node_is_charged(self):
        jobs = [self.member("a", "1:2", "--max-restarts=1")]
        self.wait_for_start("a", 1)
        jobs.append(self.member("b", "1:2", "--max-restarts=1"))
        self.wait_for_start("a", 2)
        self.wait_for_start("b", 1)
        self.write("fail.b", "")
        self.assertEqual(self.wait_for_start("a", 3), "1 0/2 0/2")
        self.assertEqual(self.wait_for_start("b", 2), "1 1/2 1/2")
        self.write("fail.a", "")
        self.assertEqual(self.end(*jobs), [1, 1])

    def test_a_spare_waits_takes_over_and_ends_well(self):
        jobs = {"a": self.member("a", "2", "--max-restarts=0")}
        self.assertTrue(until(lambda: self.listens(self.port)))
        jobs["b"] = self.member("b", "2", "--max-restarts=0")
        self.wait_for_start("b", 1)
        for name in "cd":
            with open(self.path(f"err.{name}"), "wb") as err:
                jobs[name] = self.member(name, "2", "--max-restarts=0", stderr=err)
            self.assertTrue(until(lambda: "waiting as a spare" in self.read(f"err.{name}")), self.read(f"err.{name}"))
        jobs["b"].signal(signal.SIGKILL)
        self.assertEqual(self.end(jobs.pop("b")), [-signal.SIGKILL])
        self.assertEqual(self.wait_for_start("a", 2, jobs["a"]), "0 0/2 0/2")
        self.assertTrue(until(lambda: self.starts("c") + self.starts("d")))
        self.assertEqual(self.starts("c") + self.starts("d"), ["0 1/2 1/2"])
        self.end_well(*jobs.values())


class Succession(ElasticTest):
    def test_the_next_endpoint_leads_when_the_first_is_lost(self):
        self.endpoints += f",127.0.0.1:{free_port()}"
        jobs = {}
        for name in "abc":
            jobs[name] = self.member(name, "2:3", "--max-restarts=0", conf="last_call_timeout=30")
            if name == "a":
                self.assertTrue(until(lambda: self.listens(self.port)))
        for name in jobs:
            self.assertRegex(self.wait_for_start(name, 1), "^0 ./3 ")
        os.kill(jobs["a"].agent(), signal.SIGKILL)
        self.assertEqual(self.end(jobs.pop("a")), [137])
        again = {self.wait_for_start(name, 2, jobs[name]) for name in jobs}
        self.assertEqual(again, {"0 0/2 0/2", "0 1/2 1/2"})
        self.end_well(*jobs.values())

    def test_a_leader_that_is_stopped_hands_over(self):
        """Also to one that by itself would be a minority."""
        self.endpoints += f",127.0.0.1:{free_port()}"
        first = self.member("a", "1:2", "--max-restarts=0")
        self.wait_for_start("a", 1)
        second = self.member("b", "1:2", "--max-restarts=0")
        self.wait_for_start("b", 1)
        self.wait_for_start("a", 2)
        first.signal(signal.SIGTERM)
        self.assertEqual(self.end(first), [143])
        self.assertTrue(until(lambda: self.starts("b")[-1] == "0 0/1 0/1"), self.starts("b"))
        self.end_well(second)

    def test_a_minority_does_not_go_on(self):
        self.endpoints += f",127.0.0.1:{free_port()}"
        first = self.member("a", "1:2")
        self.wait_for_start("a", 1)  # so that rank 0, whose side goes on in a tie, is its
        second = self.member("b", "1:2", conf="join_timeout=15,last_call_timeout=30")
        self.wait_for_start("b", 1)
        os.kill(first.agent(), signal.SIGKILL)
        self.assertEqual(self.end(first, second), [137, 3])
        self.assertEqual(len(self.starts("b")), 1)
        (last,) = [line for line in second.err.splitlines() if " cpprun error: " in line]
        self.assertEqual(last.count("more than half of the 2 nodes of the last round are needed"), 1, last)
        self.assertIn("1 of 2 is here (", last)


class Strangers(ElasticTest):
    def test_an_agent_of_torchrun_is_recognised(self):
        job = self.member("a", "2")
        self.assertTrue(until(lambda: self.listens(self.port)))
        text = lambda value: struct.pack("<Q", len(value)) + value  # noqa: E731
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE) +
                           b"\2" + text(b"/torch.rendezvous.job") + text(b"") + text(b"Y2FuaW1hZGFt"))
            self.assertEqual(client.recv(1), b"")
        job.signal(signal.SIGINT)
        self.end(job)
        self.assertIn("it is an agent of torchrun, which cannot take part", job.err)


if __name__ == "__main__":
    unittest.main()

"""Jobs whose nodes meet in a real etcd: each node is a cpprun of its own; here all on one machine."""
import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import unittest
import urllib.request

from harness import ScenarioTest, free_port, until

ETCD = "/usr/bin/etcd"
PREFIX = "/torchelastic/p2p/"
# What a worker says when it starts; then it waits for its end.
WORKER = """echo "$WORLD_SIZE $GROUP_RANK $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR" >> $CASE/starts.$NODE
trap 'exit 0' TERM
until [ -e $CASE/go ]; do sleep 0.02; done
"""


class Etcd:
    def __init__(self, folder):
        self.folder, self.port, self.peer = folder, free_port(), free_port()
        self.process = None
        self.start()

    def start(self):
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self.port, self.peer))
        with open(os.path.join(self.folder, "etcd.log"), "a") as log:
            self.process = subprocess.Popen(
                [ETCD, "--data-dir", os.path.join(self.folder, "etcd"), "--unsafe-no-fsync", "--logger", "zap",
                 "--listen-client-urls", clients, "--advertise-client-urls", clients,
                 "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                 "--initial-cluster", f"default={peers}"], stdout=log, stderr=log)

    def answers(self):
        with contextlib.suppress(OSError):
            self.ask("kv/range", key=b"x")
            return True
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, what, **fields):
        body = {name: base64.b64encode(value).decode() for name, value in fields.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v3/{what}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    def put(self, key, value):
        self.ask("kv/put", key=(PREFIX + key).encode(), value=value)

    def erase(self, key):
        self.ask("kv/deleterange", key=(PREFIX + key).encode())

    def read(self, prefix):
        """Keys below the prefix, without it, and their values."""
        start = (PREFIX + prefix).encode()
        end = start[:-1] + bytes([start[-1] + 1])
        found = self.ask("kv/range", key=start, range_end=end).get("kvs", [])
        decoded = [(base64.b64decode(entry["key"]), base64.b64decode(entry.get("value", ""))) for entry in found]
        return {key.decode()[len(start):]: value.decode("utf-8", "replace") for key, value in decoded}


class EtcdNodesTest(ScenarioTest):
    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self.folder)
        self.addCleanup(self.etcd.kill)
        self.assertTrue(until(self.etcd.answers))
        self.script("w.sh", WORKER)

    def node(self, name, *arguments, nodes="2", command="./w.sh", backend="etcd", **options):
        environment = {"NODE": name, "PET_NPROC_PER_NODE": "1", "PET_RDZV_ID": "job"}
        return self.start(f"--nnodes={nodes}", f"--rdzv-backend={backend}",
                          f"--rdzv-endpoint=127.0.0.1:{self.etcd.port}", *arguments, command, env=environment,
                          **options)

    def end(self, *jobs):
        for job in jobs:
            job.code = job.end()
            self.assert_nothing_left(job)
        return [job.code for job in jobs]

    def starts(self, name):
        with contextlib.suppress(FileNotFoundError):
            return [line.split()[:3] for line in self.read(f"starts.{name}").splitlines()]
        return []

    def wait_for_worlds(self, world, *names, count=None):
        """The last start on each node is in a world of that size (and its `count`th)."""
        def there():
            all_starts = [self.starts(name) for name in names]
            return all(s and s[-1][0] == str(world) and (count is None or len(s) == count) for s in all_starts)
        self.assertTrue(until(there), f"{[self.starts(name) for name in names]} instead of {world}")

    def leader(self):
        """pid of the agent that leads; None if none does."""
        words = self.etcd.read("job/").get("leader", "")
        return int(re.search(r"pid (\d+)", words).group(1)) if words else None

    def go(self):
        self.write("go", "")


class Rounds(EtcdNodesTest):
    def test_two_nodes(self):
        jobs = [self.node(name) for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertEqual(sorted(self.starts(name)[0][1] for name in "ab"), ["0", "1"])
        self.assertEqual(self.read("starts.a").split()[3], "127.0.0.1")
        left = self.etcd.read("job/")
        self.assertEqual([key for key in left if key.startswith("agents/") or key == "leader"], [])

    def test_one_node(self):
        self.go()
        self.assertEqual(self.end(self.node("a", nodes="1")), [0])
        self.assertEqual(self.starts("a"), [["1", "0", "0"]])

    def test_a_name_is_used_again(self):
        self.go()
        for run in range(1, 4):
            jobs = [self.node(name) for name in "ab"]
            self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
            self.assertEqual([len(self.starts(name)) for name in "ab"], [run, run])
        os.unlink(self.path("go"))
        self.script("w.sh", WORKER + "exit 3")
        jobs = [self.node(name) for name in "ab"]
        self.wait_for_worlds(2, *"ab", count=4)
        self.go()
        self.assertEqual(self.end(*jobs), [1, 1])
        self.script("w.sh", WORKER)
        jobs = [self.node(name) for name in "ab"]
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertEqual(self.starts("a")[-1][2], "0")

    def test_a_failure_anywhere_restarts_all_and_is_charged_once(self):
        # The other one has said that it started before this one's failure ends it.
        fail = '[ $NODE$TORCHELASTIC_RESTART_COUNT = b0 ] && until [ -e $CASE/starts.a ]; do sleep 0.02; done && exit 3'
        self.script("w.sh", WORKER.replace("until", fail + "\nuntil", 1))
        jobs = [self.node(name, "--max-restarts=1") for name in "ab"]
        self.wait_for_worlds(2, *"ab", count=2)
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertEqual([self.starts(name)[-1][2] for name in "ab"], ["1", "1"])

    def test_a_failure_for_good_is_every_nodes(self):
        self.script("w.sh", WORKER + '[ $NODE = a ] || { echo "last words" >&2; exit 9; }\nexec sleep 300')
        jobs = [self.node(name) for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        self.go()
        self.assertEqual(self.end(*jobs), [1, 1])
        for job in jobs:
            self.assertIn("exitcode  : 9 (pid:", job.err)
            self.assertIn("last words", job.err)

    def test_etcd_v2_is_etcd_with_a_notice(self):
        self.go()
        jobs = [self.node("a"), self.node("b", backend="etcd-v2")]
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertNotIn("etcd-v2", jobs[0].err)
        self.assertEqual(jobs[1].err.count("etcd-v2"), 1, jobs[1].err)

    def test_another_size_is_refused(self):
        first = self.node("a")
        self.assertTrue(until(self.leader))
        other = self.node("b", nodes="3")
        self.assertEqual(self.end(other), [3])
        self.assertIn("it expects 3 nodes and this run has 2 (compare --nnodes)", other.err)
        self.go()
        self.assertEqual(self.end(first, self.node("c")), [0, 0])

    def test_values_that_nobody_of_ours_has_put(self):
        for key in ("agents/x", "orders/x", "last_word", "leader", "other", "agents/"):
            self.etcd.put(f"job/{key}", b'{"kind": [1, \xff\x00')
        self.etcd.put("job/agents/y", b'{"id": "z", "node": 7}')
        jobs = [self.node(name) for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        for key in self.etcd.read("job/"):
            if key.startswith(("agents/", "orders/")):
                self.etcd.put(f"job/{key}", b"\x00 nothing \xff")
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertEqual([len(self.starts(name)) for name in "ab"], [1, 1])


class Members(EtcdNodesTest):
    def test_one_joins_and_one_is_killed(self):
        arguments = ("--rdzv-conf=last_call_timeout=0.5",)
        first = [self.node(name, *arguments, nodes="2:3") for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        third = self.node("c", *arguments, nodes="2:3")
        self.wait_for_worlds(3, *"abc")
        os.kill(third.agent(), signal.SIGKILL)
        self.assertEqual(self.end(third), [137])
        self.wait_for_worlds(2, *"ab", count=3)
        self.go()
        self.assertEqual(self.end(*first), [0, 0], [job.err for job in first])
        self.assertEqual([start[2] for start in self.starts("a")], ["0", "0", "0"])

    def test_one_that_goes_is_not_waited_for(self):
        """Its lease would last for a minute."""
        arguments = ("--rdzv-conf=last_call_timeout=0.5,keep_alive_interval=20",)
        jobs = [self.node(name, *arguments, nodes="1:2") for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        for job, name, other in ((jobs[0], "a", "b"),):
            job.signal(signal.SIGTERM)
            self.assertEqual(self.end(job), [128 + signal.SIGTERM])
            self.wait_for_worlds(1, other)
        self.go()
        self.assertEqual(self.end(jobs[1]), [0], jobs[1].err)

    def test_a_spare_takes_the_place_of_one_that_is_killed(self):
        jobs = {name: self.node(name) for name in "ab"}
        self.wait_for_worlds(2, *"ab")
        jobs["c"] = self.node("c")
        self.assertTrue(until(lambda: "park" in str(self.etcd.read("job/orders/"))))
        os.kill(jobs["b"].agent(), signal.SIGKILL)
        self.wait_for_worlds(2, *"ac")
        jobs["d"] = self.node("d")
        self.assertTrue(until(lambda: "park" in str(self.etcd.read("job/orders/"))))
        self.go()
        self.assertEqual(self.end(*jobs.values()), [0, 137, 0, 0])
        self.assertIn("this node was a spare", jobs["d"].err)


class Leaders(EtcdNodesTest):
    def test_the_leaders_agent_killed(self):
        jobs = {name: self.node(name, "--rdzv-conf=last_call_timeout=30", nodes="2:3") for name in "abc"}
        self.wait_for_worlds(3, *"abc")
        agents = {job.agent(): name for name, job in jobs.items()}
        dead = agents[self.leader()]
        os.kill(jobs[dead].agent(), signal.SIGKILL)
        others = [name for name in "abc" if name != dead]
        self.wait_for_worlds(2, *others, count=2)
        self.go()
        self.end(*jobs.values())
        self.assertEqual([jobs[name].code for name in others], [0, 0], [job.err for job in jobs.values()])
        self.assertEqual([self.starts(name)[-1][2] for name in others], ["0", "0"])

    def test_nobodys_workers_notice_a_change_of_the_leader(self):
        jobs = [self.node(name) for name in "abc"]  # one is a spare
        self.assertTrue(until(lambda: "park" in str(self.etcd.read("job/orders/"))))
        agents = {job.agent() for job in jobs}
        leaders = set()
        for _ in range(6):
            before = self.etcd.read("job/")
            self.etcd.erase("job/leader")
            self.assertTrue(until(lambda: self.leader() in agents))
            leaders.add(self.leader())
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0, 0], [job.err for job in jobs])
        self.assertEqual(sum(len(self.starts(name)) for name in "abc"), 2)

    def test_a_report_that_somebody_has_erased_is_put_again(self):
        """The others must not start a round beside workers that still run."""
        jobs = [self.node(name, "--max-restarts=1") for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        self.etcd.erase("job/agents/" + sorted(self.etcd.read("job/agents/"))[0])
        self.wait_for_worlds(2, *"ab", count=2)
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])


class Server(EtcdNodesTest):
    def test_etcd_restarted_interrupts_nothing(self):
        jobs = [self.node(name, nodes="2:3", ) for name in "abc"]
        self.wait_for_worlds(3, *"abc")
        self.etcd.kill()
        self.etcd.start()
        self.assertTrue(until(self.etcd.answers))
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0, 0], [job.err for job in jobs])
        self.assertEqual([len(self.starts(name)) for name in "abc"], [1, 1, 1])

    def test_etcd_gone_for_good(self):
        conf = "--rdzv-conf=join_timeout=10"
        jobs = [self.node(name, conf, "--max-restarts=3") for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        self.etcd.kill()
        self.assertEqual(self.end(*jobs), [3, 3])
        for job in jobs:
            where = f"cannot connect to etcd at 127.0.0.1:{self.etcd.port}: Connection refused"
            self.assertIn(f"the rendezvous was lost: the run's leader cannot be reached: {where}", job.err)
            self.assertIn(f"was not complete within 10 s: {where}", job.err)

    def test_etcd_gone_for_a_while(self):
        """Longer than the limit of death: the workers stop, and start again."""
        jobs = [self.node(name) for name in "ab"]
        self.wait_for_worlds(2, *"ab")
        workers = lambda: [pid for job in jobs for pid in job.alive() if pid not in (job.pid, job.agent())]
        self.etcd.kill()
        self.assertTrue(until(lambda: not workers()))
        self.etcd.start()
        self.wait_for_worlds(2, *"ab", count=2)
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])

    def test_no_etcd_there(self):
        self.etcd.kill()
        job = self.node("a", "--rdzv-conf=read_timeout=1")
        self.assertEqual(self.end(job), [3])
        self.assertIn(f"timed out: etcd did not answer within 1 s: cannot connect to etcd at "
                      f"127.0.0.1:{self.etcd.port}: Connection refused", job.err)

    def test_something_else_there(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.etcd.port = server.getsockname()[1]
            job = self.node("a", "--rdzv-conf=read_timeout=30")
            peer, _ = server.accept()
            peer.recv(1)
            peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            self.assertEqual(self.end(job), [3])
            peer.close()
        self.assertIn("what answers there is no etcd of version 3.4 or newer", job.err)

    def test_the_first_endpoint_is_down(self):
        self.go()
        endpoints = f"--rdzv-endpoint=127.0.0.1:{free_port()},127.0.0.1:{self.etcd.port}"
        jobs = [self.node(name, endpoints) for name in "ab"]
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])

    def test_interrupted_while_waiting(self):
        for down in (False, True):
            if down:
                self.etcd.kill()
            job = self.node("a")
            if not down:
                self.assertTrue(until(self.leader))
            self.assertTrue(until(job.agent))
            job.signal(signal.SIGTERM)
            self.assertEqual(self.end(job), [143], job.err)

    def test_wrong_usage(self):
        for arguments, why in (
                (("--rdzv-conf=protocol=ftp",), "protocol=ftp is no protocol of etcd"),
                (("--rdzv-conf=key=k.pem",), "needs the certificate it belongs to"),
                (("--rdzv-conf=protocol=https,cacert=none.pem",), "cacert=none.pem"),
                (("--rdzv-endpoint=h:0",), "etcd listens at no port 0"),
                (("--rdzv-backend=zookeeper",), "static, c10d, etcd or etcd-v2")):
            job = self.node("a", *arguments)
            self.assertEqual(self.end(job), [2], job.err)
            self.assertIn(why, job.err)


if __name__ == "__main__":
    unittest.main()

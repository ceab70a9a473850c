"""cpprund under many jobs at once: they know nothing of each other, and nothing is left of them."""
import fcntl
import json
import os
import re
import signal
import struct
import unittest

from daemon import DaemonTest, set_request
from harness import until

PATIENCE = 120.0  # seconds: dozens of agents start at once, on a machine that may be busy with other tests
JOBS = 24

# Leaves its mark under the names that the workers of every job use, notes all that it then finds in its store, and
# waits at the gate. In a job that is to be restarted, rank 0's first start fails.
WORKER = r"""#!/usr/bin/env python3
import fcntl, json, os, socket, struct, sys
run, rank, size = (os.environ[name] for name in ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"))
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=100)
answers = store.makefile("rb")

def text(value):
    return struct.pack("<Q", len(value)) + value.encode()

def number():
    return struct.unpack("<q", answers.read(8))[0]

def texts(count):
    return [answers.read(number()).decode() for _ in range(count)]

store.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE) + b"\1" + text("/run") + text(run) + b"\4" + text("/count") +
              struct.pack("<q", 1) + b"\1" + text("/from/" + rank) + text(run))
number()
everybody = [f"/from/{other}" for other in range(int(size))]
store.sendall(b"\6" + struct.pack("<Q", len(everybody)) + b"".join(map(text, everybody)))
assert answers.read(1) == b"\0"
store.sendall(b"\x11")
keys = texts(number())
store.sendall(b"\x0a" + struct.pack("<Q", len(keys)) + b"".join(map(text, keys)))
seen = dict(zip(keys, texts(len(keys))))
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
with open(os.path.join(os.environ["CASE"], f"seen.{os.environ['NODE']}.{restart}.new"), "w") as note:
    json.dump(seen, note)
os.rename(note.name, note.name.removesuffix(".new"))
if os.environ["NODE"].startswith("restarted") and rank == "0" and restart == "0":
    sys.exit(1)
with open(os.path.join(os.environ["CASE"], "gate")) as gate:
    fcntl.flock(gate, fcntl.LOCK_SH)
"""

# Kind -> its nodes. A quarter of the jobs each.
KINDS = {"alone": 1, "pair": 2, "restarted": 2, "killed": 1}


class Churn(DaemonTest):
    def setUp(self):
        super().setUp()
        self.write("w.py", WORKER, 0o755)

    def begin(self, daemon, run, kind):
        """The job's agents, by their names."""
        names = [f"{kind}.{run}.{node}" for node in range(KINDS[kind])]
        # A starved agent is not to be taken for a dead one.
        return {name: self.node(daemon, name, "--rdzv-conf=keep_alive_interval=10,join_timeout=110",
                                f"--max-restarts={int(kind == 'restarted')}", run=run, nodes=str(KINDS[kind]),
                                command=("./w.py",)) for name in names}

    def assert_sees_its_own_alone(self, name, restart):
        path = f"seen.{name}.{restart}"
        self.assertTrue(until(lambda: os.path.exists(self.path(path)), PATIENCE), path)
        kind, run, _ = name.split(".")
        nodes = KINDS[kind]
        expected = {"/run": run, "/count": str(nodes), **{f"/from/{rank}": run for rank in range(nodes)}}
        self.assertEqual(json.loads(self.read(path)), expected, path)

    def round(self, daemon, number):
        """All jobs run at once; meanwhile some restart, some are killed, some come and go. Then all end."""
        with open(self.path("gate"), "w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            kinds = list(KINDS) * (JOBS // len(KINDS))
            runs = {f"run-{number}-{i}": kind for i, kind in enumerate(kinds)}
            agents = {run: self.begin(daemon, run, kind) for run, kind in runs.items()}
            for run, kind in runs.items():
                for name in agents[run]:
                    for restart in range(2 if kind == "restarted" else 1):
                        self.assert_sees_its_own_alone(name, restart)
            self.assertEqual(daemon.metric("cpprund_runs"), JOBS)
            for run, kind in runs.items():
                for series, value in (("running", 1), ("agents", KINDS[kind]), ("restarts", int(kind == "restarted"))):
                    series = f'cpprund_run_{series}{{run="{run}"}}'
                    self.assertTrue(until(lambda s=series, v=value: daemon.metric(s) == v, PATIENCE),
                                    (series, daemon.metric(series)))

            killed = [job for run in runs if runs[run] == "killed" for job in agents.pop(run).values()]
            for job in killed:
                os.kill(job.agent(), signal.SIGKILL)
            passing = [job for i in range(4) for job in self.pass_by(daemon, f"passing-{number}-{i}")]
            self.end(passing, 0)
            left = JOBS - len(killed)
            self.assertTrue(until(lambda: daemon.metric("cpprund_runs") == left, PATIENCE), daemon.get("/metrics")[1])
        for run, jobs in agents.items():
            self.end(jobs.values(), 0)
            for job in jobs.values():
                self.assertLessEqual(set(re.findall(r"run-\d+-\d+", job.out + job.err)), {run}, job.err)
        for job in killed:
            job.end(PATIENCE)
        self.assertTrue(until(lambda: daemon.metric("cpprund_runs") == 0, PATIENCE), daemon.get("/metrics")[1])

    def pass_by(self, daemon, run):
        return [self.node(daemon, f"{run}.{node}", run=run, command=("true",)) for node in range(2)]

    def end(self, jobs, code):
        for job in jobs:
            self.assertEqual(job.end(PATIENCE), code, job.err)

    def test_24_jobs_at_once_are_apart_and_leave_nothing(self):
        # What AddressSanitizer keeps of freed memory, in builds that have it, is not the daemon's.
        sanitizer = ":".join([*filter(None, [os.environ.get("ASAN_OPTIONS")]), "quarantine_size_mb=1"])
        daemon = self.daemon("--run-idle-limit=2", env={**os.environ, "ASAN_OPTIONS": sanitizer})
        with daemon.client() as client:
            client.sendall(set_request("/shared", "theirs") + b"\x07")
            self.assertEqual(client.recv(8), struct.pack("<q", 1))
            self.round(daemon, 0)
            before = daemon.resident()
            for number in (1, 2):
                self.round(daemon, number)
            self.assertLessEqual(daemon.resident(), before * 1.10)
            client.sendall(b"\x07")
            self.assertEqual(client.recv(8), struct.pack("<q", 1), "no run has left a key in the clients' store")
        self.assertEqual(daemon.metric("cpprund_runs_opened_total"), 3 * (JOBS + 4))


if __name__ == "__main__":
    unittest.main()

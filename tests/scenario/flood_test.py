"""A store's port flooded with clients that misbehave, while a client in order works: cpprund's, and an agent's."""
import contextlib
import os
import re
import resource
import socket
import struct
import subprocess
import sys
import threading
import unittest

from daemon import HELLO, DaemonTest, set_request, text
from harness import free_port, until

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 120.0  # seconds that anything may take while other tests run
ATTEMPTS = 50_000
OPEN = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 200)  # at once
# What resident memory may grow by, in KB: from when OPEN are open for the first time to the last attempt, and from before
# the flood to when all have gone again.
GROWTH_AFTER_FULL, GROWTH = 2 << 10, 8 << 10
CAUSES = ["its first bytes are not those of a store client", "a key is longer than 8192 bytes",
          "a value is longer than 8388608 bytes", "a request names more than 131072 keys",
          "a request is longer than 32 MiB", "it sent an opcode the protocol does not have",
          "it speaks TLS, and no secret is used here: give --secret-file on every node, or on none",
          "it did not say within the time limit that it is a store client"]


class NormalClient(threading.Thread):
    """Sets and gets, counts, and waits for what another connection does: a new one each time, where `connects`."""

    def __init__(self, port, connects):
        super().__init__()
        self.port, self.connects, self.turns, self.failure = port, connects, 0, None
        self.told_to_end = threading.Event()
        self.start()

    def run(self):
        try:
            with self.connect() as one, self.connect() as other:
                while not self.told_to_end.wait(0.001):
                    self.turn(one)
                    if self.turns % 10 == 0 and self.connects:
                        with self.connect() as newcomer:
                            self.meet(one, newcomer)
                    elif self.turns % 10 == 0:
                        self.meet(one, other)
        except (OSError, AssertionError) as error:
            self.failure = f"turn {self.turns}: {error!r}"

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        client.sendall(HELLO)
        self.expect(client, struct.pack("<I", 7))
        return client

    def expect(self, client, answer):
        got = b""
        while len(got) < len(answer):
            piece = client.recv(len(answer) - len(got))
            if not piece:
                raise ConnectionError("the server closed the connection")
            got += piece
        assert got == answer, (got, answer)

    def turn(self, one):
        value = os.urandom(self.turns % 2000)
        one.sendall(set_request("/normal", value) + b"\3" + text("/normal") + b"\4" + text("/n") + struct.pack("<q", 1))
        self.turns += 1
        self.expect(one, text(value) + struct.pack("<q", self.turns))

    def meet(self, one, other):
        one.sendall(b"\6" + struct.pack("<Q", 1) + text("/met") + b"\x0d" + struct.pack("<I", 9))
        self.expect(one, struct.pack("<I", 9))  # it waits now, before the key comes and goes
        other.sendall(set_request("/met", "") + b"\x08" + text("/met"))
        self.expect(one, b"\0")
        self.expect(other, struct.pack("<q", 1))

    def end(self):
        self.told_to_end.set()
        self.join()
        return self.failure


def resident(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return int(re.search(r"^Rss:\s+(\d+) kB", f.read(), re.M)[1])


class FloodTest(DaemonTest):
    def setUp(self):
        super().setUp()
        # What AddressSanitizer keeps of freed memory, in builds that have it, is not the server's.
        options = ":".join([*filter(None, [os.environ.get("ASAN_OPTIONS")]), "quarantine_size_mb=1"])
        self.environment = {**os.environ, "ASAN_OPTIONS": options}

    def normal_client(self, port, connects=True):
        normal = NormalClient(port, connects)
        self.addCleanup(normal.end)
        self.assert_turns(normal, 20)
        return normal

    def assert_turns(self, normal, count):
        goal = normal.turns + count
        self.assertTrue(until(lambda: normal.turns >= goal or normal.failure, PATIENCE))
        self.assertIsNone(normal.failure)


class Floods(FloodTest):
    def flood(self, port, pid):
        normal = self.normal_client(port)
        before = resident(pid)
        with subprocess.Popen([sys.executable, os.path.join(HERE, "flood.py"), str(port), str(ATTEMPTS), str(OPEN)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
            full = self.memory_at("full", flood, pid)
            made = self.memory_at("made", flood, pid)
            flood.communicate()
            self.assertEqual(flood.returncode, 0)
        self.assert_turns(normal, 20)
        self.assertIsNone(normal.end())
        self.assertLessEqual(made - full, GROWTH_AFTER_FULL, (before, full, made))
        self.assertLessEqual(resident(pid) - before, GROWTH, (before, full, made))

    def memory_at(self, word, flood, pid):
        self.assertEqual(flood.stdout.readline(), word + "\n")
        memory = resident(pid)
        flood.stdin.write("\n")
        flood.stdin.flush()
        return memory

    def assert_said_once(self, log, causes):
        for cause in causes:
            self.assertEqual(len(re.findall(f"closed the connection of .*: {cause} ", log)), 1, (cause, log))
        self.assertEqual(log.count("closed the connection of"), len(causes), log)

    def test_cpprund(self):
        daemon = self.daemon(env=self.environment)
        self.flood(daemon.port, daemon.process.pid)
        self.assert_said_once(daemon.words(), CAUSES)
        self.assertTrue(until(lambda: daemon.metric("cpprund_store_connections") == 0))
        self.assertGreaterEqual(daemon.metric("cpprund_store_accepted_total"), ATTEMPTS)
        self.assertGreaterEqual(daemon.metric("cpprund_store_faults_total"), ATTEMPTS * 0.6)

    def test_the_workers_store_of_an_agent(self):
        self.script("w.sh", "echo $MASTER_PORT > $CASE/port.new; mv $CASE/port.new $CASE/port; read line < $CASE/end")
        os.mkfifo(self.path("end"))
        job = self.start("--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "./w.sh",
                         env=self.environment)
        self.wait_for_files("port")
        self.flood(int(self.read("port")), job.agent())
        with open(self.path("end"), "w") as end:
            end.write("now\n")
        self.assertEqual(job.end(), 0, job.err)
        self.assert_said_once(job.err, CAUSES)


class Limits(FloodTest):
    """Where no more connections fit, those that are open are served on, and others when there is room again."""

    def fill(self, daemon, normal, open_now, words):
        with contextlib.ExitStack() as stack:
            for _ in range(open_now):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port), PATIENCE))
                client.sendall(HELLO)
            self.assertTrue(until(lambda: words in daemon.words(), PATIENCE), daemon.words())
            self.assert_turns(normal, 20)
        with daemon.client():
            self.assert_turns(normal, 20)
        self.assertEqual(daemon.words().count("accepting no more connections"), 1, daemon.words())

    def test_of_connections(self):
        daemon = self.daemon("--max-connections=300")
        normal = self.normal_client(daemon.port, connects=False)
        self.fill(daemon, normal, 400, "accepting no more connections for now (300 are open): that is its limit")

    def test_of_open_files(self):
        few = (100, 100)
        daemon = self.daemon(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few))
        normal = self.normal_client(daemon.port, connects=False)
        self.fill(daemon, normal, 200, "are open): Too many open files")


if __name__ == "__main__":
    unittest.main()

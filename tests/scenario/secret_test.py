"""--secret-file and --store-proxy: who is let in, who is not and why, and what the workers see of it."""
import os
import socket
import unittest

from daemon import HELLO, DaemonTest
from harness import free_port, until

# Two workers a node meet at their store as a process group does: each sets a key and counts itself, all wait.
MEET = r'''
import os, socket, struct, sys
def text(value): return struct.pack("<Q", len(value)) + value
def receive(size):
    data = b""
    while len(data) < size:
        piece = store.recv(size - len(data))
        assert piece, "the store closed the connection"
        data += piece
    return data
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=30)
rank, size = os.environ["RANK"].encode(), int(os.environ["WORLD_SIZE"])
store.sendall(b"\x00" + struct.pack("<I", 0x3C85F7CE) + b"\x01" + text(b"/" + rank) + text(b"v" + rank)
              + b"\x04" + text(b"/count") + struct.pack("<q", 1))
if struct.unpack("<q", receive(8))[0] == size:
    store.sendall(b"\x01" + text(b"/all") + text(b"x"))
store.sendall(b"\x06" + struct.pack("<Q", 1) + text(b"/all"))
assert receive(1) == b"\0"
for other in range(size):
    store.sendall(b"\x03" + text(b"/%d" % other))
    assert receive(8 + 1 + len(b"%d" % other))[8:] == b"v%d" % other
with open(os.path.join(os.environ["CASE"], "met." + rank.decode()), "w") as out:
    print(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], os.environ.get("CPPRUN_RANK0_ADDR"),
          os.environ["TORCHELASTIC_RESTART_COUNT"], file=out)
'''


class SecretTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.write("meet.py", MEET)
        self.secret = self.new_secret("secret")

    def new_secret(self, name, size=32):
        with open(self.path(name), "wb") as file:
            file.write(os.urandom(size))
        os.chmod(self.path(name), 0o600)
        return self.path(name)

    def node(self, rank, *arguments, secret=None, nodes=2, backend="c10d", host=None, **options):
        where = [f"--nnodes={nodes}", "--nproc-per-node=2", "--rdzv-id=job"]
        if backend == "static":
            where += [f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={self.port}"]
        else:
            where += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        if secret:
            where += [f"--secret-file={secret}"]
        if host is not None:
            where += [f"--rdzv-conf=is_host={host}"]
        return self.start(*where, *arguments, **options)

    def end(self, *jobs):
        for job in jobs:
            job.code = job.end()
            self.assert_nothing_left(job)
        return [job.code for job in jobs]

    def met(self):
        return [self.read(f"met.{rank}").split() for rank in range(4)]


class LetIn(SecretTest):
    def check(self, *options, **kind):
        jobs = [self.node(rank, *options, "meet.py", **kind) for rank in range(2)]
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        met = self.met()
        self.assertEqual({line[0] for line in met}, {"127.0.0.1"})
        self.assertEqual({line[2] for line in met}, {"127.0.0.1"})  # rank 0's address, here of the same machine
        self.assertEqual(len({line[1] for line in met}), 2)  # a proxy for each node
        self.assertNotIn(str(self.port), {line[1] for line in met})
        return jobs

    def test_c10d_with_a_secret(self):
        for job in self.check(secret=self.secret):
            self.assertNotIn("warning", job.err)

    def test_static_with_a_secret(self):
        self.check(secret=self.secret, backend="static")

    def test_proxies_alone(self):
        for job in self.check("--store-proxy"):
            self.assertEqual(job.err.count("answer whoever reaches them"), 1, job.err)

    def test_a_restart_meets_at_an_empty_store(self):
        self.write("once.py", 'import os, sys\n'
                              'if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "3": sys.exit(7)\n'
                              + MEET)
        jobs = [self.node(rank, "--max-restarts=1", "once.py", secret=self.secret) for rank in range(2)]
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertEqual({line[3] for line in self.met()}, {"1"})

    def test_one_node_listens_on_this_machine_alone(self):
        self.script("w.sh", 'echo "$MASTER_ADDR $CPPRUN_RANK0_ADDR" > $CASE/seen\n'
                            'cat /proc/net/tcp /proc/net/tcp6 > $CASE/sockets\n')
        job = self.run_to_end(f"--master-port={self.port}", f"--secret-file={self.secret}", "./w.sh")
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(self.read("seen"), "127.0.0.1 127.0.0.1\n")
        listening = [words[1] for words in map(str.split, self.read("sockets").splitlines())
                     if words[3] == "0A" and words[1].endswith(f":{self.port:04X}")]
        self.assertEqual(listening, [f"0100007F:{self.port:04X}"])
        self.assertNotIn("warning", job.err)

    def test_through_cpprund(self):
        daemon = self.daemon(f"--secret-file={self.secret}")
        self.port = daemon.port
        self.check(secret=self.secret)
        stranger = self.node(0, "true", host=0)
        self.assertEqual(self.end(stranger), [3], stranger.err)
        self.assertIn("it asks for a secret", stranger.err)
        self.assertIn("does not use the secret", daemon.words())


class Refused(SecretTest):
    """Where one waits, who else comes; both say why."""

    def leader(self, **kind):
        leader = self.node(0, "--rdzv-conf=join_timeout=60", "true", nodes=3, **kind)
        self.assertTrue(until(lambda: self.answers()), "the leader does not listen")
        return leader

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, leader):
        leader.process.terminate()
        leader.end()

    def refused(self, leader, theirs, ours, **kind):
        stranger = self.node(1, "true", nodes=3, host=0, **kind)
        self.assertEqual(self.end(stranger), [3], stranger.err)
        self.assertIn(theirs, stranger.err)
        again = self.node(1, "true", nodes=3, host=0, **kind)
        self.assertEqual(self.end(again), [3], again.err)
        self.stop(leader)
        self.assertEqual(leader.err.count(ours), 1, leader.err)  # once for both

    def test_another_secret(self):
        self.refused(self.leader(secret=self.secret), "it has another secret", "it has another secret",
                     secret=self.new_secret("other"))

    def test_no_secret(self):
        self.refused(self.leader(secret=self.secret), "it asks for a secret, and this node has none",
                     "it does not use the secret that is used here")

    def test_a_secret_where_none_is_used(self):
        self.refused(self.leader(), "it uses no secret, and this node has one", "it speaks TLS, and no secret is used here",
                     secret=self.secret)

    def test_whatever_else_learns_nothing(self):
        leader = self.leader(secret=self.secret)
        for first in (HELLO, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 100, b"\x80" * 64):
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as stranger:
                stranger.sendall(first)
                stranger.shutdown(socket.SHUT_WR)
                answer = b""
                try:
                    while piece := stranger.recv(4096):
                        answer += piece
                except ConnectionResetError:
                    pass
            self.assertLessEqual(len(answer), 16, answer)
            self.assertIn(answer[:1], (b"", b"\x15"))  # an alert of TLS
        self.stop(leader)
        self.assertNotIn("VALIDATE", leader.err)

    def test_who_guesses_is_not_heard_for_a_while(self):
        leader = self.leader(secret=self.secret)
        for _ in range(40):
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as stranger:
                stranger.sendall(HELLO)
                try:
                    while stranger.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        self.stop(leader)
        self.assertEqual(leader.err.count("is not heard for 10 s"), 1, leader.err)
        self.assertEqual(leader.err.count("it does not use the secret"), 1, leader.err)

    def test_files_that_are_no_secret(self):
        self.new_secret("short", 31)
        for name, why in (("short", "31 bytes"), ("missing", "No such file"), ("tmp", "no regular file")):
            job = self.run_to_end("--secret-file", self.path(name), "true")
            self.assertEqual((job.code, job.err.count("\n")), (2, 1), job.err)
            self.assertIn(why, job.err)
            self.assertIn(self.path(name), job.err)

    def test_a_file_that_others_can_read_is_spoken_of(self):
        os.chmod(self.secret, 0o644)
        job = self.run_to_end("--secret-file", self.secret, "true")
        self.assertEqual(job.code, 0)
        self.assertIn("chmod 600", job.err)

    def test_a_dry_run_says_what_workers_will_see(self):
        job = self.run_to_end("--dry-run", "--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=29500",
                              f"--secret-file={self.secret}", "true")
        self.assertEqual(job.code, 0, job.err)
        for line in ("MASTER_ADDR=127.0.0.1", "CPPRUN_RANK0_ADDR=10.0.0.1", "MASTER_PORT=<a free port>"):
            self.assertIn(line, job.out)


if __name__ == "__main__":
    unittest.main()

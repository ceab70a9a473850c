"""Workers that stand still, without a word to cpprun about their progress."""
import json
import os
import signal
import sys
import unittest

from harness import ScenarioTest, free_port, until

LIMIT = 2  # seconds of --hang-detection silence

# Two ranks that meet in a step again and again over TCP, until one does what the test says.
PAIR = r"""
import os, signal, socket, subprocess, sys, tempfile, threading, time
rank, port = int(os.environ["RANK"]), int(os.environ["PORT"])
def up(name):
    open(os.path.join(os.environ["CASE"], name), "w").close()
def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(list(range(20000)))
def connect():
    if rank == 0:
        with socket.create_server(("127.0.0.1", port)) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.01)
def meet():
    peer.sendall(b"x")
    assert peer.recv(1) == b"x"
peer = connect()
for step in range(10):
    compute(0.05)
    meet()
up(f"ready.{rank}")
"""


class HangTest(ScenarioTest):
    def start_pair(self, text, *options, silence=LIMIT, logs="logs", **kw):
        self.write("w.py", PAIR + text)
        return self.start("--nproc-per-node=2", f"--hang-detection=silence={silence}", f"--log-dir={logs}",
                          "--event-log-handler=file:events", *options, "w.py",
                          env={"PYTHON_EXEC": sys.executable, "PORT": str(free_port())}, **kw)

    def cause(self):
        (run,) = os.listdir(self.path("logs"))
        return json.loads(self.read("logs", run, "attempt_0", "failure.json"))["root_cause"]

    def states(self):
        return [json.loads(line)["metadata"]["state"] for line in self.read("events").splitlines()]

    def assert_hang(self, job, *ranks):
        self.assertEqual(job.end(), 1, job.err)
        cause = self.cause()
        self.assertEqual(cause["class"], "hang", cause)
        self.assertIn(cause["global_rank"], ranks, cause)
        self.assertIn("computed anything new", cause["message"])
        states = self.states()
        self.assertLess(states.index("HANG"), states.index("STACKS"))
        self.assertLess(states.index("STACKS"), states.index("STOPPING"))
        self.assert_nothing_left(job)


class Hangs(HangTest):
    def test_a_deadlocked_thread(self):
        job = self.start_pair("""
lock = threading.Lock()
if rank == 1: lock.acquire(), lock.acquire()
meet()
""")
        self.assert_hang(job, 0, 1)

    def test_without_a_folder_the_log_has_the_stacks(self):
        job = self.start_pair("""
def stands_here():
    while True: pass
if rank == 1: stands_here()
meet()
""", logs="/dev/null")
        self.assertEqual(job.end(), 1, job.err)
        self.assertRegex(job.err, r"warning: no file keeps the stacks(.*\n)+.*warning:   rank [01] (.*\n)+.*warning:       #0  ")
        self.assertNotIn("STACKS", self.states())  # which would name the file

    def test_a_loop_that_gets_nowhere(self):
        job = self.start_pair("""
if rank == 1:
    while True: pass
meet()
""")
        self.assert_hang(job, 1)

    def test_a_rank_that_leaves_a_step_out(self):
        job = self.start_pair("""
if rank == 1: peer.recv(2), peer.recv(1)
meet()
""")
        self.assert_hang(job, 0, 1)

    def test_a_worker_that_is_stopped(self):
        job = self.start_pair("""
if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
meet()
""")
        self.assert_hang(job, 1)

    def test_stacks_before_the_end_of_a_job_in_which_a_rank_gave_up_waiting(self):
        """No limit of ours is passed: the worker has one of its own."""
        job = self.start_pair("""
if rank == 0: time.sleep(1000)
sys.exit("RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1000ms for recv operation to complete")
""", silence=1000)
        self.assertEqual(job.end(), 1, job.err)
        cause = self.cause()
        self.assertEqual((cause["global_rank"], cause["class"]), (1, "timeout"), cause)
        states = self.states()
        self.assertLess(states.index("STACKS"), states.index("STOPPING"))
        (run,) = os.listdir(self.path("logs"))
        self.assertIn("rank 0 sleeps", self.read("logs", run, "attempt_0", "stacks.txt"))
        self.assertTrue(os.path.exists(self.path("logs", run, "attempt_0", "0", "stacks.json")))

    def test_a_restart_watches_anew(self):
        job = self.start_pair("""
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": time.sleep(1000)
""", "--max-restarts=1")
        self.assertEqual(job.end(), 0, job.err)
        self.assertEqual(self.states().count("HANG"), 1)


class Pauses(HangTest):
    """What looks like a hang and is none; each lasts for more than twice the limit."""

    def assert_good(self, text, **kw):
        job = self.start_pair(text, **kw)
        self.assertEqual(job.end(), 0, job.err)
        self.assertNotIn("HANG", self.states())

    def test_an_evaluation_on_one_rank(self):
        self.assert_good("if rank == 0: compute(5)\nmeet()")

    def test_a_compiler_below_a_worker(self):
        self.assert_good("""
if rank == 0:
    subprocess.run([sys.executable, "-c", "import time; end = time.monotonic() + 5\\nwhile time.monotonic() < end: pass"])
meet()""")

    def test_a_checkpoint_that_is_written(self):
        self.assert_good("""
if rank == 0:
    with tempfile.TemporaryFile(dir=os.environ["CASE"]) as f:
        for part in range(25):
            f.write(bytes(100000)); f.flush(); time.sleep(0.2)
meet()""")

    def test_a_download(self):
        self.assert_good("""
for byte in range(25):
    time.sleep(0.2)
    meet()""")

    def test_all_workers_stopped_and_continued(self):
        job = self.start_pair("while not os.path.exists(os.path.join(os.environ['CASE'], 'go')): time.sleep(0.01)\nmeet()")
        self.assertTrue(until(lambda: os.path.exists(self.path("ready.0")) and os.path.exists(self.path("ready.1"))))
        workers = [int(json.loads(line)["metadata"]["worker_id"]) for line in self.read("events").splitlines()
                   if json.loads(line)["metadata"]["state"] == "START"]
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        self.assertFalse(until(lambda: "HANG" in self.states(), limit=2.5 * LIMIT))
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        self.write("go", "")
        self.assertEqual(job.end(), 0, job.err)

    def test_it_is_off_by_itself(self):
        self.write("w.py", PAIR + "time.sleep(5)")
        job = self.run_to_end("--nproc-per-node=2", "w.py", env={"PYTHON_EXEC": sys.executable, "PORT": str(free_port())})
        self.assertEqual(job.code, 0, job.err)


if __name__ == "__main__":
    unittest.main()

"""Workers that hang: timers that they set themselves, and uninterruptible sleep."""
import json
import os
import signal
import stat
import sys
import unittest

from harness import ScenarioTest, until

# What torch's FileTimerClient does.
CLIENT = r"""
import json, os, signal, subprocess, sys, time
def timer(seconds, number=9, pid=None, scope="step"):
    fd = os.open(os.environ["TORCHELASTIC_TIMER_FILE"], os.O_WRONLY | os.O_NONBLOCK)
    when = time.time() + seconds if seconds is not None else -1
    os.write(fd, (json.dumps({"version": 1, "pid": pid or os.getpid(), "scope_id": scope, "expiration_time": when,
                              "signal": number}) + "\n").encode())
    os.close(fd)
def up(name):
    open(os.path.join(os.environ["CASE"], name), "w").close()
rank, restart = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
"""


class Timers(ScenarioTest):
    def start_client(self, text, *options, env=None, **kw):
        self.write("w.py", CLIENT + text)
        return self.start(*options, "w.py", env={"PYTHON_EXEC": sys.executable, "TORCHELASTIC_ENABLE_FILE_TIMER": "1",
                                                 **(env or {})}, **kw)

    def run_client(self, text, *options, env=None):
        job = self.start_client(text, *options, env=env)
        job.code = job.end()
        return job

    def cause(self):
        (run,) = os.listdir(self.path("logs"))
        return json.loads(self.read("logs", run, "attempt_0", "failure.json"))["root_cause"]

    def test_a_timer_that_runs_out_fails_the_worker(self):
        job = self.run_client("if rank == '1': timer(0.2)\ntime.sleep(300)", "--nproc-per-node=2", "--log-dir=logs")
        self.assertEqual(job.code, 1, job.err)
        cause = self.cause()
        self.assertEqual((cause["global_rank"], cause["signal"], cause["class"]), (1, "SIGKILL", "hang"))
        self.assertRegex(cause["message"], r"^the timer 'step' of process \d+ ran out; it was sent SIGKILL$")
        self.assert_nothing_left(job)
        self.assert_tmp_empty()  # the FIFO is gone too

    def test_the_group_restarts_within_the_budget(self):
        job = self.run_client("if restart == '0': timer(0.1); time.sleep(300)", "--max-restarts=1")
        self.assertEqual(job.code, 0, job.err)
        self.assertIn("ran out", job.err)

    def test_a_process_below_a_worker_and_a_signal_that_does_not_end_it(self):
        job = self.run_client("child = subprocess.Popen(['sleep', '300'])\n"
                              "timer(0.1, pid=child.pid)\ntime.sleep(300)", "--log-dir=logs")
        self.assertEqual(job.code, 1, job.err)
        self.assertIn("ran out", self.cause()["message"])
        # It ends well in answer to its signal, and has failed all the same. 10 is SIGUSR1.
        job = self.run_client("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                              "signal.signal(signal.SIGUSR1, lambda *a: (up('got'), sys.exit(0)))\ntimer(0.1, 10)\n"
                              "while True: time.sleep(300)")
        self.assertEqual(job.code, 1, job.err)
        self.assertIn("it was sent SIGUSR1", job.err)
        self.assertTrue(os.path.exists(self.path("got")))

    def test_released_timers_and_strangers_do_no_harm(self):
        job = self.run_client(
            "stranger = int(os.environ['STRANGER'])\n"
            "timer(0, pid=stranger)\ntimer(0.2)\ntimer(None)\ntimer(0.1, 0, scope='no signal')\n"
            "fd = os.open(os.environ['TORCHELASTIC_TIMER_FILE'], os.O_WRONLY)\nos.write(fd, b'garbage\\n')\n"
            "time.sleep(0.5)", env={"STRANGER": str(os.getpid())})
        self.assertEqual(job.code, 0, job.err)
        self.assertIn("is no timer", job.err)

    def test_where_the_fifo_lies_and_that_it_goes(self):
        named = self.path("fifo")
        os.mkfifo(named)  # left behind by another run
        job = self.start_client("up(os.environ['TORCHELASTIC_TIMER_FILE'].replace('/', '_'))\ntime.sleep(300)",
                                env={"TORCHELASTIC_TIMER_FILE": named})
        self.wait_for_files(named.replace("/", "_"))
        self.assertTrue(stat.S_ISFIFO(os.stat(named).st_mode))
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.end(), 128 + signal.SIGKILL)
        self.assertFalse(os.path.exists(named))
        self.write("fifo", "a file")
        job = self.run_client("", env={"TORCHELASTIC_TIMER_FILE": named})
        self.assertEqual(job.code, 2, job.err)
        self.assertIn("cannot make the timer file", job.err)
        self.assertEqual(self.read("fifo"), "a file")

    def test_without_a_server_the_variable_is_passed_on(self):
        job = self.run_to_end("--no-python", "bash", "-c", "echo $TORCHELASTIC_TIMER_FILE",
                              env={"TORCHELASTIC_TIMER_FILE": "/some/where"})
        self.assertEqual(job.out, "/some/where\n")


# A process that waits for the child of its vfork is in uninterruptible sleep. 56 is clone on x86-64.
STUCK = r"""
import ctypes, os, platform, time
CLONE_VFORK, SIGCHLD = 0x4000, 17
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
if os.environ["RANK"] == "1" and ctypes.CDLL(None).syscall(number, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0):
    os._exit(0)
time.sleep(300)
"""


class Stuck(ScenarioTest):
    def test_a_worker_stuck_in_the_kernel_ends_the_job(self):
        self.write("w.py", STUCK)
        job = self.run_to_end("--nproc-per-node=2", "--max-restarts=5", "--log-dir=logs", "--shutdown-timeout=1", "w.py",
                              env={"PYTHON_EXEC": sys.executable, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0.3"})
        self.assertEqual(job.code, 1, job.err)
        self.assertIn("the kernel holds it, so it is not restarted", job.err)
        (run,) = os.listdir(self.path("logs"))
        self.assertEqual(os.listdir(self.path("logs", run)), ["attempt_0"])
        cause = json.loads(self.read("logs", run, "attempt_0", "failure.json"))["root_cause"]
        self.assertEqual((cause["global_rank"], cause["class"]),
                         (1, "hang"))
        self.assertRegex(cause["message"], r"^is in uninterruptible sleep for [\d.]+ s \(limit 0\.3 s\); ")
        self.assert_nothing_left(job)

    def test_nobody_looks_unless_asked(self):
        self.write("w.py", STUCK)
        job = self.start("--nproc-per-node=2", "w.py",
                         env={"PYTHON_EXEC": sys.executable, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0"})
        self.assertTrue(until(lambda: len(job.alive()) == 5))
        job.signal(signal.SIGKILL)
        job.end()
        self.assert_nothing_left(job)


class Others(ScenarioTest):
    def test_health_check_port_is_warned_of(self):
        job = self.run_to_end("--no-python", "true", env={"TORCHELASTIC_HEALTH_CHECK_PORT": "8080"})
        self.assertEqual(job.code, 0)
        self.assertIn("No health check server started", job.err)

    def test_log_level(self):
        for level, warning, info in (("ERROR", False, False), ("warning", True, False), ("INFO", True, True)):
            job = self.run_to_end("--no-python", "true", env={"LOGLEVEL": level, "TORCHELASTIC_HEALTH_CHECK_PORT": "1"})
            self.assertEqual("No health check" in job.err, warning, job.err)
            self.assertEqual("all workers ended well" in job.err, info, job.err)


if __name__ == "__main__":
    unittest.main()

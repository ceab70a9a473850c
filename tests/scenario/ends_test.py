"""How a job ends: exit codes, signals, stops, and that nothing is ever left behind."""
import json
import os
import signal
import subprocess
import stat
import unittest

from harness import CPPRUN, ScenarioTest, children, until

TREE = r"""
setsid sleep 300 &
bash -c 'sleep 301 & (setsid bash -c "sleep 302 & sleep 303") & wait' &
(sleep 304 &)
touch "$CASE/up.$RANK"
sleep 305 & wait
"""
TREE_SIZE = 9  # processes of one worker, itself included


class ExitCodes(ScenarioTest):
    def test_every_code_of_a_worker_is_reported_and_gives_1(self):
        self.script("w.sh", "exit $1")
        for code in (1, 2, 7, 93, 125, 126, 127, 128, 129, 137, 255):
            job = self.run_to_end("--log-dir", f"logs{code}", "./w.sh", str(code))
            self.assertEqual(job.code, 1, job.err)
            self.assertIn(f"exitcode  : {code} (pid:", job.err)

    def test_every_deadly_signal_is_named(self):
        for name in ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGBUS"):
            job = self.run_to_end("--no-python", "bash", "-c", f"ulimit -c 0; kill -{name[3:]} $$")
            self.assertEqual(job.code, 1, job.err)
            self.assertIn(f"exitcode  : -{getattr(signal, name).value} (pid:", job.err)
            self.assertIn(f"({name})", job.err)

    def test_exec_failure_is_a_worker_failure_named_by_its_cause(self):
        self.write("broken", "\x7fELF but not really", 0o755)
        job = self.run_to_end("--log-dir", "logs", "./broken")
        self.assertEqual(job.code, 1)
        self.assertIn("exitcode  : 126", job.err)
        self.assertIn("could not be executed: Exec format error", job.err)
        self.write("lost", "#!/no/such/interpreter\n", 0o755)
        job = self.run_to_end("./lost")
        self.assertEqual(job.code, 1)
        self.assertIn("exitcode  : 127", job.err)
        self.assertIn("could not be executed: No such file or directory", job.err)

    def test_port_in_use(self):
        import socket
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            job = self.run_to_end("--master-port", str(port), "--no-python", "touch", self.path("ran"))
        self.assertEqual(job.code, 4)
        self.assertRegex(job.err, rf"{port}.*[Ii]n use|in use.*{port}")
        self.assertFalse(os.path.exists(self.path("ran")))
        self.assert_tmp_empty()

    def test_no_fork_possible(self):
        job = self.run_to_end("--nproc-per-node=2", "--no-python", "true",
                              wrap=("prlimit", "--nofile=12:12"))
        self.assertEqual(job.code, 4, job.err)
        self.assertIn("Too many open files", job.err)
        self.assert_nothing_left(job)
        self.assert_tmp_empty()


class Report(ScenarioTest):
    def test_failure_json(self):
        self.script("w.sh", 'echo some; echo "last words $RANK" >&2; [ $RANK = 1 ] && exit 7; sleep 300')
        job = self.run_to_end("--nproc-per-node=2", "--log-dir", "logs", "--rdzv-id", "job", "./w.sh")
        self.assertEqual(job.code, 1)
        (run,) = os.listdir(self.path("logs"))
        report = json.loads(self.read("logs", run, "attempt_0", "failure.json"))
        cause = report["root_cause"]
        self.assertEqual((cause["global_rank"], cause["local_rank"], cause["exit_code"], cause["signal"]),
                         (1, 1, 7, None))
        self.assertEqual(cause["stderr_tail"], ["last words 1"])
        self.assertEqual(cause["class"], "exit_code")
        self.assertEqual(cause["evidence"], ["exit code 7 and no error record", "its last word: last words 1"])
        self.assertIn("  cause     : exit_code: exit code 7 and no error record\n", job.err)
        self.assertIn("  advice    : " + cause["advice"], job.err)
        self.assertTrue(0 < cause["confidence"] <= 1)
        self.assertRegex(cause["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        stopped = {f["global_rank"]: f["stopped_by_agent"] for f in report["failures"]}
        self.assertEqual(stopped, {0: True, 1: False})
        self.assertEqual(set(cause), {"global_rank", "local_rank", "role_rank", "host", "pid", "exit_code", "signal",
                                      "class", "evidence", "advice", "confidence", "message", "error_file", "stderr_tail",
                                      "time", "progress", "progress_text"})

    def test_error_file_of_the_worker(self):
        self.write("w.py", "import json, os, sys\n"
                           "json.dump({'message': {'message': 'ValueError: bad shape', 'extraInfo': {'py_callstack': "
                           "'Traceback: here', 'timestamp': '17'}}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
                           "sys.exit(1)\n")
        job = self.run_to_end("w.py")
        self.assertEqual(job.code, 1)
        self.assertIn("traceback : Traceback: here", job.err)
        (run,) = os.listdir(self.path("tmp"))  # kept on failure, and named
        self.assertIn(self.path("tmp", run), job.err)
        cause = json.loads(self.read("tmp", run, "attempt_0", "failure.json"))["root_cause"]
        self.assertEqual((cause["class"], cause["message"]), ("exception", "ValueError: bad shape"))
        self.assertEqual(os.stat(self.path("tmp", run)).st_mode & 0o777, 0o700)

    def test_own_error_file(self):
        """cpprun is itself a worker of something that named an error file."""
        own = self.path("own.json")

        def run(*arguments, **options):
            return self.run_to_end("--log-dir=logs", *arguments, env={"TORCHELASTIC_ERROR_FILE": own}, **options)

        def left():
            with open(own) as f:
                content = json.load(f)["message"]
            os.remove(own)
            return content
        recorded = ('echo "{\\"message\\": {\\"message\\": \\"E: x\\", \\"extraInfo\\": {\\"py_callstack\\": \\"here\\", '
                    '\\"timestamp\\": \\"17\\"}}}" > $TORCHELASTIC_ERROR_FILE; ')
        self.write("own.json", "old")
        self.assertEqual(run("--no-python", "bash", "-c", recorded + "exit 7").code, 1)
        self.assertEqual(left(), {"message": "E: x", "extraInfo": {"py_callstack": "here", "timestamp": "17"}, "errorCode": 7})
        self.assertEqual(run("--no-python", "bash", "-c", recorded + "kill -KILL $$").code, 1)
        self.assertEqual(left()["errorCode"], -9)
        self.assertEqual(run("--no-python", "bash", "-c", "exit 7").code, 1)  # the worker left nothing
        self.assertFalse(os.path.exists(own))
        self.assertEqual(run("--no-python", "bash", "-c", recorded).code, 0)
        self.assertFalse(os.path.exists(own))
        for code, kind, arguments in ((2, "UsageError: ", ["--nnodes=x", "true"]), (2, "UsageError: ", ["./missing"]),
                                      (2, "UsageError: ", ["--log-dir=own.json/x", "--no-python", "true"])):
            if arguments[0].startswith("--log-dir"):
                self.write("own.json", "")
            self.assertEqual(run(*arguments).code, code)
            message = left()
            self.assertTrue(message["message"].startswith(kind), message)
            self.assertEqual(message["errorCode"], code)
            self.assertRegex(message["extraInfo"]["timestamp"], r"^\d{10}$")
        job = self.start("--no-python", "bash", "-c", "touch $CASE/up; exec sleep 300", env={"TORCHELASTIC_ERROR_FILE": own})
        self.wait_for_files("up")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assertEqual(left()["message"], "Signal: cpprun was stopped by SIGTERM")

    def test_own_error_file_that_is_no_file_is_left_alone(self):
        os.mkfifo(self.path("own"))
        job = self.run_to_end("--nnodes=x", "true", env={"TORCHELASTIC_ERROR_FILE": self.path("own")})
        self.assertEqual(job.code, 2)
        self.assertIn("is no regular file", job.err)
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("own")).st_mode))

    def test_error_file_that_is_no_file(self):
        for make in ("mkfifo $TORCHELASTIC_ERROR_FILE", "mkdir $TORCHELASTIC_ERROR_FILE",
                     "ln -s /dev/zero $TORCHELASTIC_ERROR_FILE", "echo '{' > $TORCHELASTIC_ERROR_FILE",
                     "truncate -s 100M $TORCHELASTIC_ERROR_FILE"):
            job = self.run_to_end("--no-python", "bash", "-c", make + "; exit 7")
            self.assertEqual(job.code, 1)
            self.assertIn("exitcode  : 7", job.err)
            self.assertIn("the worker's error file holds no error record", job.err)

    def test_redirected_stderr_is_quoted_too(self):
        job = self.run_to_end("-r", "3", "--no-python", "bash", "-c", "echo in the file >&2; exit 3")
        self.assertEqual(job.code, 1)
        self.assertIn("    in the file\n", job.err)
        self.assertNotIn("stopping the other workers", job.err)  # there is none


class Stops(ScenarioTest):
    def start_traps(self, *options, count=2, **kw):
        self.script("w.sh", """
trap 'echo TERM >> $CASE/got.$RANK; exit 0' TERM
trap 'echo INT >> $CASE/got.$RANK; exit 0' INT
trap 'echo HUP >> $CASE/got.$RANK; exit 0' HUP
trap 'echo QUIT >> $CASE/got.$RANK; exit 0' QUIT
trap 'echo USR1 >> $CASE/got.$RANK; exit 0' USR1
touch $CASE/up.$RANK
while :; do sleep 300 & wait $!; done
""")
        job = self.start(f"--nproc-per-node={count}", *options, "./w.sh", **kw)
        self.wait_for_files(*(f"up.{r}" for r in range(count)))
        return job

    def test_each_handled_signal_reaches_the_workers(self):
        for name in ("TERM", "INT", "HUP", "QUIT"):
            for f in os.listdir(self.folder):
                if f.startswith(("up.", "got.")):
                    os.remove(self.path(f))
            job = self.start_traps()
            number = getattr(signal, "SIG" + name)
            job.signal(number)
            self.assertEqual(job.end(), 128 + number, job.err)
            self.assertEqual([self.read(f"got.{r}") for r in (0, 1)], [name + "\n"] * 2)
            self.assert_nothing_left(job)
            self.assert_tmp_empty()

    def test_signal_to_the_agent_itself(self):
        job = self.start_traps()
        os.kill(job.agent(), signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assertEqual(self.read("got.1"), "TERM\n")

    def test_the_same_signal_from_both_sides_is_one(self):
        job = self.start_traps()
        agent = job.agent()
        job.signal(signal.SIGTERM)
        os.kill(agent, signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM, job.err)
        self.assertEqual(self.read("got.0"), "TERM\n")
        self.assertNotIn("killing the workers now", job.err)

    def test_extra_signal(self):
        job = self.start_traps("--signals-to-handle", "SIGTERM,SIGUSR1")
        job.signal(signal.SIGUSR1)
        self.assertEqual(job.end(), 128 + signal.SIGUSR1)
        self.assertEqual(self.read("got.0"), "USR1\n")

    def test_whatever_signal_is_listed_reaches_the_workers(self):
        names = ("USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "PWR", "XCPU", "URG", "WINCH")
        self.script("w.sh", "".join(f"trap 'echo {name} >> $CASE/got.$RANK; exit 0' {name}\n" for name in names) +
                    "touch $CASE/up.$RANK\nwhile :; do sleep 300 & wait $!; done")
        for name in names:
            job = self.start("--nproc-per-node=2", "--signals-to-handle", ",".join("SIG" + n for n in names), "./w.sh")
            self.wait_for_files("up.0", "up.1")
            number = getattr(signal, "SIG" + name)
            job.signal(number)
            self.assertEqual(job.end(), 128 + number, job.err)
            self.assertEqual([self.read(f"got.{r}") for r in (0, 1)], [name + "\n"] * 2)
            self.assert_tmp_empty()
            for file in ("up.0", "up.1", "got.0", "got.1"):
                os.remove(self.path(file))

    def test_unhandled_signal_ends_everything_and_says_so(self):
        job = self.start_traps()
        job.signal(signal.SIGUSR2)
        self.assertEqual(job.end(), 128 + signal.SIGUSR2)
        self.assertIn("SIGUSR2", job.err)
        self.assert_nothing_left(job)
        self.assert_tmp_empty()

    def test_nohup_is_respected(self):
        job = self.start_traps(wrap=("nohup",))
        job.signal(signal.SIGHUP)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assertEqual(self.read("got.0"), "TERM\n")

    def test_each_inherited_ignore_is_respected(self):
        for name, other in (("INT", "TERM"), ("QUIT", "TERM"), ("HUP", "TERM"), ("TERM", "INT")):
            job = self.start_traps(wrap=("bash", "-c", f"trap '' {name}; exec \"$@\"", "bash"))
            job.signal(getattr(signal, "SIG" + name))
            job.signal(getattr(signal, "SIG" + other))
            self.assertEqual(job.end(), 128 + getattr(signal, "SIG" + other), job.err)
            self.assertEqual([self.read(f"got.{r}") for r in (0, 1)], [other + "\n"] * 2)
            for file in ("up.0", "up.1", "got.0", "got.1"):
                os.remove(self.path(file))

    def test_stubborn_worker_is_killed_after_the_grace_on_every_path(self):
        self.script("w.sh", "trap '' TERM INT; touch $CASE/up.$RANK\n"
                            "if [ $RANK = 1 ] && [ -n \"$FAIL\" ]; then\n"
                            "  until [ -e $CASE/up.0 ]; do sleep 0.01; done\n  exit 5\nfi\n"
                            "while :; do sleep 300; done")
        job = self.run_to_end("--nproc-per-node=2", "--shutdown-timeout=1", "./w.sh", env={"FAIL": "1"})
        self.assertEqual(job.code, 1)
        self.assertIn("is still there; killing it", job.err)
        self.assertIn("(SIGKILL)", job.err)
        self.assert_nothing_left(job)
        os.remove(self.path("up.0"))
        job = self.start("--shutdown-timeout=0", "./w.sh")
        self.wait_for_files("up.0")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assert_nothing_left(job)

    def test_a_stopped_worker_hears_the_signal_too(self):
        self.script("w.sh", "trap 'touch $CASE/told; exit 0' TERM; touch $CASE/up; while :; do sleep 0.1; done")
        job = self.start("--shutdown-timeout=600", "./w.sh")
        self.wait_for_files("up")
        (worker,) = [pid for pid in job.alive() if pid not in (job.pid, job.agent()) and os.getpgid(pid) == pid]
        os.kill(worker, signal.SIGSTOP)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 143)
        self.wait_for_files("told")

    def test_second_control_c_ends_now(self):
        self.script("w.sh", "trap '' INT TERM; touch $CASE/up\nwhile :; do sleep 300; done")
        job = self.start("--shutdown-timeout=1000", "./w.sh")
        self.wait_for_files("up")
        # A person's presses: within 200 ms they would count as one.
        while job.process.poll() is None:
            job.signal(signal.SIGINT)
            try:
                job.process.wait(0.5)
            except subprocess.TimeoutExpired:
                pass
        self.assertEqual(job.end(), 128 + signal.SIGINT)
        self.assertIn("killing the workers now", job.err)
        self.assert_nothing_left(job)
        self.assert_tmp_empty()

    def test_second_interrupt_ends_now(self):
        self.script("w.sh", "trap 'touch $CASE/int' INT TERM; touch $CASE/up\nwhile :; do sleep 300 & wait $!; done")
        job = self.start("--shutdown-timeout=1000", "./w.sh")
        self.wait_for_files("up")
        job.signal(signal.SIGTERM)
        self.wait_for_files("int")
        job.signal(signal.SIGINT)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assert_nothing_left(job)

    def test_stopped_agent_still_ends(self):
        job = self.start_traps()
        os.kill(job.agent(), signal.SIGSTOP)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assertEqual(self.read("got.0"), "TERM\n")

    def test_stuck_reader_of_stderr_holds_nothing_up(self):
        reader, writer = os.pipe()
        self.script("w.sh", "touch $CASE/up; sleep 300")
        job = self.start("--shutdown-timeout=1", "./w.sh", stderr=writer)
        self.wait_for_files("up")
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assert_nothing_left(job)
        os.close(reader)
        os.close(writer)

    def test_endless_output_to_a_reader_that_reads_nothing(self):
        reader, writer = os.pipe()
        job = self.start("--shutdown-timeout=1", "--no-python", "bash", "-c", "touch $CASE/up; yes >&2", stderr=writer)
        os.close(writer)
        self.wait_for_files("up")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assert_nothing_left(job)
        os.close(reader)


class Orphans(ScenarioTest):
    def start_trees(self, *options):
        job = self.start("--nproc-per-node=2", *options, self.script("tree.sh", TREE))
        self.assertTrue(until(lambda: len(job.alive()) >= 2 + 2 * (TREE_SIZE - 1)), job.alive())
        return job

    def test_guardian_killed(self):
        job = self.start_trees()
        os.kill(job.pid, signal.SIGKILL)
        self.assertEqual(job.end(), -signal.SIGKILL)
        self.assert_nothing_left(job)
        self.assertTrue(until(lambda: not os.listdir(self.path("tmp"))))

    def test_agent_killed(self):
        job = self.start_trees()
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.end(), 128 + signal.SIGKILL)
        self.assertIn("was ended by SIGKILL", job.err)
        self.assert_nothing_left(job)
        self.assert_tmp_empty()

    def test_worker_fails(self):
        self.script("w.sh", '[ $RANK = 1 ] && exit 3\n' + TREE)
        job = self.run_to_end("--nproc-per-node=2", "./w.sh")
        self.assertEqual(job.code, 1)
        self.assert_nothing_left(job)

    def test_worker_succeeds_and_leaves_children(self):
        self.script("w.sh", "setsid sleep 300 &\nsleep 301 &\nexit 0")
        job = self.run_to_end("./w.sh")
        self.assertEqual(job.code, 0)
        self.assert_nothing_left(job)

    def test_wrapper_shell(self):
        self.script("w.sh", 'bash -c "touch $CASE/up.$RANK; sleep 300" & wait')
        job = self.start("--nproc-per-node=2", "./w.sh")
        self.wait_for_files("up.0", "up.1")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assert_nothing_left(job)

    def test_thirty_kills_at_many_moments(self):
        self.script("tree.sh", TREE)
        for i in range(30):
            job = self.start("--nproc-per-node=2", "./tree.sh")
            # From before there is an agent to the full tree: the number of processes is the clock.
            wanted = (i * 2) % (2 + 2 * (TREE_SIZE - 1))
            self.assertTrue(until(lambda: len(job.alive()) > wanted), f"{len(job.alive())} processes, code {job.process.poll()}")
            victims = [job.pid] if i % 2 else (children(job.pid) or [job.pid])
            os.kill(victims[0], signal.SIGKILL)
            job.end()
            self.assert_nothing_left(job)
        self.assertTrue(until(lambda: not os.listdir(self.path("tmp"))))


if __name__ == "__main__":
    unittest.main()

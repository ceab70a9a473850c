"""Progress pages: what workers say reaches the report, however they end, and no page is left behind."""
import glob
import json
import os
import signal
import struct
import subprocess
import sys
import unittest

from harness import BIN, ScenarioTest, until

HERE = {"PYTHON_EXEC": sys.executable}
SHOW = 'open(os.path.join(os.environ["CASE"], "page." + os.environ["RANK"]), "w").write(os.environ["CPPRUN_PROGRESS_PAGE"])\n'
START = "import os, signal, sys, time\nimport cpprun_progress as progress\n" + SHOW
BY_ROOT = os.geteuid() == 0


def number(page, at, kind="I"):
    with open(page, "rb") as f:
        f.seek(at)
        return struct.unpack("=" + kind, f.read(struct.calcsize(kind)))[0]


class ProgressTest(ScenarioTest):
    def python(self, text, *options, env=None, **kw):
        self.write("w.py", START + text)
        return self.start(*options, "w.py", env={**HERE, **(env or {})}, **kw)

    def run_python(self, text, *options, env=None, **kw):
        job = self.python(text, *options, env=env, **kw)
        job.code = job.end()
        return job

    def cause(self, attempt=0):
        (run,) = os.listdir(self.path("logs"))
        return json.loads(self.read("logs", run, f"attempt_{attempt}", "failure.json"))["root_cause"]

    def page(self, rank=0):
        self.wait_for_files(f"page.{rank}")
        return until(lambda: self.read(f"page.{rank}"))

    def assert_pages_gone(self, page):
        self.assertTrue(page.endswith("_rank_0"), page)
        self.assertTrue(until(lambda: not os.path.exists(os.path.dirname(page))), os.path.dirname(page))


class Report(ProgressTest):
    def test_what_a_killed_worker_said_last(self):
        job = self.run_python(
            "progress.phase('evaluating')\nprogress.heartbeat()\nprogress.step(1200)\nprogress.collective(7)\n"
            "progress.message('shard\\n7 ä')\nprogress.section('forward')\nos.kill(os.getpid(), signal.SIGKILL)",
            "--log-dir=logs")
        self.assertEqual(job.code, 1)
        self.assertRegex(job.err, r"\n  progress  : step 1200, evaluating, section 'forward' for \d+\.\d s, collective 7, "
                                  r"last progress \d+\.\d s ago, last heartbeat \d+\.\d s ago, message 'shard 7 ä'\n")
        cause = self.cause()
        progress = cause["progress"]
        ages = {key: progress.pop(key) for key in list(progress) if key.endswith("_seconds")}
        self.assertEqual(progress, {"pid": cause["pid"], "step": 1200, "phase": "evaluating", "section": "forward",
                                    "collective": 7, "heartbeats": 1, "message": "shard 7 ä"})
        self.assertEqual(set(ages), {"phase_seconds", "section_seconds", "last_progress_seconds",
                                     "last_heartbeat_seconds", "message_seconds"})
        self.assertTrue(all(0 <= age < 60 for age in ages.values()), ages)
        self.assert_pages_gone(self.page())

    def test_age_is_that_at_the_workers_end(self):
        """Not that when the report is written, which is after the other workers' grace."""
        job = self.run_python("up = os.environ['CASE'] + '/up'\nif os.environ['RANK'] == '1':\n"
                              "    while not os.path.exists(up): time.sleep(0.01)\n"
                              "    progress.step(1)\n    os._exit(3)\n"
                              "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprogress.section('stubborn')\n"
                              "open(up, 'w').close()\nwhile True: time.sleep(300)",
                              "--nproc-per-node=2", "--log-dir=logs", "--shutdown-timeout=3")
        self.assertEqual(job.code, 1)
        (run,) = os.listdir(self.path("logs"))
        failures = json.loads(self.read("logs", run, "attempt_0", "failure.json"))["failures"]
        by_rank = {failure["global_rank"]: failure["progress"] for failure in failures}
        self.assertEqual(by_rank[0]["section"], "stubborn")
        ages = [by_rank[rank]["last_progress_seconds"] for rank in (0, 1)]
        self.assertGreater(ages[0] - ages[1], 2)  # the one who was given 3 s lived that much longer

    def test_a_worker_that_never_spoke(self):
        job = self.run_to_end("--log-dir=logs", "--no-python", "bash", "-c", "exit 3")
        self.assertEqual(job.code, 1)
        self.assertNotIn("progress  :", job.err)
        self.assertIsNone(self.cause()["progress"])

    def test_each_attempt_has_pages_of_its_own(self):
        job = self.run_python("again = os.environ['TORCHELASTIC_RESTART_COUNT'] == '1'\n"
                              "print(os.environ['CPPRUN_PROGRESS_PAGE'], os.listdir(os.path.dirname(os.environ['CPPRUN_PROGRESS_PAGE'])))\n"
                              "if not again: progress.step(5)\nsys.exit(3)", "--max-restarts=1", "--log-dir=logs")
        self.assertEqual(job.code, 1)
        pages = [line.split()[0] for line in job.out.splitlines()]
        self.assertEqual([os.path.basename(page) for page in pages], ["attempt_0_rank_0", "attempt_1_rank_0"])
        self.assertNotIn("attempt_0", job.out.splitlines()[1].split(" ", 1)[1])
        self.assertEqual((self.cause(0)["progress"]["step"], self.cause(1)["progress"]["step"]), (5, None))


class Pages(ProgressTest):
    def test_who_may_see_them(self):
        job = self.run_python("page = os.environ['CPPRUN_PROGRESS_PAGE']\n"
                              "print(*(oct(os.stat(path).st_mode & 0o777) for path in (os.path.dirname(page), page)), os.stat(page).st_size)")
        self.assertEqual(job.out, "0o700 0o600 4096\n", job.err)

    def test_gone_however_the_job_ends(self):
        for name, worker, end in (("success", "", None), ("failure", "exit 3", None),
                                  ("signal", "sleep 300", lambda job: job.signal(signal.SIGTERM)),
                                  ("guardian killed", "sleep 300", lambda job: os.kill(job.pid, signal.SIGKILL)),
                                  ("agent killed", "sleep 300", lambda job: os.kill(job.agent(), signal.SIGKILL))):
            with self.subTest(name):
                show = self.path("page.0")
                if os.path.exists(show):
                    os.remove(show)
                self.script("w.sh", f'touch "$CPPRUN_PROGRESS_PAGE.stacks"; echo -n "$CPPRUN_PROGRESS_PAGE" >$CASE/page; mv $CASE/page $CASE/page.0\n{worker}')
                job = self.start("--nproc-per-node=1", "./w.sh")
                page = self.page()
                if end:
                    self.assertTrue(os.path.exists(page))
                    end(job)
                job.end()
                self.assert_pages_gone(page)

    def test_a_worker_that_spoils_its_page(self):
        for spoil in (": >$CPPRUN_PROGRESS_PAGE", "rm $CPPRUN_PROGRESS_PAGE", "rm -r ${CPPRUN_PROGRESS_PAGE%/*}",
                      "head -c 4096 /dev/urandom >$CPPRUN_PROGRESS_PAGE", "truncate -s 1G $CPPRUN_PROGRESS_PAGE",
                      "rm $CPPRUN_PROGRESS_PAGE; ln -s /etc/passwd $CPPRUN_PROGRESS_PAGE"):
            with self.subTest(spoil):
                job = self.run_to_end("--log-dir=" + spoil.split()[0] + str(len(spoil)), "--no-python", "bash", "-c", spoil + "; exit 3")
                self.assertEqual(job.code, 1, job.err)
                self.assertIn("exitcode  : 3", job.err)

    def test_garbage_after_a_good_head(self):
        """Lengths, times and numbers from nowhere, and the sequences by which a terminal is told what to do."""
        job = self.run_python("import struct\nrandom = os.urandom(4096)\npage = os.environ['CPPRUN_PROGRESS_PAGE']\n"
                              "head = open(page, 'rb').read(12)\nopen(page, 'r+b').write(head + random[12:])\nsys.exit(3)",
                              "--log-dir=logs")
        self.assertEqual(job.code, 1, job.err)
        self.assertIn("  progress  : ", job.err)
        self.assertNotRegex(job.err, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertIsNotNone(self.cause()["progress"])

    def test_pages_of_an_outer_job_are_not_an_inner_ones(self):
        self.script("inner.sh", 'echo "inner $CPPRUN_PROGRESS_PAGE"')
        self.script("outer.sh", f'echo "outer $CPPRUN_PROGRESS_PAGE"; {BIN}/cpprun $CASE/inner.sh; echo "$PYTHONPATH"')
        job = self.run_to_end("./outer.sh")
        self.assertEqual(job.code, 0, job.err)
        outer, inner, path = job.out.splitlines()
        self.assertNotEqual(os.path.dirname(outer.split()[1]), os.path.dirname(inner.split()[1]))
        self.assertEqual(path.count("cpprun/python"), 1)

    @unittest.skipUnless(BY_ROOT, "needs a mount namespace")
    def test_no_room_is_no_failure(self):
        mount = "mount -t tmpfs -o {} none /dev/shm && exec \"$@\""
        self.write("w.py", START + "progress.step(4)\nsys.exit(3 if os.environ['RANK'] == '0' else 0)")
        for options, found in (("size=4k", None), ("ro", 4)):
            with self.subTest(options):
                job = self.run_to_end("--nproc-per-node=2", f"--log-dir=logs-{options}", "w.py", env=HERE,
                                      wrap=("unshare", "-m", "sh", "-c", mount.format(options), "sh"))
                self.assertEqual(job.code, 1, job.err)
                (report,) = glob.glob(self.path(f"logs-{options}", "*", "attempt_0", "failure.json"))
                with open(report) as f:
                    progress = json.load(f)["root_cause"]["progress"]
                self.assertEqual(progress and progress["step"], found)
                self.assertEqual(job.err.count("workers cannot tell how far they are"), 1 if found is None else 0)
        self.assert_tmp_empty()  # where the pages lay when /dev/shm could not be written


class PythonModule(ProgressTest):
    def test_found_behind_the_users_own_folders(self):
        self.write("w.py", "import os, sys\nprint(os.environ['PYTHONPATH'])")
        job = self.run_to_end("w.py", env={**HERE, "PYTHONPATH": "/mine:/other"})
        self.assertRegex(job.out, r"^/mine:/other:/.*/share/cpprun/python\n$")
        self.write("cpprun_progress.py", "def step(n): print('mine', n)\n")
        self.write("w.py", "import cpprun_progress\ncpprun_progress.step(3)")
        job = self.run_to_end("w.py", env={**HERE, "PYTHONPATH": self.folder})
        self.assertEqual(job.out, "mine 3\n")

    def test_without_cpprun_nothing_happens(self):
        text = ("import cpprun_progress as p\np.step(1); p.heartbeat(); p.message('x'); p.collective(2)\n"
                "with p.phase('training'), p.section('s'): pass\n"
                "try: p.phase('sleeping')\nexcept ValueError as e: print(e)\n")
        for variable in ({}, {"CPPRUN_PROGRESS_PAGE": ""}, {"CPPRUN_PROGRESS_PAGE": "/no/such"}, {"CPPRUN_PROGRESS_PAGE": "/dev/null"}):
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                                  env={"PYTHONPATH": os.path.join(os.path.dirname(BIN), "share/cpprun/python"), **variable})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("'sleeping' is no phase of a worker", done.stdout)

    def test_whatever_a_script_says_is_taken(self):
        job = self.run_python("progress.step(1.5)\nprogress.step(2 ** 70)\nprogress.collective('x')\n"
                              "progress.step(float('nan'))\nprogress.step(True)\nprogress.section(None)\n"
                              "progress.message(b'bytes')\nprogress.message(3)\nprogress.step(7.9)\n"
                              "os.kill(os.getpid(), 9)", "--log-dir=logs")
        self.assertEqual(job.code, 1)
        progress = self.cause()["progress"]
        self.assertEqual((progress["step"], progress["section"], progress["message"]), (7, "None", "3"))

    def test_scopes_restore_what_was_before(self):
        job = self.run_python("progress.phase('training')\nwith progress.section('epoch'):\n"
                              "    with progress.section('forward'), progress.phase('evaluating'): pass\n"
                              "    os.kill(os.getpid(), 9)", "--log-dir=logs")
        self.assertEqual(job.code, 1)
        progress = self.cause()["progress"]
        self.assertEqual((progress["section"], progress["phase"]), ("epoch", "training"))

    def test_processes_below_a_worker_are_silent(self):
        job = self.run_python(
            "import subprocess\nprogress.step(1)\nsay = 'import cpprun_progress as p; p.step(99); p.message(\"child\")'\n"
            "if os.fork() == 0:\n    progress.step(99)\n    progress.message('child')\n    os._exit(0)\nos.wait()\n"
            "subprocess.run([sys.executable, '-c', say], check=True)\nsys.exit(3)", "--log-dir=logs")
        self.assertEqual(job.code, 1)
        progress = self.cause()["progress"]
        self.assertEqual((progress["step"], progress["message"]), (1, None), job.err)

    def test_the_next_program_of_a_wrapper_takes_over(self):
        self.write("say.py", "import sys, cpprun_progress as p\np.step(int(sys.argv[1]))\n")
        self.script("w.sh", "$PYTHON_EXEC say.py 5; $PYTHON_EXEC say.py 6; exit 3")
        job = self.run_to_end("--log-dir=logs", "./w.sh", env=HERE)
        self.assertEqual(job.code, 1)
        self.assertEqual(self.cause()["progress"]["step"], 6)

    def test_stacks_by_signal(self):
        job = self.python("def deep(): time.sleep(300)\ndeep()")
        page = self.page()
        wanted = until(lambda: number(page, 20))
        self.assertGreaterEqual(wanted, signal.SIGRTMIN)
        os.kill(number(page, 12), wanted)

        def stacks():
            with open(page + ".stacks") as f:
                return f.read()
        self.assertTrue(until(lambda: " in deep" in stacks()), stacks())
        self.assertEqual(os.stat(page + ".stacks").st_mode & 0o777, 0o600)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        self.assert_pages_gone(page)

    def test_a_signal_of_the_users_is_left_to_him(self):
        job = self.run_python("print(progress._halves[5])\n", env={"PYTHONSTARTUP": ""})
        free = int(job.out)
        self.write("w.py", "import signal\nsignal.signal(" + str(free) + ", lambda *a: None)\n" + START +
                   "print(progress._halves[5])\n")
        job = self.run_to_end("w.py", env=HERE)
        self.assertEqual(int(job.out), free - 1)


if __name__ == "__main__":
    unittest.main()

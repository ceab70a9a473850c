"""cpprunctl and the control socket: running jobs looked at from outside."""
import contextlib
import glob
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import unittest

from harness import BIN, LIMIT, ScenarioTest, free_port, until

CPPRUNCTL = os.path.join(BIN, "cpprunctl")
LIST = f"/tmp/cpprun-{os.geteuid()}"
NOBODY = 65534

# Says that it is up, and works until it is told to stop.
WORKER = "touch $CASE/up.$RANK; exec sleep 300"


def entry(job):
    return os.path.join(LIST, str(job.pid))


def connected(client, path):
    """False where the agent has as many waiting as it may."""
    try:
        client.connect(path)
        return True
    except BlockingIOError:
        return False


def talk(path, text):
    """What comes back for `text`, to the end of the connection."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT)
        client.connect(path)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(text)
        reply = b""
        with contextlib.suppress(ConnectionResetError):  # the end, where not all was read
            while chunk := client.recv(65536):
                reply += chunk
        return reply


class ControlTest(ScenarioTest):
    def ctl(self, *arguments, code=0):
        done = subprocess.run([CPPRUNCTL, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT,
                              cwd=self.folder)
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        self.assertEqual(done.stderr.count("\n"), 1 if code else 0, done.stderr)
        return done.stderr if code else done.stdout

    def status(self, job):
        (status,) = json.loads(self.ctl("status", job, "--json"))
        return status

    def running(self, *arguments, workers=1, **options):
        """A job whose workers are up."""
        self.script("w.sh", WORKER)
        for rank in range(workers):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(f"up.{rank}"))
        job = self.start("--nproc-per-node", str(workers), *arguments, "./w.sh", **options)
        self.wait_for_files(*(f"up.{rank}" for rank in range(workers)))
        return job

    def stop(self, *jobs):
        for job in jobs:
            job.signal(signal.SIGTERM)
        for job in jobs:
            self.assertEqual(job.end(), 128 + signal.SIGTERM, job.err)


class Status(ControlTest):
    def test_of_a_job_by_pid_run_id_and_folder(self):
        job = self.running("--log-dir=logs", "--rdzv-id=run-x", "--max-restarts=3", workers=2)
        (folder,) = glob.glob(self.path("logs", "*"))
        status = self.status(job.pid)
        for name in (f"run-x", folder, os.path.relpath(folder, self.folder), os.path.join(folder, "control.sock"),
                     "logs", self.path("logs"), os.path.join(folder, "attempt_0")):
            self.assertEqual(self.status(name)["pid"], job.pid, name)
        self.assertIn("rank 0 (local rank 0", self.ctl("stacks", "logs"))
        self.assertEqual((status["run_id"], status["state"], status["pid"], status["agent_pid"], status["folder"]),
                         ("run-x", "running", job.pid, job.agent(), folder))
        self.assertEqual([status[key] for key in ("attempt", "restarts", "max_restarts", "group_rank", "group_world_size")],
                         [0, 0, 3, 0, 1])
        self.assertEqual([(w["global_rank"], w["local_rank"], w["state"], w["exit_code"]) for w in status["workers"]],
                         [(0, 0, "running", None), (1, 1, "running", None)])
        self.assertEqual(sorted(w["pid"] for w in status["workers"]),
                         sorted(pid for pid in job.alive() if pid not in (job.pid, job.agent())))
        text = self.ctl("status", job.pid)
        for worker in status["workers"]:
            self.assertIn(f" {worker['pid']} ", text)
        self.stop(job)

    def test_of_workers_that_ended_or_are_stopped(self):
        self.script("w.sh", "[ $RANK = 0 ] && exit 0; touch $CASE/up; exec sleep 300")
        job = self.start("--nproc-per-node=2", "./w.sh")
        self.wait_for_files("up")

        def states():
            return [(w["state"], w["exit_code"]) for w in self.status(job.pid)["workers"]]

        self.assertTrue(until(lambda: states() == [("ended", 0), ("running", None)]), states())
        sleeper = self.status(job.pid)["workers"][1]["pid"]
        os.kill(sleeper, signal.SIGSTOP)
        self.assertTrue(until(lambda: states() == [("ended", 0), ("stopped", None)]), states())
        os.kill(sleeper, signal.SIGCONT)
        self.stop(job)

    def test_shows_the_workers_progress(self):
        self.write("w.py", "import os, time, cpprun_progress\ncpprun_progress.step(12)\n"
                           "open('up', 'w').close()\ntime.sleep(300)\n")
        job = self.start("--nproc-per-node=1", "w.py", env={"PYTHON_EXEC": sys.executable})
        self.wait_for_files("up")
        (worker,) = self.status(job.pid)["workers"]
        self.assertEqual(worker["progress"]["step"], 12)
        self.assertIn("step=12", self.ctl("status", job.pid))
        self.stop(job)

    def test_tells_of_restarts(self):
        self.script("w.sh", "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; touch $CASE/up; exec sleep 300")
        job = self.start("--max-restarts=1", "./w.sh")
        self.wait_for_files("up")
        status = self.status(job.pid)
        self.assertEqual((status["attempt"], status["restarts"], status["state"]), (1, 1, "running"))
        self.stop(job)

    def test_of_an_agent_that_waits_for_other_nodes(self):
        self.script("w.sh", WORKER)
        job = self.start("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "./w.sh")
        self.assertTrue(until(lambda: os.path.exists(os.path.join(entry(job), "control.sock"))))
        status = self.status(job.pid)
        self.assertEqual((status["state"], status["attempt"], status["workers"]), ("rendezvous", None, []))
        self.assertRegex(status["rendezvous"], r"^static at 127\.0\.0\.1:\d+$")
        self.stop(job)

    def test_of_workers_that_are_being_stopped(self):
        self.script("w.sh", "trap : TERM; touch $CASE/up; while :; do read x <$CASE/gate; done")
        os.mkfifo(self.path("gate"))
        job = self.start("./w.sh")
        self.wait_for_files("up")
        job.signal(signal.SIGTERM)
        self.assertTrue(until(lambda: self.status(job.pid)["state"] == "stopping"))
        job.signal(signal.SIGINT)
        job.end()

    def test_lists_all_jobs(self):
        jobs = [self.running("--rdzv-id=same"), self.running("--rdzv-id=same", "--log-dir=/dev/null")]
        listed = {job.get("pid"): job for job in json.loads(self.ctl("status", "--json"))}
        for job in jobs:
            self.assertEqual(listed[job.pid]["run_id"], "same")
            self.assertRegex(self.ctl("status"), rf"(?m)^{job.pid} +same +running +0 of 1 ")
        pids = ", ".join(str(pid) for pid in sorted(job.pid for job in jobs))
        self.assertIn(f"several jobs have the run id 'same'; name one by its pid: {pids}",
                      self.ctl("stacks", "same", code=3))
        self.assertEqual(len(json.loads(self.ctl("status", "same", "--json"))), 2)
        self.stop(*jobs)
        left = {job.get("pid") for job in json.loads(self.ctl("status", "--json"))}
        self.assertFalse(left & {job.pid for job in jobs})

    def test_of_a_job_without_a_folder(self):
        job = self.running("--log-dir=/dev/null")
        self.assertIsNone(self.status(job.pid)["folder"])
        self.assertEqual(os.listdir(self.path("tmp")), [])
        self.stop(job)
        self.assertFalse(os.path.lexists(entry(job)))

    def test_of_a_folder_in_which_several_jobs_keep_their_logs(self):
        jobs = [self.running("--log-dir=logs", "--rdzv-id", run) for run in ("a", "b")]
        self.assertEqual([status["run_id"] for status in json.loads(self.ctl("status", "logs", "--json"))], ["a", "b"])
        folders = ", ".join(sorted(glob.glob(os.path.join("logs", "*"), root_dir=self.folder)))
        self.assertIn("several jobs keep their logs there; name one by its folder: " + folders,
                      self.ctl("stacks", "logs", code=3))
        self.stop(*jobs)

    def test_of_a_folder_whose_path_is_too_long_for_a_socket(self):
        deep = os.path.join(*["d" * 100] * 4)
        job = self.running("--log-dir", deep)
        (folder,) = glob.glob(self.path(deep, "*"))
        for name in (job.pid, folder):
            self.assertEqual(self.status(name)["pid"], job.pid)
        self.stop(job)
        self.assertEqual([name for name in os.listdir(folder) if name.endswith(".sock")], [])

    def test_an_agent_that_is_stopped_is_listed_as_such(self):
        job = self.running("--rdzv-id=asleep")
        os.kill(job.agent(), signal.SIGSTOP)
        self.assertRegex(self.ctl("status", "asleep", code=3), rf"one that does not answer: (\d+, )*{job.pid}\b")
        self.assertRegex(self.ctl("status"), rf"(?m)^{job.pid} +- .*did not answer within 2 s")
        os.kill(job.agent(), signal.SIGCONT)
        self.stop(job)


class Usage(ControlTest):
    def test_wrong_usage_is_one_sentence(self):
        for arguments, sentence in (
                ([], "say what to look at"), (["stauts"], "unknown command stauts; did you mean status?"),
                (["explain", "--json", "."], "explain has no option --json;"),
                (["status", "--jsn"], "unknown option --jsn; did you mean --json?"),
                (["status", "a", "b"], "one job at a time"), (["--quiet"], "unknown option --quiet")):
            self.assertIn(sentence, self.ctl(*arguments, code=2), arguments)

    def test_no_such_job(self):
        self.assertIn("no job of yours on this host has the pid or run id 'no-such-run'",
                      self.ctl("status", "no-such-run", code=3))
        self.assertIn("no cpprun of this host listens at " + self.path("control.sock"),
                      self.ctl("status", self.folder, code=3))
        self.assertIn("no cpprun of this host", self.ctl("stacks", "./nowhere", code=3))

    def test_help_and_version(self):
        self.assertIn("stacks", self.ctl("--help"))
        self.assertRegex(self.ctl("--version"), r"^cpprunctl \d+\.\d+\.\d+\n$")


class Explain(ControlTest):
    def test_the_last_line_of_a_failure_says_how(self):
        job = self.run_to_end("--log-dir=my logs", "--no-python", "bash", "-c", "exit 3")
        self.assertEqual(job.code, 1)
        said = re.search(r"the logs are in (.*); `cpprunctl (.*)` explains the failure\n$", job.err)
        self.assertTrue(said, job.err)
        self.assertIn("Root cause", self.ctl(*shlex.split(said[2])))
        self.assertEqual(shlex.split(said[2])[1], said[1])
        job = self.run_to_end("--log-dir=/dev/null", "--no-python", "bash", "-c", "exit 3")
        self.assertNotIn("cpprunctl explain", job.err)

    def test_the_page_tells_of_progress_in_a_sentence(self):
        self.write("w.py", "import sys, cpprun_progress\ncpprun_progress.step(12)\nsys.exit(3)")
        job = self.run_to_end("--log-dir=logs", "w.py", env={"PYTHON_EXEC": sys.executable})
        self.assertEqual(job.code, 1)
        self.assertRegex(self.ctl("explain", "logs"), r"\nProgress\n-+\n  0: step 12, starting, last progress ")


class Socket(ControlTest):
    def test_only_its_user_may_open_it(self):
        job = self.running()
        path = os.path.join(entry(job), "control.sock")
        for name, mode in ((path, 0o600), (LIST, 0o700), (os.path.realpath(entry(job)), 0o700)):
            self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), mode, name)
        self.stop(job)

    @unittest.skipUnless(os.geteuid() == 0, "takes another user's part, which only root can")
    def test_another_user_gets_no_answer_even_where_the_file_lets_him(self):
        job = self.running()
        folder = os.path.realpath(entry(job))
        path = os.path.join(folder, "control.sock")
        for name in (self.folder, self.path("tmp"), folder):
            os.chmod(name, 0o755)
        os.chmod(path, 0o666)
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); " \
               "s.sendall(b'{\"request\":\"status\"}\\n'); print(s.recv(100))"
        done = subprocess.run(["python3", "-c", code], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True,
                              text=True, timeout=LIMIT)
        # Closed at once: before it has sent anything, or after.
        self.assertTrue(done.stdout == "b''\n" or "BrokenPipe" in done.stderr or "ConnectionReset" in done.stderr,
                        done)
        self.assertEqual(self.status(job.pid)["state"], "running")
        self.stop(job)

    def test_garbage_slow_and_many_clients_disturb_nobody(self):
        job = self.running()
        path = os.path.join(entry(job), "control.sock")
        with contextlib.ExitStack() as stack:
            for number in range(100):
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.settimeout(LIMIT)
                self.assertTrue(until(lambda c=client: connected(c, path)))
                client.sendall(b"{\"requ"[:number % 8])
            self.assertEqual(self.status(job.pid)["state"], "running")
        for garbage in (b"\n", b"\0" * 9000, b"[" * 4000 + b"\n", b"{\"request\":\"status\"", os.urandom(4096) + b"\n"):
            self.assertIn(b'"error":' if garbage.endswith((b"\n", b"\0")) else b"", talk(path, garbage), garbage)
        self.assertEqual(self.status(job.pid)["state"], "running")
        self.stop(job)

    def test_nothing_is_left_whatever_the_end(self):
        self.script("good.sh", "exit 0")
        self.script("bad.sh", "exit 3")
        for logs in ((), ("--log-dir=logs",), ("--log-dir=/dev/null",)):
            ends = []
            for script, code in (("good.sh", 0), ("bad.sh", 1)):
                ends.append(self.run_to_end(*logs, "./" + script))
                self.assertEqual(ends[-1].code, code)
            for victim in ("agent", "guardian"):
                job = self.running(*logs)
                agent = job.agent()
                os.kill(agent if victim == "agent" else job.pid, signal.SIGKILL)
                job.end()
                self.assert_nothing_left(job)
                ends.append(job)
            for job in ends:
                self.assertFalse(os.path.lexists(entry(job)), (logs, job.process.args))
            found = [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
            self.assertEqual([name for name in found if name.endswith(".sock")], [])

    def test_what_a_job_left_that_was_killed_as_a_whole_is_removed(self):
        self.script("w.sh", "echo $CPPRUN_PROGRESS_PAGE > $CASE/page; touch $CASE/up; exec sleep 300")
        job = self.start("--log-dir=logs", "./w.sh")
        self.wait_for_files("up")
        pages = os.path.dirname(self.read("page").strip())
        agent = job.agent()
        self.ctl("status")
        self.assertTrue(os.path.isdir(pages))  # while the job lives
        os.kill(job.pid, signal.SIGSTOP)  # so that it cannot clean up
        os.kill(agent, signal.SIGKILL)
        os.kill(job.pid, signal.SIGKILL)
        job.end()
        self.assertTrue(os.path.lexists(entry(job)))
        self.assertNotIn(job.pid, [other.get("pid") for other in json.loads(self.ctl("status", "--json"))])
        self.assertFalse(os.path.lexists(entry(job)))
        self.assertEqual(glob.glob(self.path("logs", "*", "control.sock")), [])
        self.assertFalse(os.path.exists(pages))


class Stacks(ControlTest):
    def test_of_one_node(self):
        job = self.running(workers=2)
        workers = self.status(job.pid)["workers"]
        text = self.ctl("stacks", job.pid)
        for worker in workers:
            self.assertIn(f"rank {worker['global_rank']} (local rank {worker['local_rank']}, pid {worker['pid']})", text)
        self.assertNotIn("node 0", text)
        (node,) = json.loads(self.ctl("stacks", job.pid, "--json"))["nodes"]
        self.assertEqual(node["group_rank"], 0)
        self.assertEqual(self.status(job.pid)["state"], "running")
        self.stop(job)

    def test_of_a_wrapped_python_script(self):
        self.write("w.py", "import os, sys, cpprun_progress\ndef waits_here():\n"
                           "    open(os.environ['CASE'] + '/up', 'w').close()\n    sys.stdin.read()\nwaits_here()")
        self.script("w.sh", f"{sys.executable} w.py; exit $?")
        job = self.start("./w.sh", stdin=subprocess.PIPE)
        self.wait_for_files("up")
        shell = self.status(job.pid)["workers"][0]["pid"]
        text = until(lambda: (text := self.ctl("stacks", job.pid)) and "waits_here at" in text and text)
        self.assertTrue(text)
        self.assertIn(f"it runs below the worker's w.sh (pid {shell})", text)
        self.stop(job)

    def test_of_a_python_script_that_does_not_import_the_module(self):
        self.write("w.py", "import os, time\nopen(os.environ['CASE'] + '/up', 'w').close()\ntime.sleep(300)")
        os.mkdir(self.path("empty"))
        job = self.start("w.py", env={"PYTHON_EXEC": sys.executable, "PATH": self.path("empty")})
        self.wait_for_files("up")
        self.assertTrue(self.ctl("stacks", job.pid).startswith("Python frames are missing: import cpprun_progress"))
        self.stop(job)

    def two_nodes(self, *options):
        self.script("w.sh", WORKER)
        port = free_port()
        nodes = [self.start("--nnodes=2", "--node-rank", str(rank), "--master-addr=127.0.0.1", f"--master-port={port}",
                            "--log-dir", f"logs{rank}", *options, "./w.sh") for rank in (0, 1)]
        self.wait_for_files("up.0", "up.1")
        return nodes

    def gather(self, nodes, asked):
        pids = [self.status(node.pid)["workers"][0]["pid"] for node in nodes]
        stacks = json.loads(self.ctl("stacks", nodes[asked].pid, "--json"))
        self.assertEqual(stacks["missing"], [])
        for rank, node in enumerate(stacks["nodes"]):
            self.assertEqual(node["group_rank"], rank)
            (stacks_of,) = node["evidence"]["stacks"]
            self.assertEqual((stacks_of["rank"], stacks_of["pid"]), (rank, pids[rank]))

    def test_of_two_nodes_are_gathered_and_kept(self):
        nodes = self.two_nodes()
        self.gather(nodes, asked=1)
        for asked in (0, 1):  # node 0 keeps what node 1 asked for, too
            (folder,) = glob.glob(self.path(f"logs{asked}", "*", "attempt_0"))
            kept = os.path.join(folder, "stacks.txt")
            self.assertTrue(until(lambda: os.path.exists(kept)))
            text = self.read(kept)
            self.assertTrue("rank 0" in text and "rank 1" in text, text)
            self.assertTrue(os.path.exists(os.path.join(folder, "0", "stacks.json")))
        self.gather(nodes, asked=0)
        self.stop(nodes[0])
        nodes[1].end()

    def test_through_proxies(self):
        self.write("secret", "s" * 40, mode=0o600)
        nodes = self.two_nodes("--secret-file=secret")
        self.gather(nodes, asked=1)
        self.stop(nodes[0])
        nodes[1].end()

    def test_a_node_that_does_not_answer_is_named(self):
        nodes = self.two_nodes("--rdzv-conf=keep_alive_max_attempt=60")
        agent = nodes[0].agent()
        os.kill(agent, signal.SIGSTOP)
        stacks = json.loads(self.ctl("stacks", nodes[1].pid, "--json"))
        self.assertEqual((stacks["missing"], [node["group_rank"] for node in stacks["nodes"]]), ([0], [1]))
        os.kill(agent, signal.SIGCONT)
        self.stop(nodes[0])
        nodes[1].end()

    def test_before_anybody_asks_workers_find_their_store_empty(self):
        self.write("w.py", """
import os, socket, struct
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
s.sendall(b"\\x00" + struct.pack("<I", 0x3C85F7CE) + b"\\x07")
print("keys", struct.unpack("<q", s.recv(8))[0], flush=True)
open(os.environ["CASE"] + "/asked." + os.environ["RANK"], "w")
while not os.path.exists(os.environ["CASE"] + "/go"): pass
""".replace("pass", "__import__('time').sleep(0.02)"))
        port = free_port()
        nodes = [self.start("--nnodes=2", "--node-rank", str(rank), "--master-addr=127.0.0.1", f"--master-port={port}",
                            "w.py") for rank in (0, 1)]
        self.wait_for_files("asked.0", "asked.1")
        self.write("go", "")
        for node in nodes:
            self.assertEqual(node.end(), 0, node.err)
            self.assertEqual(node.out, "keys 0\n")

    def test_after_a_restart(self):
        self.script("w.sh", """
            [ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ] && exit 3
            [ $TORCHELASTIC_RESTART_COUNT = 1 ] && touch $CASE/up.$RANK
            exec sleep 300""")
        port = free_port()
        nodes = [self.start("--nnodes=2", "--node-rank", str(rank), "--master-addr=127.0.0.1", f"--master-port={port}",
                            "--max-restarts=1", "./w.sh") for rank in (0, 1)]
        self.wait_for_files("up.0", "up.1")
        self.gather(nodes, asked=1)
        self.stop(nodes[0])
        nodes[1].end()


if __name__ == "__main__":
    unittest.main()

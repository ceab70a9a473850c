"""The fault corpus: failures of every kind, injected into real jobs; each must end with the right root cause and class.

Hangs have tests of their own.
"""
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import unittest

from daemon import Daemon
from elastic_job import HostsTest
from fault_corpus import CLOSED, FAULTS, raised
from harness import ScenarioTest, free_port, until


class CorpusTest(ScenarioTest):
    def report(self, logs, attempt=0):
        """The failure.json of that log folder's only run."""
        found = glob.glob(self.path(logs, "*", f"attempt_{attempt}", "failure.json"))
        self.assertEqual(len(found), 1, f"{logs}: {found}")
        with open(found[0]) as f:
            return json.load(f)

    def cause(self, logs, attempt=0):
        cause = self.report(logs, attempt)["root_cause"]
        self.assertTrue(cause["evidence"] and all(cause["evidence"]), cause)
        self.assertTrue(cause["advice"], cause)
        self.assertTrue(0 < cause["confidence"] <= 1, cause)
        return cause

    def assert_cause(self, logs, rank, cls):
        cause = self.cause(logs)
        self.assertEqual((cause["global_rank"], cause["class"]), (rank, cls), cause)
        return cause


class Corpus(CorpusTest):
    """Faults of one node's workers."""

    def setUp(self):
        super().setUp()
        self.write("wrong_interpreter", "#!/no/such/interpreter\n", 0o755)
        self.write("broken_program", "\x7fELF but not really", 0o755)
        with open("/bin/true", "rb") as f:
            program = f.read()
        self.assertIn(b"libc.so.6\0", program)
        with open(self.path("needs_more"), "wb") as f:
            f.write(program.replace(b"libc.so.6\0", b"libq.so.6\0"))
        os.chmod(self.path("needs_more"), 0o755)

    def inject(self, fault, taken):
        if fault.options:
            program = (self.write(f"{fault.name}.py", fault.script),)
        else:
            program = fault.program or (self.script(f"{fault.name}.sh", fault.script),)
        job = self.run_to_end(f"--nproc-per-node={fault.workers}", f"--log-dir=logs.{fault.name}", *fault.options,
                              *program, env={"PY": sys.executable, "PYTHON_EXEC": sys.executable, "NAME": fault.name,
                                             "TAKEN": str(taken)})
        self.assertEqual(job.code, 1, job.err)
        cause = self.cause(f"logs.{fault.name}")
        self.assertIn(f"  cause     : {cause['class']}: {cause['evidence'][0]}\n", job.err)
        self.assertIn(f"  advice    : {cause['advice']}\n", job.err)
        self.assert_nothing_left(job)
        return cause

    def test_corpus(self):
        wrong = []
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            for fault in FAULTS:
                cause = self.inject(fault, server.getsockname()[1])
                if (cause["global_rank"], cause["class"]) != (fault.rank, fault.cls):
                    wrong.append(f"{fault.name}: {(fault.rank, fault.cls)} is wanted: {json.dumps(cause, indent=1)}")
        print(f"fault corpus: {len(FAULTS) - len(wrong)} of {len(FAULTS)} right")
        self.assertEqual(wrong, [], "\n".join(wrong))


class FromOutside(CorpusTest):
    """What others do to a job's processes and to what they need."""

    def start_two(self, logs="logs"):
        self.script("w.sh", "echo $$ > $CASE/pid.$RANK.new; mv $CASE/pid.$RANK.new $CASE/pid.$RANK; exec sleep 300")
        job = self.start("--nproc-per-node=2", f"--log-dir={logs}", "./w.sh")
        self.wait_for_files("pid.0", "pid.1")
        return job

    def test_a_worker_is_killed(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(signal=number.name):
                for name in ("pid.0", "pid.1"):
                    if os.path.exists(self.path(name)):
                        os.remove(self.path(name))
                job = self.start_two(f"logs.{number.name}")
                os.kill(int(self.read("pid.1")), number)
                self.assertEqual(job.end(), 1)
                cause = self.assert_cause(f"logs.{number.name}", 1, "killed_externally")
                self.assertIn("which cpprun did not send", cause["evidence"][0])

    def test_the_agent_is_killed(self):
        job = self.start_two()
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.end(), 128 + signal.SIGKILL)
        cause = self.assert_cause("logs", None, "killed_externally")
        self.assertRegex(cause["message"], r"^cpprun's agent \(pid \d+\) was ended by SIGKILL")

    def test_out_of_memory_in_a_cgroup(self):
        # Enough that the worker is by far the largest when it is full, whatever tools cpprun itself is built with.
        group = memory_group(self, 1024 * 2**20)
        self.write("w.py", "import os, time\nif os.environ['RANK'] == '1':\n  kept = []\n"
                           "  while True: kept.append(bytearray(b'x' * 2**20))\ntime.sleep(300)\n")
        job = self.run_to_end("--nproc-per-node=2", "--log-dir=logs", "w.py", env={"PYTHON_EXEC": sys.executable},
                              wrap=("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"))
        self.assertEqual(job.code, 1, job.err)
        cause = self.assert_cause("logs", 1, "out_of_memory")
        self.assertEqual(cause["signal"], "SIGKILL")
        self.assertIn("most memory that it used: ", cause["evidence"][-1])

    def test_a_file_system_is_full(self):
        """A real one, whose fullness is evidence by itself."""
        os.mkdir(self.path("disk"))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.path("disk")], capture_output=True)
        if done.returncode != 0:
            self.skipTest(f"no file system can be mounted: {done.stderr.decode()}")
        self.addCleanup(subprocess.run, ["umount", self.path("disk")], check=True)
        self.write("w.py", "import os, sys\nos.chdir('disk')\n"
                           "try:\n  open('checkpoint', 'wb').write(bytes(2**22))\n"
                           "except OSError:\n  sys.exit('PytorchStreamWriter failed writing file data/0: file write failed')\n")
        job = self.run_to_end("--log-dir=logs", "w.py", env={"PYTHON_EXEC": sys.executable, "TMPDIR": self.path("disk")})
        self.assertEqual(job.code, 1, job.err)
        cause = self.assert_cause("logs", 0, "disk_full")
        self.assertIn(f"no space left at {self.path('disk')}", cause["evidence"][0])

    def test_ones_own_rules(self):
        self.write("rules.json", json.dumps({"rules": [{
            "name": "licence", "class": "timeout", "when": {"text": "no licence*free"}, "evidence": "${line}",
            "advice": "Ask for another licence."}]}))
        job = self.run_to_end("--log-dir=logs", "--verdict-rules=rules.json", "--no-python", "bash", "-c",
                              "echo no licence is free >&2; exit 3")
        self.assertEqual(job.code, 1)
        self.assertEqual(self.assert_cause("logs", 0, "timeout")["advice"], "Ask for another licence.")
        self.write("rules.json", '{"rules": [{"name": "licence", "class": "timeouts", "when": {}}]}')
        job = self.run_to_end("--log-dir=logs2", "--verdict-rules=rules.json", "--no-python", "true")
        self.assertEqual(job.code, 2)
        self.assertIn("--verdict-rules: rules.json, rule 1 ('licence'): 'class' is 'timeouts'", job.err)
        self.assertFalse(os.path.exists(self.path("logs2")))


class PostMortem(CorpusTest):
    def test_a_page_and_its_json(self):
        self.script("w.sh", "[ $RANK != 2 ] || until [ -e $CASE/up.0 ] && [ -e $CASE/up.1 ]; do sleep 0.01; done\n"
                            "[ $RANK != 2 ] || { echo out of batches >&2; exit 7; }\n"
                            "echo waiting >&2; touch $CASE/up.$RANK; exec sleep 300")
        job = self.run_to_end("--nproc-per-node=3", "--log-dir=logs", "--rdzv-id=job", "./w.sh",
                              env={"NCCL_DEBUG": "INFO", "HF_TOKEN": "s3cret-word"})
        self.assertEqual(job.code, 1, job.err)
        (folder,) = glob.glob(self.path("logs", "*", "attempt_0", "post_mortem"))
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        files = {name: self.read(folder, name) for name in os.listdir(folder)}
        self.assertEqual(set(files), {"page.txt", "post_mortem.json"})
        for name, text in files.items():
            self.assertEqual(os.stat(os.path.join(folder, name)).st_mode & 0o777, 0o600)
            self.assertNotIn("s3cret-word", text)
        report = json.loads(files["post_mortem.json"])
        self.assertLessEqual(self.report("logs").items(), report.items())
        self.assertEqual(report["node"]["environment"]["NCCL_DEBUG"], "INFO")
        self.assertEqual(report["node"]["environment"]["HF_TOKEN"], "<hidden>")
        self.assertIn("cpprun", report["node"]["versions"])
        for line in ("Verdict      exit_code (70 % sure)", "  0-1       SIGTERM       stopped because of the root cause",
                     "  ranks 0-1:\n    waiting", "  rank 2:\n    out of batches", "  NCCL_DEBUG=INFO"):
            self.assertIn(line + "\n", files["page.txt"])

    def test_stacks_that_were_captured_are_quoted(self):
        self.script("w.sh", 'echo "2 ranks wait in allreduce" > "$(dirname $TORCHELASTIC_ERROR_FILE)/../stacks.txt"; exit 3')
        self.assertEqual(self.run_to_end("--log-dir=logs", "./w.sh").code, 1)
        (page,) = glob.glob(self.path("logs", "*", "attempt_0", "post_mortem", "page.txt"))
        self.assertIn("Stacks\n------\n  2 ranks wait in allreduce\n", self.read(page))


def memory_group(test, limit):
    """A memory cgroup of version 1 or 2 with that limit in bytes, which goes with the test."""
    with open("/proc/mounts") as f:
        mounts = [line.split()[1:4] for line in f]
    for place, kind, options in mounts:
        unified = kind == "cgroup2"
        if not unified and not (kind == "cgroup" and "memory" in options.split(",")):
            continue
        group = os.path.join(place, f"cpprun-test-{os.getpid()}")
        try:
            os.mkdir(group)
            test.addCleanup(lambda: until(lambda: remove(group)))
            if not unified:
                with open(os.path.join(group, "memory.swappiness"), "w") as f:
                    f.write("0")
            with open(os.path.join(group, "memory.max" if unified else "memory.limit_in_bytes"), "w") as f:
                f.write(str(limit))
            return group
        except OSError:
            continue
    return test.skipTest("no memory cgroup can be made here")


def remove(folder):
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class Nodes(CorpusTest):
    """Two nodes, each a cpprun of its own; here on one machine."""

    def setUp(self):
        super().setUp()
        self.port = free_port()

    def node(self, rank, *options, port=None, backend="static"):
        where = (["--node-rank", str(rank), "--master-addr=127.0.0.1", f"--master-port={self.port}"]
                 if backend == "static" else ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"])
        return self.start("--nnodes=2", "--rdzv-id=job", f"--log-dir=logs.{rank}", *where, *options, "./w.sh",
                          env={"PY": sys.executable})

    def test_a_peers_complaint_is_noticed_first(self):
        """Node 0's worker complains, and 300 ms later node 1's ends of what it was about."""
        self.script("w.sh", f"""
trap '' TERM
touch $CASE/up.$RANK
until [ -e $CASE/up.0 ] && [ -e $CASE/up.1 ]; do sleep 0.01; done
if [ $RANK = 1 ]; then
  until [ -e $CASE/gone ]; do sleep 0.01; done
  sleep 0.3
  exec $PY -c 'raise ValueError("bad shape")'
fi
(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; touch $CASE/gone) &
echo '{raised(CLOSED)}' >&2
exit 1
""")
        jobs = [self.node(rank) for rank in (0, 1)]
        self.assertEqual([job.end() for job in jobs], [1, 1], [job.err for job in jobs])
        for rank in (0, 1):
            self.assertEqual(self.assert_cause(f"logs.{rank}", 1, "exception")["evidence"][0], "ValueError: bad shape")
            self.assertIn("cause     : exception: ValueError: bad shape", jobs[rank].err)

    def test_an_agent_is_lost(self):
        self.script("w.sh", "touch $CASE/up.$RANK; exec sleep 300")
        jobs = [self.node(rank) for rank in (0, 1)]
        self.wait_for_files("up.0", "up.1")
        os.kill(jobs[1].agent(), signal.SIGKILL)
        self.assertEqual([job.end() for job in jobs], [1, 128 + signal.SIGKILL], [job.err for job in jobs])
        self.assertIn("node 1", self.assert_cause("logs.0", None, "node_lost")["message"])

    def test_the_store_is_killed(self):
        self.script("w.sh", "touch $CASE/up.$RANK; exec sleep 300")
        daemon = Daemon(self.folder)
        jobs = [self.node(rank, "--rdzv-conf=read_timeout=3", port=daemon.port, backend="c10d") for rank in (0, 1)]
        self.wait_for_files("up.0", "up.1")
        daemon.process.kill()
        daemon.process.wait()
        self.assertEqual([job.end() for job in jobs], [3, 3], [job.err for job in jobs])
        for rank in (0, 1):
            self.assertIn("the rendezvous was lost", self.assert_cause(f"logs.{rank}", None, "store_lost")["message"])


class Hosts(HostsTest):
    def test_a_node_is_cut_off(self):
        self.make_hosts("h1", "h2")
        for name in ("h1", "h2"):
            self.node(name, f"--log-dir=logs.{name}", nnodes="2", endpoint=self.endpoint("h1"))
        self.next_world("h1", "h2")
        self.network.cut(self.network["h2"])
        self.assertEqual([self.nodes[name].end() for name in ("h1", "h2")], [1, 3], self.story())
        for name, cls in (("h1", "node_lost"), ("h2", "store_lost")):
            cause = CorpusTest.assert_cause(self, f"logs.{name}", None, cls)
            self.assertTrue(cause["message"], cause)

    report, cause = CorpusTest.report, CorpusTest.cause


if __name__ == "__main__":
    unittest.main()

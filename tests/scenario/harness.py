"""What the scenario tests share: they run the real cpprun and look at what a user would see.

CPPRUN_BIN_DIR names the folder of the binaries. Every job gets a tag in its environment, by which all processes
that descend from it can be found, whatever session they moved to, and a temporary folder of its own.
"""
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid

BIN = os.environ["CPPRUN_BIN_DIR"]
CPPRUN = os.path.join(BIN, "cpprun")
LIMIT = 60.0  # seconds that anything here may take before it counts as hung

_OURS = ("PET_", "TORCHELASTIC", "TORCH_ELASTIC", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_",
         "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOGLEVEL", "PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX")


def until(condition, limit=LIMIT):
    """The first true value of condition(), or its last false one at the limit."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.005)


def free_port():
    """Below the range from which the kernel hands out ports by itself."""
    while True:
        port = random.randint(12000, 31000)
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::", port))
                return port
            except OSError:
                continue


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


class Job:
    """One running cpprun, in a session of its own so that signals to it reach nobody else."""

    def __init__(self, folder, arguments, env=None, wrap=(), **popen):
        self.tag = uuid.uuid4().hex
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        self.environment.update(CASE_TAG=self.tag, CASE=folder, TMPDIR=os.path.join(folder, "tmp"))
        self.environment.update(env or {})
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen([*wrap, CPPRUN, *arguments], env=self.environment, cwd=folder,
                                        start_new_session=True, **popen)
        self.out = self.err = None

    @property
    def pid(self):
        return self.process.pid

    def agent(self):
        """pid of the agent, the guardian's child."""
        return until(lambda: children(self.pid))[0]

    def signal(self, number):
        self.process.send_signal(number)

    def end(self, limit=LIMIT):
        """Waits for the end; the exit code. Output is in .out and .err afterwards."""
        try:
            out, err = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"cpprun did not end within {limit} s")
        self.out = (out or b"").decode("utf-8", "replace")
        self.err = (err or b"").decode("utf-8", "replace")
        return self.process.returncode

    def alive(self):
        """pids of living processes that carry this job's tag."""
        found = []
        needle = f"CASE_TAG={self.tag}".encode()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/environ", "rb") as f:
                    if needle not in f.read():
                        continue
                with open(f"/proc/{name}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                        found.append(int(name))
        return found

    def kill_all(self):
        for _ in range(100):
            left = self.alive()
            if not left:
                break
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


class ScenarioTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cpprun-scenario-")
        os.mkdir(os.path.join(self.folder, "tmp"))
        self.jobs = []

    def tearDown(self):
        for job in self.jobs:
            job.kill_all()
            job.process.wait()
            for stream in (job.process.stdin, job.process.stdout, job.process.stderr):
                if stream:
                    stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *arguments, **options):
        self.jobs.append(Job(self.folder, arguments, **options))
        return self.jobs[-1]

    def run_to_end(self, *arguments, limit=LIMIT, **options):
        job = self.start(*arguments, **options)
        job.code = job.end(limit)
        return job

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def script(self, name, body):
        return self.write(name, "#!/bin/bash\n" + body, 0o755)

    def read(self, *parts):
        with open(self.path(*parts), "rb") as f:
            return f.read().decode("utf-8", "replace")

    def wait_for_files(self, *names):
        for name in names:
            self.assertTrue(until(lambda n=name: os.path.exists(self.path(n))), f"{name} was never made")

    def assert_nothing_left(self, job):
        self.assertEqual(until(lambda: not job.alive()), True, f"still alive: {job.alive()}")

    def assert_tmp_empty(self):
        self.assertEqual(os.listdir(self.path("tmp")), [])

"""Running cpprun-train jobs in tests: start, wait, look at what they left."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import uuid

BIN = pathlib.Path(os.environ["CPPRUN_BIN_DIR"])
SOURCE = pathlib.Path(os.environ["CPPRUN_SOURCE_DIR"])
VENV = pathlib.Path(os.environ["CPPRUN_VENV"])
CPPRUN = BIN / "cpprun"
TRAIN = BIN / "cpprun-train"

LIMIT_S = 150  # a hang guard below ctest's own limit, not a measurement

# Small enough for many steps a second; every test changes what it is about.
MLP = {
    "seed": 5,
    "epochs": 3,
    "batch_size": 8,
    "log_every": 0,
    "model": {"type": "mlp", "hidden": [16], "dropout": 0.25},
    "data": {"type": "synthetic", "train_examples": 96, "val_examples": 11},
    "optimizer": {"type": "adamw", "lr": 0.01},
    "schedule": {"type": "one_cycle"},
}


def environment(**extra):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "TORCHELASTIC_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    return {**kept, "USE_CPU": "1", "OMP_NUM_THREADS": "1", **extra}


def with_changes(config, changes):
    """`config` with {"optimizer.lr": 0.1, ...} applied; a whole section may be replaced by its name."""
    config = json.loads(json.dumps(config))
    for key, value in changes.items():
        *sections, last = key.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return config


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    data = content[8 + length:]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


class Job:
    """A running `cpprun --standalone ... cpprun-train`, its process and its folder."""

    def __init__(self, folder, config, processes, launcher_args, env):
        self.mark = uuid.uuid4().hex  # in every process's environment, to find the workers by
        path = folder / "config.json"
        path.write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [CPPRUN, "--standalone", f"--nproc-per-node={processes}", *launcher_args, TRAIN, "--config", path],
            cwd=folder, env=environment(CPPRUN_TEST_JOB=self.mark, **env),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def worker_pid(self, rank):
        """The pid of the running cpprun-train of that rank, or None."""
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
                program = (entry / "cmdline").read_bytes().split(b"\0")[0]
            except OSError:
                continue
            if (f"CPPRUN_TEST_JOB={self.mark}".encode() in variables and f"RANK={rank}".encode() in variables
                    and os.path.basename(program) == b"cpprun-train"):
                return int(entry.name)
        return None

    def wait_until(self, what, happened):
        """Looks until `happened()` is true; fails where the job ends before."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = happened()
            if found:
                return found
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"never seen: {what}\n" + "\n".join(self.process.communicate()))
            time.sleep(0.0005)

    def finish(self):
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            out, err = self.process.communicate()
            raise AssertionError("the job hangs\n" + out + err)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)


class TrainerTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="cpprun-trainer-test-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        os.environ["TMPDIR"] = scratch.name  # cpprun keeps a failed job's logs there

    def folder(self, name):
        path = self.scratch / name
        path.mkdir(exist_ok=True)
        return path

    def start(self, folder, config, processes=2, launcher_args=(), **env):
        job = Job(folder, config, processes, launcher_args, env)
        self.addCleanup(lambda: job.process.poll() is None and job.process.terminate())
        return job

    def train(self, folder, config, processes=2, launcher_args=(), code=0, **env):
        done = self.start(folder, config, processes, launcher_args, **env).finish()
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def worker(self, folder, config, *args, code=0, **env):
        """cpprun-train by itself: a job of one process, so that its own exit code is seen."""
        path = folder / "config.json"
        path.write_text(json.dumps(config))
        done = subprocess.run([TRAIN, "--config", path, *args], cwd=folder, env=environment(**env),
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done


def metrics(path, kind):
    records = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    return [record for record in records if record["kind"] == kind]


def epoch_lines(done):
    return [line for line in done.stdout.splitlines() if line.startswith("epoch ")]


def checkpoints(folder):
    """The steps of the complete checkpoints in a folder, ascending."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[len("step-"):]) for name in names if name[len("step-"):].isdigit()
                  and name.startswith("step-"))

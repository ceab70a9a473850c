"""What the benchmarks beside it share: the programs, the machine, and the report."""

import json
import os
import pathlib
import platform
import select
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = pathlib.Path(os.environ.get("CPPRUN_VENV", ROOT / ".venv"))
BUILD = ROOT / "build/launcher"
PATIENCE_S = 60


def build(*targets: str) -> list[pathlib.Path]:
    """Builds programs (release, without LibTorch); their paths."""
    script = 'source scripts/common.sh; build "$0" release -DCPPRUN_WITH_TORCH=OFF -- "$@"'
    subprocess.run(["bash", "-euc", script, str(BUILD), *targets], cwd=ROOT, check=True, stdout=sys.stderr)
    return [BUILD / "bin" / target for target in targets]


class Program:
    """A benchmark program of ours, with line after line on stdout."""

    def __init__(self, *command):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        bufsize=0)  # what is buffered here, select() does not see
        self.pid = self.process.pid

    def line(self) -> str:
        if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
            raise TimeoutError(f"{self.process.args[0]} has said nothing for {PATIENCE_S} s")
        line = self.process.stdout.readline().decode().strip()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended, {self.process.wait()}")
        return line

    def go(self) -> None:
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def torchrun() -> pathlib.Path:
    path = VENV / "bin/torchrun"
    if not path.exists():
        sys.exit(f"{path} is missing: run scripts/setup.sh --tests, or name a virtual environment in CPPRUN_VENV")
    return path


def machine() -> str:
    model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Linux {platform.release()}"


def children(process: int) -> list[int]:
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def launcher_processes(first: int) -> list[int]:
    """The process and those of its descendants that run the same executable (guardian and agent)."""
    executable = os.path.realpath(f"/proc/{first}/exe")
    found = [first]
    for process in found:
        found += [child for child in children(process) if os.path.realpath(f"/proc/{child}/exe") == executable]
    return found


def status_kb(process: int, name: str) -> int | None:
    """VmHWM (the high-water mark of resident memory), VmRSS...; None where the process has ended."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(name + ":")), None)


def cpu_seconds(process: int) -> float | None:
    """Time that the process itself spent on a core, in steps of 10 ms; None where it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def medians_of(figures: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    return {name: {key: statistics.median(values) for key, values in row.items()} for name, row in figures.items()}


def spread(values: list[float], digits: int = 1) -> str:
    median, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least} to {most})"


def write_json(file: pathlib.Path | None, **report) -> None:
    if file:
        file.write_text(json.dumps({"machine": machine(), **report}, indent=2) + "\n")

"""The commands for several machines in README.md, run as they stand there but for names and ports."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["CPPRUN_SOURCE_DIR"]) / "tests" / "scenario"))
from harness import free_port  # noqa: E402

BIN = pathlib.Path(os.environ["CPPRUN_BIN_DIR"])
README = (pathlib.Path(os.environ["CPPRUN_SOURCE_DIR"]) / "README.md").read_text()
LIMIT_S = 90  # a hang guard below ctest's own limit, not a measurement


class SeveralMachines(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="cpprun-readme-test-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        # One write a line, as the workers share a pipe.
        (self.folder / "train.py").write_text(
            "import os\nos.write(1, b'%s %s\\n' % (os.environb[b'RANK'], os.environb[b'WORLD_SIZE']))\n")

    def ranks(self, *commands):
        """What the workers of these commands, started together, say of themselves."""
        port, other_port = str(free_port()), str(free_port())
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
        environment.update(PATH=f"{BIN}:{os.environ['PATH']}", PYTHON_EXEC=sys.executable, TMPDIR=str(self.folder))
        here = [command.replace("node1:29500", f"127.0.0.1:{other_port}").replace("node0", "127.0.0.1")
                .replace("29500", port) for command in commands]
        jobs = [subprocess.Popen(command, shell=True, cwd=self.folder, env=environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for command in here]
        ends = [job.communicate(timeout=LIMIT_S) for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs), ends)
        return sorted(line for out, _ in ends for line in out.splitlines())

    def start_daemon(self, command):
        """The port of a daemon of that command, but for its addresses."""
        port, http = free_port(), free_port()
        words = command.replace("10.0.0.1:29400", f"127.0.0.1:{port}").replace("127.0.0.1:9400", f"127.0.0.1:{http}")
        read_end, write_end = os.pipe()
        daemon = subprocess.Popen([BIN / "cpprund", *words.split()[1:], f"--ready-fd={write_end}"],
                                  pass_fds=[write_end], stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            self.assertEqual(ready.read(), f"{port}\n{http}\n")
        return port

    def test_commands(self):
        commands = [line.split("  #")[0] for line in README.splitlines() if line.startswith("cpprun --nnodes")]
        by_daemon = [c for c in commands if "10.0.0.1:29400" in c]
        changing = [c for c in commands if "--nnodes=2:4" in c and c not in by_daemon]
        by_rank = [c for c in commands if "--node-rank" in c]
        secret = [c for c in commands if "--secret-file" in c]
        meeting = [c for c in commands if "c10d" in c and c not in changing and c not in by_daemon and c not in secret]
        self.assertEqual((len(by_rank), len(meeting), len(changing), len(by_daemon), len(secret)), (2, 1, 1, 1, 1))
        everyone = [f"{rank} 8" for rank in range(8)]
        self.assertEqual(self.ranks(*by_rank), everyone)
        self.assertEqual(self.ranks(*meeting, *meeting), everyone)
        self.assertEqual(self.ranks(*4 * changing), sorted(f"{rank} 16" for rank in range(16)))
        [command] = [line.split("  #")[0] for line in README.splitlines() if line.startswith("head -c 32")]
        subprocess.run(command, shell=True, cwd=self.folder, check=True)
        self.assertEqual(self.ranks(*secret, *secret), ["0 2", "1 2"])
        [command] = [line for line in README.splitlines() if line.startswith("cpprund --bind")]
        port = self.start_daemon(command)
        here = [c.replace("10.0.0.1:29400", f"127.0.0.1:{port}") for c in by_daemon]
        self.assertEqual(self.ranks(*4 * here), sorted(f"{rank} 16" for rank in range(16)))


if __name__ == "__main__":
    unittest.main()

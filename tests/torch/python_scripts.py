"""Unmodified Python scripts on torch.distributed under cpprun: two processes, on the CPU, over Gloo.

CPPRUN_RESTARTS says how many jobs with a failing first attempt are run (5; the slow test runs 20)."""
import json
import os
import subprocess
import sys
import unittest

from trainer_jobs import CPPRUN, LIMIT_S, SOURCE, VENV, TrainerTest, environment

sys.path.insert(0, str(SOURCE / "tests/scenario"))
from harness import free_port  # noqa: E402  (its folder is only known here)

RESTARTS = int(os.environ.get("CPPRUN_RESTARTS", "5"))


class PythonScripts(TrainerTest):
    def run_script(self, name, *arguments, options=(), code=0):
        done = subprocess.run(
            [CPPRUN, "--standalone", "--nproc_per_node=2", *options, SOURCE / "tests/torch/data" / name, *arguments],
            cwd=self.scratch, env=environment(VIRTUAL_ENV=str(VENV)), capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_recorded_exception_is_in_the_report(self):
        done = self.run_script("recorded_failure.py", options=("--log-dir", self.scratch / "logs"), code=1)
        report = done.stderr[done.stderr.index("recorded_failure.py FAILED"):]
        for line in ("Traceback (most recent call last):", "in check_batch",
                     "ValueError: the labels of batch 2 do not match its images"):
            self.assertIn(line, report)
        (file,) = (self.scratch / "logs").glob("*/attempt_0/failure.json")
        cause = json.loads(file.read_text())["root_cause"]
        self.assertEqual((cause["class"], cause["global_rank"], cause["exit_code"], cause["message"]),
                         ("exception", 1, 1, "ValueError: the labels of batch 2 do not match its images"))

    def test_accelerate(self):
        done = self.run_script("accelerate_steps.py")
        self.assertEqual(done.stdout, "2 processes, DistributedType.MULTI_CPU\nevery example seen once: True\n"
                                      "the weights of one process: True\n")

    def test_groups_objects_and_monitored_barrier(self):
        done = self.run_script("groups.py")
        lines = {f"rank {rank}: {text}" for rank in (0, 1) for text in (
            "sum 3", "gathered [{'rank': 0, 'name': ''}, {'rank': 1, 'name': 'x'}]", "got [{'seed': 7}, 'text', None]",
            f"has part {rank}")}
        self.assertEqual(set(done.stdout.splitlines()), lines | {"rank 0: missed rank 1"})

    def test_two_nodes_with_a_secret(self):
        """Each node's workers speak to their own agent, and Gloo still finds the other node."""
        secret = self.scratch / "secret"
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
        command = [CPPRUN, "--nnodes=2", "--nproc_per_node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                   "--rdzv-id=secret", f"--secret-file={secret}", SOURCE / "tests/torch/data/groups.py"]
        nodes = [subprocess.Popen(command, cwd=self.scratch, env=environment(VIRTUAL_ENV=str(VENV)), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for _ in range(2)]
        ends = [node.communicate(timeout=LIMIT_S) for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], ends)
        lines = [line for out, _ in ends for line in out.splitlines()]
        self.assertIn("rank 0: sum 3", lines)
        self.assertIn("rank 1: has part 1", lines)

    def test_failed_first_attempts_restart_and_end_well(self):
        for number in range(RESTARTS):
            step = number % 5 - 1  # before the process group, at its first collective, between two
            with self.subTest(number=number, step=step):
                done = self.run_script("fail_once.py", str(step), options=("--max-restarts=1",))
                self.assertEqual(sorted(done.stdout.splitlines()), [f"attempt 1 rank {rank}: 16" for rank in (0, 1)])


if __name__ == "__main__":
    unittest.main()

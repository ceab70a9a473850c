"""kill -9 of a worker at any moment: with --max-restarts 1 the job restarts by itself, goes on from the last checkpoint,
and ends with the very bytes of a run that was left alone."""
import json
import os
import signal
import unittest

from trainer_jobs import MLP, TrainerTest, checkpoints, metrics, with_changes

# Wide enough that a checkpoint takes a while to write.
CONFIG = with_changes(MLP, {
    "epochs": 8,
    "model.hidden": [700, 700],
    "checkpoint": {"dir": "checkpoints", "every_steps": 10},
    "metrics_file": "metrics.jsonl",
    "weights_file": "weights.safetensors",
})
STEPS = 8 * 6


class Kill(TrainerTest):
    @classmethod
    def setUpClass(cls):
        cls.expected = None

    def setUp(self):
        super().setUp()
        if Kill.expected is None:
            folder = self.folder("whole")
            self.train(folder, CONFIG)
            Kill.expected = self.end_of(folder)

    def end_of(self, folder):
        names = ("weights.safetensors", *(f"checkpoints/step-{STEPS}/{file}" for file in (
            "model.safetensors", "optimizer.safetensors", "rng-0.safetensors", "rng-1.safetensors")))
        return {name: (folder / name).read_bytes() for name in names}

    def kill(self, rank, moment, seen):
        folder = self.folder(moment.replace(" ", "-"))
        job = self.start(folder, CONFIG, launcher_args=("--max-restarts=1",))
        pid = job.wait_until(f"a worker of rank {rank}", lambda: job.worker_pid(rank))
        job.wait_until(moment, lambda: seen(folder / "checkpoints"))
        os.kill(pid, signal.SIGKILL)
        done = job.finish()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("attempt 1: started", done.stderr)  # the kill did hit a running job
        for name, content in self.end_of(folder).items():
            self.assertEqual(content, Kill.expected[name], f"{name} differs")
        self.assertEqual([r["step"] for r in metrics(folder / "metrics.jsonl", "step")], list(range(1, STEPS + 1)))
        return done

    def test_at_the_start(self):
        done = self.kill(1, "start up", lambda folder: True)
        self.assertNotIn("resumed from", done.stdout)

    def test_while_training(self):
        for rank in (0, 1):
            done = self.kill(rank, f"training {rank}", checkpoints)
            self.assertIn("resumed from checkpoints/step-", done.stdout)

    def test_while_a_checkpoint_is_written(self):
        def writing(folder):
            steps = checkpoints(folder)
            return steps and set(os.listdir(folder)) - {f"step-{step}" for step in steps}

        for rank in (0, 1):
            done = self.kill(rank, f"writing {rank}", writing)
            self.assertIn("resumed from checkpoints/step-", done.stdout)

    def test_what_it_said_last_is_in_the_report(self):
        folder = self.folder("report")
        job = self.start(folder, CONFIG, launcher_args=("--log-dir=logs",))
        pid = job.wait_until("a worker of rank 1", lambda: job.worker_pid(1))
        job.wait_until("a checkpoint", lambda: checkpoints(folder / "checkpoints"))
        os.kill(pid, signal.SIGKILL)
        done = job.finish()
        self.assertEqual(done.returncode, 1, done.stderr)
        (report,) = (folder / "logs").glob("*/attempt_0/failure.json")
        cause = json.loads(report.read_text())["root_cause"]
        progress = cause["progress"]
        self.assertEqual((cause["global_rank"], progress["pid"]), (1, pid))
        self.assertGreaterEqual(progress["step"], 10)
        self.assertIn(progress["phase"], ("training", "evaluating", "checkpointing"))
        self.assertGreater(progress["collective"], 10)


if __name__ == "__main__":
    unittest.main()

"""cpprun-train against the same training written with Python's DistributedDataParallel: the same losses and weights.
With the order of the examples (every epoch another: pytorch/pytorch#31771), uneven last batches (#38174), windows of
accumulation that do not divide, weighted by their examples (torchtune#1875), clipping, schedules, and dropout masks
that differ between ranks (facebookresearch/detr#544)."""
import json
import subprocess
import unittest

from trainer_jobs import LIMIT_S, SOURCE, VENV, TrainerTest, environment, metrics, read_safetensors, with_changes

BASE = {"seed": 11, "log_every": 0, "metrics_file": "metrics.jsonl", "weights_file": "weights.safetensors"}
CONFIGS = {
    # 50 examples a rank: batches of 8 and 2, windows of 3, 3 and 1 batches.
    "accumulation": with_changes(BASE, {
        "shuffle_seed": 4, "epochs": 4, "batch_size": 8, "accumulation_steps": 3, "clip_norm": 0.5,
        "model": {"type": "mlp", "hidden": [16, 8]},
        "data": {"type": "synthetic", "seed": 3, "train_examples": 101, "val_examples": 11},
        "optimizer": {"type": "adamw", "lr": 0.01},
        "schedule": {"type": "cosine", "warmup_steps": 2, "start_factor": 0.5, "min_factor": 0.1}}),
    "dropout": with_changes(BASE, {
        "epochs": 2, "batch_size": 100,
        "model": {"type": "cnn", "channels": [4, 8], "hidden": 16, "dropout": 0.5},
        "data": {"type": "idx", "dir": str(SOURCE / "conf/data/digits"), "shift": 1},
        # Not Adam, which would blow up the rounding of a bias before batch norm, whose gradient is 0.
        "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.001},
        "schedule": {"type": "one_cycle"}}),
}


class Twin(TrainerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python = None

    def python_runs(self):
        """One torchrun job for all configs: its start is what takes the time."""
        if Twin.python is None:
            (self.scratch / "configs.json").write_text(json.dumps(CONFIGS))
            done = subprocess.run([VENV / "bin/torchrun", "--standalone", "--nproc_per_node=2",
                                   SOURCE / "tests/torch/data/twin.py", "configs.json", "twin.json"],
                                  cwd=self.scratch, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            Twin.python = json.loads((self.scratch / "twin.json").read_text())
        return Twin.python

    def compare(self, name, tolerance):
        folder = self.folder(name)
        self.train(folder, CONFIGS[name])
        twin = self.python_runs()[name]
        steps = metrics(folder / "metrics.jsonl", "step")
        self.assertEqual([s["examples"] for s in steps], [s["examples"] for s in twin["steps"]])
        for ours, theirs in zip(steps, twin["steps"], strict=True):
            self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=tolerance, msg=f"{ours} {theirs}")
            self.assertAlmostEqual(ours["lr"], theirs["lr"], delta=1e-9)
        weights = read_safetensors(folder / "weights.safetensors")
        self.assertEqual(sorted(weights), sorted(twin["weights"]))
        for key, (dtype, shape, content) in weights.items():
            values = memoryview(content).cast({"F32": "f", "I64": "q"}[dtype])
            self.assertEqual(shape, twin["weights"][key]["shape"])
            for ours, theirs in zip(values, twin["weights"][key]["values"], strict=True):
                self.assertAlmostEqual(ours, theirs, delta=tolerance, msg=key)
        return steps

    def test_accumulation(self):
        steps = self.compare("accumulation", 1e-5)
        self.assertEqual([s["examples"] for s in steps[:3]], [48, 48, 4])

    def test_dropout(self):
        self.compare("dropout", 1e-4)


if __name__ == "__main__":
    unittest.main()

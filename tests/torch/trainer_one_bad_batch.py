"""A loss that is no number on one rank only: all ranks skip that update, and only that one
(NVIDIA-NeMo/Automodel#2468: one rank skipped, the others hung)."""
import json
import struct
import subprocess
import unittest

from trainer_jobs import BIN, CPPRUN, LIMIT_S, MLP, TrainerTest, environment, metrics, read_safetensors, with_changes

WORKER = BIN.parent / "tests/one_bad_batch_worker"


class OneBadBatch(TrainerTest):
    def test_all_ranks_skip_the_same_update(self):
        config = with_changes(MLP, {"epochs": 1, "metrics_file": "metrics.jsonl", "weights_file": "weights.safetensors"})
        (self.scratch / "config.json").write_text(json.dumps(config))
        done = subprocess.run([CPPRUN, "--standalone", "--nproc-per-node=2", WORKER, "config.json"], cwd=self.scratch,
                              env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        losses = [record["loss"] for record in metrics(self.scratch / "metrics.jsonl", "step")]
        self.assertEqual([loss is None for loss in losses], [False, True, False, False, False, False])
        self.assertIn("step 2: the loss is not a finite number, the update is skipped", done.stderr)
        for name, (_, _, content) in read_safetensors(self.scratch / "weights.safetensors").items():
            for (value,) in struct.iter_unpack("<f", content):
                self.assertEqual(value, value, name)  # not NaN


if __name__ == "__main__":
    unittest.main()

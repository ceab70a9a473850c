"""The article's train.py under the real torchrun, the same unmodified script under cpprun, and cpprun-train with
conf/trainer/seed_article.json: the same lines from all three. data/train.py is the article's script, verbatim."""
import subprocess
import unittest

from trainer_jobs import CPPRUN, LIMIT_S, SOURCE, TRAIN, VENV, TrainerTest, environment, epoch_lines

SCRIPT = SOURCE / "tests/torch/data/train.py"
LINES = ["epoch 0 val_n 101 loss 1.1102 acc 0.3267", "epoch 1 val_n 101 loss 1.1011 acc 0.3564"]


class SeedArticle(TrainerTest):
    def lines_of(self, *command):
        done = subprocess.run([*command], cwd=self.scratch, env=environment(VIRTUAL_ENV=str(VENV)),
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return epoch_lines(done)

    def test_python_under_torchrun(self):
        self.assertEqual(self.lines_of(VENV / "bin/torchrun", "--standalone", "--nproc_per_node=2", SCRIPT), LINES)

    def test_python_under_cpprun(self):
        self.assertEqual(self.lines_of(CPPRUN, "--standalone", "--nproc_per_node=2", SCRIPT), LINES)

    def test_cpprun_train(self):
        config = SOURCE / "conf/trainer/seed_article.json"
        self.assertEqual(self.lines_of(CPPRUN, "--standalone", "--nproc_per_node=2", TRAIN, "--config", config), LINES)


if __name__ == "__main__":
    unittest.main()

"""What cpprun-train refuses: one sentence on standard error that names what is wrong, and exit code 2."""
import json
import shutil
import subprocess
import unittest

from trainer_jobs import LIMIT_S, MLP, SOURCE, TRAIN, TrainerTest, environment, with_changes


class BadInput(TrainerTest):
    def refusal(self, *args):
        done = subprocess.run([TRAIN, *args], cwd=self.scratch, env=environment(), capture_output=True, text=True,
                              timeout=LIMIT_S)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        # A sentence for a person: no names of C++ classes, none of a library's error codes.
        self.assertNotIn("::", done.stderr)
        self.assertNotIn("exception", done.stderr)
        self.assertTrue(done.stderr.startswith("cpprun-train: "), done.stderr)
        return done.stderr

    def refused_config(self, changes):
        path = self.scratch / "config.json"
        path.write_text(json.dumps(with_changes(MLP, changes)))
        return self.refusal("--config", path)

    def test_command_line(self):
        self.assertIn("--config is required", self.refusal())
        self.assertIn("--cofnig", self.refusal("--config", "x.json", "--cofnig"))

    def test_config(self):
        self.assertIn("cannot read the config file nowhere.json", self.refusal("--config", "nowhere.json"))
        self.assertIn('unknown key "epoch"; the nearest known key is "epochs"', self.refused_config({"epoch": 1}))
        self.assertIn('"optimizer.lr" must be a number', self.refused_config({"optimizer.lr": "0.1"}))
        (self.scratch / "broken.json").write_text('{"epochs": ')
        self.assertIn("broken.json: line 1: this is not valid JSON", self.refusal("--config", "broken.json"))
        (self.scratch / "twice.json").write_text('{"epochs": 1, "epochs": 2}')
        self.assertIn('twice.json: the key "epochs" stands there twice', self.refusal("--config", "twice.json"))

    def test_overrides(self):
        digits = SOURCE / "conf/trainer/digits.json"
        for override in ("epochs=abc", "epochs", "epoch=1", "model.type=rnn"):
            with self.subTest(override):
                self.assertTrue(self.refusal("--config", digits, "--set", override)
                                .startswith(f"cpprun-train: --set {override}: "))

    def test_too_few_examples(self):
        self.assertIn("validation set is empty", self.refused_config({"data.val_examples": 0}))
        self.assertIn("training loader is empty", self.refused_config({"data.train_examples": 0}))

    def test_more_ranks_than_training_examples(self):
        done = self.train(self.folder("ranks"), with_changes(MLP, {"data.train_examples": 2}), processes=3, code=1)
        self.assertIn("too many processes for this training set: 3 processes, 2 training examples", done.stderr)

    def test_idx_data(self):
        digits = SOURCE / "conf/data/digits"
        data = {"data": {"type": "idx", "dir": "data"}}
        self.assertIn("train-images-idx3-ubyte cannot be read", self.refused_config(data))
        folder = self.scratch / "data"
        shutil.copytree(digits, folder)
        shutil.copy(digits / "t10k-labels-idx1-ubyte", folder / "train-labels-idx1-ubyte")
        self.assertIn("holds 1437 images but 360 labels", self.refused_config(data))
        images = (digits / "t10k-images-idx3-ubyte").read_bytes()
        (folder / "train-images-idx3-ubyte").write_bytes(images[:-1])
        self.assertIn("is cut short", self.refused_config(data))
        (folder / "train-images-idx3-ubyte").write_bytes(images[:3] + b"\x03" + bytes(12))
        (folder / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\0")
        self.assertIn("differ in height or width", self.refused_config(data))

    def test_a_config_works_from_any_folder(self):
        done = subprocess.run([TRAIN, "--config", SOURCE / "conf/trainer/digits.json", "--print-config"],
                              cwd=self.scratch, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'"dir": "{SOURCE}/conf/data/digits"', done.stdout)

    def test_a_learning_rate_of_0_is_no_secret(self):
        done = self.worker(self.folder("zero"), with_changes(MLP, {"optimizer.lr": 0, "epochs": 1}))
        self.assertIn('"optimizer.lr" is 0', done.stderr)

    def test_a_diverged_run_ends_on_all_ranks(self):
        config = with_changes(MLP, {"optimizer": {"type": "sgd", "lr": 1e30}, "schedule": {"type": "constant"}})
        done = self.train(self.folder("diverged"), config, code=1)
        self.assertIn("the loss was not a finite number in 10 updates in a row", done.stderr)


if __name__ == "__main__":
    unittest.main()

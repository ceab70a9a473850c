"""The main job as the README gives it, on the real digits."""
import re
import subprocess
import unittest

from trainer_jobs import CPPRUN, LIMIT_S, SOURCE, TrainerTest, environment


class Digits(TrainerTest):
    def test_reaches_its_accuracy_and_says_where_things_lie(self):
        config = SOURCE / "conf/trainer/digits.json"
        done = subprocess.run([CPPRUN, "--standalone", "--nproc_per_node=2", "cpprun-train", "--config", config],
                              cwd=self.scratch, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        accuracy, total = re.search(r"validation accuracy (\S+) \(\d+ of (\d+)\)", done.stdout).groups()
        self.assertEqual(total, "360")
        self.assertGreaterEqual(float(accuracy), 0.96)
        for kind in ("checkpoint", "weights"):
            path = re.search(rf"^{kind} (\S+)$", done.stdout, re.MULTILINE).group(1)
            self.assertTrue((self.scratch / path).exists(), path)


if __name__ == "__main__":
    unittest.main()

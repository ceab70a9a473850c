"""How the threads of cpprun-train wait for each other, as their OpenMP library itself reports it."""
import re
import unittest

from trainer_jobs import MLP, TrainerTest, with_changes


class Threads(TrainerTest):
    def wait_policies(self, **env):
        """One for each time that the program was loaded."""
        done = self.worker(self.folder("run"), with_changes(MLP, {"epochs": 1}), OMP_DISPLAY_ENV="TRUE", **env)
        self.assertEqual(done.stdout.count("validation accuracy"), 1)
        return re.findall(r"OMP_WAIT_POLICY = '(\w+)'", done.stderr)

    def test_several_sleep_while_they_wait(self):
        self.assertEqual(self.wait_policies(OMP_NUM_THREADS="2")[-1], "PASSIVE")

    def test_what_the_user_chose_stands(self):
        self.assertEqual(self.wait_policies(OMP_NUM_THREADS="2", OMP_WAIT_POLICY="active"), ["ACTIVE"])
        self.assertEqual(len(self.wait_policies(OMP_NUM_THREADS="2", GOMP_SPINCOUNT="7")), 1)

    def test_one_has_none_to_wait_for(self):
        self.assertEqual(len(self.wait_policies(OMP_NUM_THREADS="1")), 1)


if __name__ == "__main__":
    unittest.main()

"""--print-completion: the scripts know every option, and bash's completes what a user begins to type."""
import os
import re
import shlex
import shutil
import subprocess
import unittest

from harness import CPPRUN, ScenarioTest


def printed(shell):
    return subprocess.run([CPPRUN, "--print-completion", shell], check=True, capture_output=True, text=True).stdout


def long_options():
    text = subprocess.run([CPPRUN, "--help"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE))


class Completion(ScenarioTest):
    def complete(self, *words):
        """What bash offers for the last of the words, which bash has split at = already."""
        script = (printed("bash") + f"\nCOMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}\n"
                  "_cpprun\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n")
        done = subprocess.run(["bash", "-eu", "-c", script], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_options(self):
        self.assertEqual(self.complete("cpprun", "--max"), ["--max-restarts"])
        self.assertEqual(self.complete("cpprun", "--max_"), ["--max_restarts"])
        self.assertEqual(self.complete("cpprun", "-n", "2", "--dry"), ["--dry-run"])
        self.assertEqual(self.complete("cpprun", "--nproc-per-node", "=", "2", "--pp"), ["--ppn"])
        self.assertEqual(set(self.complete("cpprun", "--")) - {"--ppn"}, long_options())
        self.assertIn("-m", self.complete("cpprun", "-"))

    def test_values(self):
        self.assertEqual(self.complete("cpprun", "--start-method", "fork"), ["fork", "forkserver"])
        self.assertEqual(self.complete("cpprun", "--start_method", "=", "sp"), ["spawn"])
        self.assertEqual(self.complete("cpprun", "--rdzv-backend", "="), ["static", "c10d", "etcd", "etcd-v2"])
        self.assertEqual(self.complete("cpprun", "-n", "g"), ["gpu"])
        self.assertEqual(self.complete("cpprun", "--role", "x"), [])
        self.write("launch.json", "{}")
        self.assertEqual(self.complete("cpprun", "--config", "l"), ["launch.json"])
        self.assertEqual(self.complete("cpprun", "--log-dir", ""), ["tmp"])

    def test_programs(self):
        self.write("train.py", "")
        self.assertIn("train.py", self.complete("cpprun", "tr"))
        self.assertEqual(self.complete("cpprun", "--standalone", "train.py", "tr"), ["train.py"])
        self.assertEqual(self.complete("cpprun", "--role", "r", "train.py", "--max"), [])

    def test_the_other_shells_know_every_option(self):
        zsh, fish = printed("zsh"), printed("fish")
        for name in long_options():
            self.assertRegex(zsh, rf"'{name}[=\[]")
            self.assertRegex(fish, rf" -l {name[2:]} ")
        self.assertIn("(spawn fork forkserver)", zsh)
        self.assertIn("-x -a 'spawn fork forkserver'", fish)

    def test_every_shell_that_is_there_takes_its_script(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                path = self.write("script", printed(shell))
                done = subprocess.run([shell, "-n", path], capture_output=True, text=True,
                                      env={**os.environ, "HOME": self.folder})
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_help_is_readable(self):
        text = subprocess.run([CPPRUN, "--help"], check=True, capture_output=True, text=True).stdout
        self.assertEqual([line for line in text.splitlines() if len(line) > 100 or line != line.rstrip()], [])
        for group in ("Nodes and workers", "Rendezvous", "Program", "Restarts and ends", "Output", "General"):
            self.assertIn(f"\n{group}:\n", text)


if __name__ == "__main__":
    unittest.main()

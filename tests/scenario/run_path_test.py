"""--run-path: a script runs as __main__ of a Python that records the exception that ends it."""
import json
import os
import shutil
import sys
import unittest

from harness import ScenarioTest


class RunPath(ScenarioTest):
    def run_script(self, text, *options, arguments=(), env=None):
        self.write("script.py", text)
        return self.run_to_end("--run-path", "--log-dir=logs", *options, "script.py", *arguments,
                               env={"PYTHON_EXEC": sys.executable, **(env or {})})

    def record(self):
        (run,) = os.listdir(self.path("logs"))
        path = self.path("logs", run, "attempt_0", "0", "error.json")
        if not os.path.exists(path):
            return None
        with open(path) as f:
            return json.load(f)

    def failure(self, job):
        self.assertEqual(job.code, 1, job.err)
        (run,) = os.listdir(self.path("logs"))
        return json.loads(self.read("logs", run, "attempt_0", "failure.json"))["root_cause"]

    def test_the_script_finds_what_it_would_find_under_python(self):
        self.write("beside.py", "value = 7")
        job = self.run_script("import sys, beside\n"
                              "print(__name__, sys.argv, __file__, beside.value, sys.stdout.write_through)",
                              "--no-python", "-m", arguments=("--x", "-c", "${local_rank}", ""))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(job.out, "__main__ ['script.py', '--x', '-c', '0', ''] script.py 7 True\n")

    def test_an_exception_is_recorded_without_any_package(self):
        job = self.run_script("def f():\n    raise ValueError('bad \\udcff shape \\u00e4')\nf()\n")
        cause = self.failure(job)
        self.assertEqual((cause["class"], cause["message"], cause["exit_code"]),
                         ("exception", "ValueError: bad \\udcff shape \u00e4", 1))
        message = self.record()["message"]
        self.assertEqual(set(message), {"message", "extraInfo"})
        self.assertEqual(set(message["extraInfo"]), {"py_callstack", "timestamp"})
        self.assertRegex(message["extraInfo"]["timestamp"], r"^\d{10}$")
        stack = message["extraInfo"]["py_callstack"]
        self.assertTrue(stack.startswith("Traceback (most recent call last):\n"), stack)
        self.assertIn('script.py", line 2, in f', stack)
        self.assertNotIn("runpy", stack)
        self.assertNotIn("<string>", stack)
        self.assertIn("ValueError: bad", job.err)  # the worker itself said so too
        self.assertIn("script.py FAILED", job.err)

    def test_errors_of_every_kind_are_recorded(self):
        for text, message in (("x = (\n", "SyntaxError: "), ("import no_such_module_x", "ModuleNotFoundError: No module"),
                              ("raise BaseException('odd')", "BaseException: odd"),
                              ("class E(Exception):\n  def __str__(self): raise KeyError\nraise E", "E"),
                              ("raise Exception from ValueError('first')", "Exception: ")):
            job = self.run_script(text)
            cause = self.failure(job)
            self.assertEqual(cause["class"], "import_error" if "import" in text else "exception", job.err)
            self.assertIn(message, cause["message"])
            shutil.rmtree(self.path("logs"))

    def test_exit_codes(self):
        for statement, code, said in (("sys.exit()", 0, ""), ("sys.exit(0)", 0, ""), ("raise SystemExit", 0, ""),
                                      ("sys.exit(7)", 7, ""), ("sys.exit('words')", 1, "words\n"), ("pass", 0, "")):
            job = self.run_script("import sys\n" + statement)
            if code == 0:
                self.assertEqual(job.code, 0, job.err)
            else:
                cause = self.failure(job)
                self.assertEqual((cause["exit_code"], cause["class"]), (code, "exit_code"))
                self.assertIn(said, job.err)
            self.assertIsNone(self.record())
            shutil.rmtree(self.path("logs"))

    def test_no_error_file(self):
        self.write("script.py", "raise ValueError('x')")
        job = self.run_to_end("--run-path", "--log-dir=/dev/null", "script.py", env={"PYTHON_EXEC": sys.executable})
        self.assertEqual(job.code, 1)
        self.assertIn("ValueError: x", job.err)
        self.assertNotIn("could not be recorded", job.err)

    def test_missing_script_is_found_before_the_start(self):
        job = self.run_to_end("--run-path", "missing.py", env={"PYTHON_EXEC": sys.executable})
        self.assertEqual(job.code, 2)
        self.assertIn("the script 'missing.py' does not exist", job.err)


if __name__ == "__main__":
    unittest.main()

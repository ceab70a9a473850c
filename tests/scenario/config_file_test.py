"""--config: options from a JSON file, below flags and variables; what is wrong is named with file, key and line."""
import json
import os
import unittest

from harness import ScenarioTest

SAMPLES = os.path.join(os.environ["CPPRUN_SOURCE_DIR"], "conf", "launcher")


class ConfigFile(ScenarioTest):
    def config(self, text):
        return self.write("launch.json", text if isinstance(text, str) else json.dumps(text))

    def out(self, *arguments, env=None):
        job = self.run_to_end(*arguments, env=env)
        self.assertEqual(job.code, 0, job.err)
        return job.out

    def refused(self, sentence, text, *arguments):
        job = self.run_to_end("--config", self.config(text), *arguments)
        self.assertEqual(job.code, 2, job.err)
        self.assertEqual(len(job.err.splitlines()), 1, job.err)
        self.assertIn(sentence, job.err)

    def test_the_samples_run(self):
        names = sorted(os.listdir(SAMPLES))
        self.assertIn("two_workers.json", names)
        for name in names:
            out = self.out("--config", os.path.join(SAMPLES, name))
            self.assertEqual(sorted(out.splitlines()), ["[hello 0] I am 0 of 2", "[hello 1] I am 1 of 2"])

    def test_every_kind_of_value(self):
        path = self.config({"nproc_per_node": 2, "max-restarts": "3", "standalone": True, "no-python": False,
                            "local-ranks-filter": [1], "signals-to-handle": ["SIGTERM", "SIGUSR1"], "tee": 1,
                            "program": ["bash", "-c", "echo $RANK $TORCHELASTIC_MAX_RESTARTS "
                                                      "$TORCHELASTIC_SIGNALS_TO_HANDLE $0", "x y"]})
        self.assertEqual(self.out("--config", path), "[default1]:1 3 SIGTERM,SIGUSR1 x y\n")

    def test_flags_over_variables_over_the_file(self):
        path = self.config({"role": "file", "program": ["bash", "-c", "echo $ROLE_NAME"]})
        self.assertEqual(self.out("--config", path), "file\n")
        self.assertEqual(self.out("--config", path, env={"PET_ROLE": "variable"}), "variable\n")
        self.assertEqual(self.out("--config", path, "--role=flag", env={"PET_ROLE": "variable"}), "flag\n")
        self.assertEqual(self.out("--role=flag", env={"PET_CONFIG": path}), "flag\n")
        on = self.config({"dry-run": True, "program": ["true"]})
        self.assertIn("Nothing is started", self.out("--config", on))
        self.assertEqual(self.out("--config", on, env={"PET_DRY_RUN": "0"}), "")

    def test_the_command_lines_program_wins_whole(self):
        path = self.config({"program": ["echo", "from", "file"]})
        self.assertEqual(self.out("--config", path, "echo", "typed"), "typed\n")
        self.assertEqual(self.out("--config", path), "from file\n")

    def test_keys_and_kinds(self):
        self.refused("launch.json, line 2: unknown key 'max-restart'; did you mean max-restarts?",
                     '{\n"max-restart": 1}', "true")
        self.refused("line 3: the key 'max_restarts' is there twice", '{\n"max-restarts": 1,\n"max_restarts": 1}')
        for text in ('{"standalone": 1}', '{"standalone": "yes"}', '{"standalone": null}', '{"standalone": [true]}'):
            self.refused("the key 'standalone' takes true or false", text, "true")
        for text in ('{"role": true}', '{"role": ["a"]}', '{"role": {"a": "b"}}', '{"role": null}'):
            self.refused("the key 'role' takes text or a number", text, "true")
        for text in ('{"tee": [["0:1"]]}', '{"tee": [{"0": 1}, "0:1"]}', '{"tee": [true]}', '{"tee": true}'):
            self.refused("the key 'tee' takes text, a number or an array of these", text, "true")
        self.refused("holds a comma", '{"tee": ["0:1,1:1"]}', "true")
        for text in ('{"program": "true"}', '{"program": []}', '{"program": [["true"]]}'):
            self.refused("the key 'program' takes an array: the program and its arguments", text)
        for key in ("config", "help", "version", "print-completion", "n", "-n", "--role", ""):
            self.refused(f"unknown key '{key}'", json.dumps({key: "x"}), "true")
        job = self.run_to_end("--config", self.config({"help": True}), "true")
        self.assertNotIn("did you mean", job.err)  # the key is an option, and not for a file
        self.refused("no program to run", "{}")
        self.refused("--max-restarts (" + self.path("launch.json") + ", line 4): 'x' is not a whole number",
                     '{\n\n"program": ["true"],\n"max-restarts":\n"x"}')

    def test_no_json(self):
        self.refused("launch.json, line 1: this is not valid JSON", "")
        self.refused("launch.json, line 3: this is not valid JSON near '\"tee\"'", '{"role": "a"\n\n"tee": 1}')
        self.refused("launch.json, line 1: this is not valid JSON", '{"role": "a"} {}')
        for text in ("[]", "3", '"x"', "null", "true", '[{"role": "a"}]'):
            self.refused("the file is not one JSON object", text, "true")

    def test_no_file(self):
        for path, why in (("missing.json", "No such file"), (self.folder, "directory"),
                          ("/dev/zero", "larger than 1 MiB")):
            job = self.run_to_end("--config", path, "true")
            self.assertEqual(job.code, 2, job.err)
            self.assertIn(f"--config: the file '{path}' cannot be read: ", job.err)
            self.assertIn(why, job.err)
        job = self.run_to_end("true", env={"PET_CONFIG": "missing.json"})
        self.assertIn("--config (PET_CONFIG): the file 'missing.json' cannot be read", job.err)

    def test_a_pipe(self):
        with open(self.config({"program": ["echo", "piped"]})) as text:
            job = self.run_to_end("--config", "/dev/stdin", stdin=text)
        self.assertEqual((job.code, job.out), (0, "piped\n"), job.err)


if __name__ == "__main__":
    unittest.main()

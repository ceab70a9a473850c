"""--dry-run says what a start does, and starts nothing."""
import os
import re
import shlex
import shutil
import socket
import unittest

from harness import ScenarioTest


class DryRun(ScenarioTest):
    def dry_run(self, *options, env=None):
        job = self.run_to_end("--dry-run", *options, env=env)
        self.assertEqual(job.code, 0, job.err)
        return job.out

    def ranks(self, text):
        """Per local rank: {"command": ..., "stdout": ..., "environment": {...}}."""
        ranks = []
        for line in text.splitlines():
            if line.startswith("local rank "):
                self.assertEqual(line, f"local rank {len(ranks)}")
                ranks.append({"environment": {}})
            elif line.startswith("    "):
                name, value = line.strip().split("=", 1)
                ranks[-1]["environment"][name] = value
            elif line.startswith("  "):
                key, value = line.strip().split(":", 1)
                if key != "environment, beside what is inherited":
                    ranks[-1][key] = value.strip()
        return ranks

    def test_nothing_starts(self):
        with socket.socket() as taken:  # opening the port would fail
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            text = self.dry_run(f"--master-port={port}", "--log-dir", self.path("logs"), "-n2", "touch",
                                self.path("ran"))
        self.assertIn(f"MASTER_PORT={port}", text)
        self.assertEqual(sorted(os.listdir(self.folder)), ["tmp"])
        self.assert_tmp_empty()

    def test_what_cannot_start_is_refused_alike(self):
        job = self.run_to_end("--dry-run", "./missing")
        self.assertEqual(job.code, 2)
        self.assertIn("'./missing' does not exist", job.err)

    def test_twice_the_same(self):
        arguments = ("-n", "3", "-t", "3", "--gpus=5,6,7", "true")
        self.assertEqual(self.dry_run(*arguments), self.dry_run(*arguments))

    def test_command_lines_are_a_shells(self):
        words = ["a b", "it's", "$HOME", "line\nbreak", "", "rank-$local_rank", "back\\slash", "tab\tq'uote\\"]
        dump = self.script("w.sh", 'printf "%s\\0" "$@" > "$CASE/args.${LOCAL_RANK:-x}"\n')
        ranks = self.ranks(self.dry_run("-n2", dump, *words))
        self.assertEqual(len(ranks), 2)
        for rank, shown in enumerate(ranks):
            job = self.run_to_end("--no-python", "bash", "-c", shown["command"])
            self.assertEqual(job.code, 0, job.err)
            expected = [word.replace("$local_rank", str(rank)) for word in words]
            self.assertEqual(self.read("args.0").split("\0")[:-1], expected)

    def test_python_is_named(self):
        self.write("train.py", "")
        env = {"PYTHON_EXEC": shutil.which("true")}
        self.assertEqual(self.ranks(self.dry_run("train.py", "--lr=1", env=env))[0]["command"],
                         shlex.join([env["PYTHON_EXEC"], "-u", "train.py", "--lr=1"]))
        self.assertEqual(self.ranks(self.dry_run("-m", "pkg.mod", env=env))[0]["command"],
                         shlex.join([env["PYTHON_EXEC"], "-u", "-m", "pkg.mod"]))

    def test_environment_is_the_real_one(self):
        options = ("-n2", "--rdzv-id", "a/b c", "--role=r", "--max-restarts=2", "--log-dir", "logs", "--gpus=3,1",
                   "-r2", "--signals-to-handle=SIGTERM")
        worker = self.script("w.sh", 'env -0 > "$CASE/env.$RANK"\n')
        dry = self.ranks(self.dry_run(*options, worker, env={"MASTER_ADDR": "elsewhere"}))
        job = self.run_to_end(*options, worker, env={"MASTER_ADDR": "elsewhere"})
        self.assertEqual(job.code, 0, job.err)
        for rank in range(2):
            real = dict(entry.split("=", 1) for entry in self.read(f"env.{rank}").split("\0") if entry)
            # What a start adds to the environment, but for the shell's own.
            changed = {name: value for name, value in real.items()
                       if job.environment.get(name) != value and name not in ("_", "SHLVL", "PWD", "CASE_TAG")}
            changed["MASTER_PORT"] = "<a free port>"
            run = os.listdir(self.path("logs"))[0]
            changed["TORCHELASTIC_ERROR_FILE"] = changed["TORCHELASTIC_ERROR_FILE"].replace(run, run[:-8] + "XXXXXXXX")
            changed["CPPRUN_PROGRESS_PAGE"] = re.sub("(?<=cpprun_progress_)[a-z0-9_]{8}", "XXXXXXXX",
                                                     changed["CPPRUN_PROGRESS_PAGE"])
            shown = {name: value if value.startswith("<") else "".join(shlex.split(value))
                     for name, value in dry[rank]["environment"].items()}
            self.assertEqual(shown, changed)
            self.assertEqual(dry[rank]["folder"], self.folder)

    def test_streams(self):
        def streams(*options):
            return [(rank["stdout"], rank["stderr"]) for rank in self.ranks(self.dry_run("-n2", *options, "true"))]

        self.assertEqual(streams(), [("shown", "shown")] * 2)
        self.assertEqual(streams("--local-ranks-filter=1"), [("dropped", "dropped"), ("shown", "shown")])
        folder = self.path("tmp") + "/cpprun_XXXXXXXX/attempt_0/0"
        self.assertEqual(streams("-r0:1", "-t1:2")[0], (f"{folder}/stdout.log", "shown"))
        self.assertEqual(streams("-r0:1", "-t1:2")[1][1],
                         f"{folder[:-1]}1/stderr.log, and shown with the prefix '[default1]:'")
        self.assertIn("L/job_XXXXXXXX/attempt_0/1/stderr.log", streams("--log-dir=L", "--rdzv-id=job", "-r3")[1][1])
        self.assertEqual(streams("--log-dir=/dev/null", "-r3"), [("shown", "shown")] * 2)

    def test_gpus(self):
        ranks = self.ranks(self.dry_run("--gpus=2,4,7", "true", env={"CUDA_VISIBLE_DEVICES": "0"}))
        self.assertEqual([rank["environment"]["CUDA_VISIBLE_DEVICES"] for rank in ranks], ["2,4,7"] * 3)
        self.assertNotIn("HIP_VISIBLE_DEVICES", ranks[0]["environment"])
        ranks = self.ranks(self.dry_run("--gpus=2,4", "true", env={"HIP_VISIBLE_DEVICES": "0"}))
        self.assertEqual(ranks[0]["environment"]["HIP_VISIBLE_DEVICES"], "2,4")
        for workers in ("2", "gpu", "auto"):
            self.assertEqual(len(self.ranks(self.dry_run("--gpus=2,4", "--ppn", workers, "true"))), 2)

    def test_aliases_of_the_number_of_workers(self):
        for options in (["-n", "3"], ["-n3"], ["-np", "3"], ["--ppn=3"], ["--ppn", "3"]):
            self.assertEqual(len(self.ranks(self.dry_run(*options, "true"))), 3, options)


if __name__ == "__main__":
    unittest.main()

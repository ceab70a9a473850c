"""Each worker is told who it is, exactly as under torchrun."""
import os
import sys
import unittest

from harness import ScenarioTest

DUMP = 'env -0 > "$CASE/env.$RANK.$TORCHELASTIC_RESTART_COUNT"\n'


class Environment(ScenarioTest):
    def environment_of(self, rank, restart=0):
        entries = self.read(f"env.{rank}.{restart}").split("\0")
        return dict(entry.split("=", 1) for entry in entries if entry)

    def test_standalone(self):
        job = self.run_to_end("--nproc_per_node", "2", self.script("w.sh", DUMP))
        self.assertEqual(job.code, 0, job.err)
        first, second = self.environment_of(0), self.environment_of(1)
        for rank, env in enumerate((first, second)):
            expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default", "ROLE_RANK": str(rank),
                        "ROLE_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
                        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_USE_AGENT_STORE": "True",
                        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "1",
                        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT"}
            self.assertEqual({k: env.get(k) for k in expected}, expected)
            self.assertTrue(env["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json"))
        self.assertEqual(first["MASTER_PORT"], second["MASTER_PORT"])
        self.assertGreater(int(first["MASTER_PORT"]), 0)
        self.assertEqual(first["TORCHELASTIC_RUN_ID"], second["TORCHELASTIC_RUN_ID"])
        self.assert_tmp_empty()

    def test_what_the_user_chose(self):
        job = self.run_to_end("--rdzv-id=job7", "--role=trainer", "--max-restarts", "2", "--log-dir", "logs",
                              "--signals-to-handle", "SIGTERM,SIGUSR1", self.script("w.sh", DUMP),
                              env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "RANK": "77", "MASTER_ADDR": "elsewhere"})
        self.assertEqual(job.code, 0, job.err)
        env = self.environment_of(0)
        self.assertEqual(env["TORCHELASTIC_RUN_ID"], "job7")
        self.assertEqual(env["ROLE_NAME"], "trainer")
        self.assertEqual(env["TORCHELASTIC_MAX_RESTARTS"], "2")
        self.assertEqual(env["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "3")
        self.assertEqual(env["TORCHELASTIC_SIGNALS_TO_HANDLE"], "SIGTERM,SIGUSR1")
        self.assertEqual(env["MASTER_ADDR"], "127.0.0.1")
        self.assertEqual(env["RANK"], "0")
        self.assertNotIn("OMP_NUM_THREADS", env)

    def test_virtual_local_rank(self):
        job = self.run_to_end("--nproc-per-node=2", "--virtual-local-rank", "--log-dir=logs", "-t1",
                              self.script("w.sh", DUMP + "echo $1"), "${local_rank}",
                              env={"CUDA_VISIBLE_DEVICES": "4, 6", "LOCAL_RANK": "9"})
        self.assertEqual(job.code, 0, job.err)
        for rank in (0, 1):
            env = self.environment_of(rank)
            self.assertEqual((env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"], env["CUDA_VISIBLE_DEVICES"]),
                             ("0", "2", ("4", "6")[rank]))
            self.assertIn(f"/attempt_0/{rank}/error.json", env["TORCHELASTIC_ERROR_FILE"])
        self.assertEqual(sorted(job.out.splitlines()), ["[default0]:0", "[default1]:1"])  # the real local rank
        job = self.run_to_end("--virtual-local-rank", "./w.sh", env={"HIP_VISIBLE_DEVICES": "3"})
        env = self.environment_of(0)
        self.assertEqual((env["HIP_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]), ("3", "3"))

    def test_numa_binding(self):
        """On this machine, whatever it is: within our own CPUs, and apart where asked for."""
        self.script("w.sh", "grep Cpus_allowed_list /proc/self/status > $CASE/cpus.$RANK")

        def cpus(rank):
            numbers = set()
            for part in self.read(f"cpus.{rank}").split()[1].split(","):
                first, _, last = part.partition("-")
                numbers |= set(range(int(first), int(last or first) + 1))
            return numbers
        own = os.sched_getaffinity(0)
        one = min(own)
        for mode in ("node", "socket", "core-complex"):
            job = self.run_to_end("--nproc-per-node=2", f"--numa-binding={mode}", "./w.sh")
            self.assertEqual(job.code, 0, job.err)
            for rank in (0, 1):
                self.assertTrue(cpus(rank) and cpus(rank) <= own, f"{mode} {cpus(rank)} {own}")
            job = self.run_to_end("--numa-binding", mode, "./w.sh", wrap=("taskset", "-c", str(one)))
            self.assertEqual(cpus(0), {one}, job.err)
        with open(f"/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list") as f:
            siblings = f.read().strip()
        job = self.run_to_end("--nproc-per-node=2", "--numa-binding=exclusive", "./w.sh", wrap=("taskset", "-c", siblings))
        self.assertEqual(job.code, 2, job.err)  # one core cannot be had by two
        self.assertIn("has 1 physical core that cpprun may use, too few for 2 workers", job.err)
        self.assert_tmp_empty()
        if len(own) > 1 and siblings == str(one):
            job = self.run_to_end("--nproc-per-node=2", "--numa-binding=exclusive", "./w.sh")
            self.assertEqual(job.code, 0, job.err)
            self.assertTrue(cpus(0) and cpus(1) and not cpus(0) & cpus(1), (cpus(0), cpus(1)))

    def test_restart_count_and_fresh_port_stays(self):
        job = self.run_to_end("--max-restarts=1", self.script("w.sh", DUMP + "[ $TORCHELASTIC_RESTART_COUNT = 1 ]"))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(self.environment_of(0, 1)["TORCHELASTIC_RESTART_COUNT"], "1")

    def test_no_log_folder_at_all(self):
        job = self.run_to_end("--log-dir", "/dev/null", "-r", "3", self.script("w.sh", DUMP + "echo shown"))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(self.environment_of(0)["TORCHELASTIC_ERROR_FILE"], "")
        self.assertEqual(job.out, "shown\n")
        self.assert_tmp_empty()

    def test_worker_leads_its_own_session_and_group(self):
        job = self.run_to_end(self.script("w.sh", "echo $$ $(cut -d' ' -f5,6 /proc/$$/stat)"))
        pid, group, session = job.out.split()
        self.assertEqual((pid, pid), (group, session))

    def test_no_file_of_the_agent_is_inherited(self):
        job = self.run_to_end("--no-python", "--nproc-per-node=2", "-t", "3", "ls", "/proc/self/fd")
        self.assertEqual(job.code, 0, job.err)
        # 3 is the folder that ls itself has open.
        self.assertEqual(sorted(job.out.split()), sorted(f"[default{r}]:{fd}" for r in (0, 1) for fd in "0123"))

    def test_a_low_limit_of_open_files_is_the_workers_alone(self):
        job = self.run_to_end("-n8", "-t3", "--no-python", "sh", "-c", "ulimit -Sn",
                              wrap=("bash", "-c", 'ulimit -Sn 24; exec "$@"', "limited"))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()), [f"[default{rank}]:24" for rank in range(8)])
        self.assertNotIn("warning", job.err)

    def test_a_umask_that_takes_the_owners_bits_is_the_workers_alone(self):
        for umask in ("0777", "0277"):
            job = self.run_to_end("-n2", "-t3", f"--log-dir=logs.{umask}", "--no-python", "sh", "-c", "umask",
                                  wrap=("bash", "-c", f'umask {umask}; exec "$@"', "masked"))
            self.assertEqual(job.code, 0, job.err)
            self.assertEqual(sorted(job.out.splitlines()), [f"[default{rank}]:{umask}" for rank in (0, 1)])
            self.assertNotIn("warning", job.err)
            for folder, _, files in os.walk(self.path(f"logs.{umask}")):
                self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700, folder)
                for name in files:
                    self.assertEqual(os.stat(os.path.join(folder, name)).st_mode & 0o777, 0o600, name)

    def test_stdin_is_inherited(self):
        path = self.write("in", "typed\n")
        with open(path) as stdin:
            job = self.run_to_end("--no-python", "cat", stdin=stdin)
        self.assertEqual(job.out, "typed\n")

    def test_closed_standard_streams(self):
        job = self.run_to_end("--no-python", "bash", "-c", "echo x > $CASE/ran",
                              wrap=("bash", "-c", 'exec "$0" "$@" <&- >&- 2>&-'))
        self.assertEqual(job.code, 0)
        self.assertEqual(self.read("ran"), "x\n")


class Program(ScenarioTest):
    """How the program is found and run."""

    def test_python_script_by_interpreter_rules(self):
        self.write("show.py", "import sys; print(sys.argv, sys.stdout.write_through)")
        job = self.run_to_end("show.py", "--x", "1", env={"PYTHON_EXEC": sys.executable})
        self.assertEqual(job.out, "['show.py', '--x', '1'] True\n")  # unbuffered, as under torchrun
        self.assertIn(sys.executable, job.err)  # named at start
        os.makedirs(self.path("venv", "bin"))
        os.symlink(sys.executable, self.path("venv", "bin", "python"))
        job = self.run_to_end("show.py", env={"VIRTUAL_ENV": self.path("venv")})
        self.assertIn(self.path("venv", "bin", "python"), job.err)
        self.assertEqual(job.code, 0)

    def test_module(self):
        self.write("mod.py", "import sys; print('module', __name__, sys.argv[1:])")
        job = self.run_to_end("-m", "mod", "-m", "x", env={"PYTHON_EXEC": sys.executable})
        self.assertEqual(job.out, "module __main__ ['-m', 'x']\n")

    def test_shebang_runs_by_itself(self):
        self.script("w.sh", "echo by $0")
        job = self.run_to_end("./w.sh")
        self.assertEqual(job.out, "by ./w.sh\n")

    def test_text_without_shebang_is_python(self):
        self.write("plain", "print('python')")
        job = self.run_to_end("./plain", env={"PYTHON_EXEC": sys.executable})
        self.assertEqual(job.out, "python\n")

    def test_program_beside_cpprun(self):
        job = self.run_to_end("--no-python", "cpprun", "--version")
        self.assertEqual(job.code, 0, job.err)
        self.assertTrue(job.out.startswith("cpprun "), job.out)

    def test_local_rank_macro(self):
        job = self.run_to_end("--nproc-per-node=2", "-t", "1", "--no-python", "echo", "${local_rank}-$local_rank",
                              "a$$b", "$HOME", "${other}")
        self.assertEqual(sorted(job.out.splitlines()),
                         ["[default0]:0-0 a$$b $HOME ${other}", "[default1]:1-1 a$$b $HOME ${other}"])


if __name__ == "__main__":
    unittest.main()

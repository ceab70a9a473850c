"""A bad value of any option gets one sentence that names the option and where the value came from, and exit code 2."""
import json
import unittest

from harness import ScenarioTest
from torchrun_options import OPTIONS, OWN_OPTIONS, twin_of, variable_of

ALL = OPTIONS + OWN_OPTIONS
TRUE = ("--no-python", "true")


class BadValues(ScenarioTest):
    def refused(self, words, *arguments, env=None):
        job = self.run_to_end(*arguments, env=env)
        self.assertEqual(job.code, 2, f"{arguments} {env}: {job.err}")
        self.assertEqual(len(job.err.splitlines()), 1, job.err)
        for word in words:
            self.assertIn(word, job.err)
        self.assertEqual(job.out, "")
        self.assert_tmp_empty()

    def test_on_the_command_line(self):
        for option in ALL:
            with self.subTest(option.name):
                if option.good is None and option.name != "--config":
                    self.refused([option.name, "takes no value"], option.name + "=1", *TRUE)
                    self.refused([twin_of(option.name), "takes no value"], twin_of(option.name) + "=1", *TRUE)
                    continue
                self.refused([option.name, "needs a value"], option.name)
                if option.bad is not None:
                    self.refused([option.name, option.bad], f"{option.name}={option.bad}", *TRUE)
                    self.refused([option.name, option.bad], twin_of(option.name), option.bad, *TRUE)

    def test_in_variables(self):
        for option in ALL:
            if option.variable and option.bad is not None:
                with self.subTest(option.name):
                    source = [] if option.name == "--config" else [variable_of(option)]
                    self.refused([option.name, option.bad, *source], "true", env={variable_of(option): option.bad})

    def test_in_a_file(self):
        for option in ALL:
            if option.name in ("--print-completion", "--config") or option.bad is None:
                continue
            with self.subTest(option.name):
                key = option.name[2:]
                path = self.write("bad.json", json.dumps({"program": ["true"], key: option.bad}, indent=1))
                self.refused([key, "bad.json, line 5"], "--config", path)

    def test_other_variables(self):
        variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
        self.refused([variable, "'soon'"], *TRUE, env={variable: "soon"})

    def test_what_the_system_refuses_is_named_too(self):
        self.refused(["--log-dir (PET_LOG_DIR): cannot make the log folder"], *TRUE,
                     env={"PET_LOG_DIR": "/proc/nowhere"})
        self.refused(["--log-dir: cannot make the log folder"], "--log-dir=/proc/nowhere", *TRUE)
        job = self.run_to_end(*TRUE, env={"PET_EVENT_LOG_HANDLER": "file:/no/such/folder/events"})
        self.assertEqual(job.code, 2, job.err)
        self.assertIn("--event-log-handler (PET_EVENT_LOG_HANDLER): cannot open", job.err)

    def test_empty_values_that_mean_nothing(self):
        for name in ("--master-port", "--shutdown-timeout", "--gpus", "--config", "--max-restarts", "--nnodes",
                     "--nproc-per-node", "--node-rank", "--master-addr", "--start-method", "--rdzv-backend"):
            self.refused([name], name + "=", *TRUE)

    def test_more_values(self):
        for option, value, sentence in (
                ("--gpus", "", "empty"), ("--gpus", "2,", "list of GPUs"), ("--gpus", "-1", "list of GPUs"),
                ("--gpus", "a", "list of GPUs"), ("--gpus", "2,4,2", "2 is there twice"),
                ("--nproc-per-node", "xpu", "give the number"), ("--nproc-per-node", "gpux", "did you mean gpu?"),
                ("--rdzv-backend", "c10", "did you mean c10d?"),
                ("--start-method", "forksever", "did you mean forkserver?"),
                ("--print-completion", "tcsh", "bash, zsh or fish"),
                ("--rdzv-conf", "join_timeout=-1", "join_timeout=-1 is not a positive number of seconds"),
                ("--rdzv-conf", "last_call_timeout=0", "last_call_timeout=0 is not a positive"),
                ("--rdzv-conf", "timeout=x", "timeout=x is not a positive"), ("--rdzv-conf", "keep_alive_interval=-5", "positive"),
                ("--rdzv-conf", "backend=c10d", "use --rdzv-backend"),
                ("--rdzv-conf", "endpoint=h", "use --rdzv-endpoint"), ("--rdzv-conf", "run_id=1", "use --rdzv-id"),
                ("--rdzv-conf", "min_nodes=1", "use --nnodes"), ("--rdzv-conf", "max_nodes=1", "use --nnodes"),
                ("--rdzv-conf", "local_addr=h", "use --local-addr"),
                ("--master-addr", "host:29500", "without a port"), ("--local-addr", "a b", "an address"),
                ("--node-rank", "1", "below the number of nodes"), ("--logs-specs", "mine", "Python plug-ins")):
            with self.subTest(f"{option}={value}"):
                self.refused([option, sentence], f"{option}={value}", *TRUE)

    def test_gpus_and_workers_that_disagree(self):
        self.refused(["--nproc-per-node", "'3'", "--gpus lists, 2"], "--gpus=0,1", "-n", "3", *TRUE)
        self.refused(["PET_NPROC_PER_NODE"], "--gpus=0,1", *TRUE, env={"PET_NPROC_PER_NODE": "1"})


if __name__ == "__main__":
    unittest.main()

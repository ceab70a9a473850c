"""The command line: torchrun's spellings are taken, and what is wrong gets one clear sentence and exit code 2."""
import os
import unittest

from harness import ScenarioTest, free_port


class Accepted(ScenarioTest):
    def count(self, *options, env=None):
        job = self.run_to_end(*options, self.script("w.sh", "echo $WORLD_SIZE"), env=env)
        self.assertEqual(job.code, 0, job.err)
        return len(job.out.split())

    def test_spellings(self):
        for options in (["--nproc-per-node", "2"], ["--nproc_per_node", "2"], ["--nproc_per_node=2"],
                        ["--nproc-per=2"], ["--nproc-per-node=1", "--nproc_per_node=2"],
                        ["--standal", "--nproc_per_node=2"], ["--nproc_per_node=2", "--"]):
            self.assertEqual(self.count(*options), 2, options)

    def test_all_options_together(self):
        self.assertEqual(self.count("--standalone", "--nnodes=1:1", "--nproc-per-node=2", "--max-restarts=1",
                                    "--monitor-interval=0.5", "--start-method=fork", "--rdzv-backend=c10d",
                                    "--rdzv-endpoint=localhost:0", "--rdzv-id=x", "--rdzv-conf=join_timeout=3",
                                    "--role=r", "--local-addr=127.0.0.1", "--node-rank=0", "--no-python"), 2)

    def test_variables(self):
        self.assertEqual(self.count(env={"PET_NPROC_PER_NODE": "3", "PET_STANDALONE": "1", "PET_NO_PYTHON": "1"}), 3)
        self.assertEqual(self.count("--nproc-per-node=1", env={"PET_NPROC_PER_NODE": "3"}), 1)
        self.assertEqual(self.count(env={"PET_NPROC_PER_NODE": "", "PET_MAX_RESTARTS": ""}), 1)  # empty is unset

    def test_what_cannot_be_printed(self):
        for option in ("--help", "--version", "--print-completion=bash", "--dry-run"):
            with open("/dev/full", "w") as full:
                job = self.start(option, "--no-python", "true", stdout=full)
                self.assertEqual(job.end(), 4, option)
                self.assertRegex(job.err, r"^[^\n]*cannot write to stdout: No space left on device\n$")
            reader, writer = os.pipe()
            os.close(reader)
            job = self.start(option, "--no-python", "true", stdout=writer)
            os.close(writer)
            self.assertEqual((job.end(), job.err), (4, ""), option)

    def test_few_descriptors(self):
        for most in range(8, 25):
            job = self.run_to_end("-t3", "--no-python", "true",
                                  wrap=("bash", "-c", f'ulimit -n {most}; exec "$@"', "limited"))
            self.assertIn(job.code, (0, 4), f"{most}: {job.err}")
            self.assertNotRegex(job.err, r"Bad file descriptor|\[system:|/include/", most)

    def test_cpus(self):
        cpus = len(os.sched_getaffinity(0))
        self.assertEqual(self.count("--nproc-per-node=cpu"), cpus)
        self.assertGreaterEqual(self.count("--nproc-per-node=auto"), 1)

    def test_static_single_node_uses_the_given_port_and_address(self):
        import socket
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        job = self.run_to_end("--master-addr=localhost", f"--master-port={port}", "--no-python", "bash", "-c",
                              "echo $MASTER_ADDR:$MASTER_PORT")
        self.assertEqual(job.out, f"localhost:{port}\n", job.err)

    def test_everything_behind_the_program_is_the_programs(self):
        words = ["--r=16", "-t", "3", "--nnodes", "9", "--help", "-h", "--", "-m", "--bogus", ""]
        job = self.run_to_end(self.script("w.sh", 'printf "%s\\n" "$@"'), *words)
        self.assertEqual(job.out, "".join(w + "\n" for w in words))

    def test_an_empty_variable_for_temporary_files_counts_for_nothing(self):
        self.assertEqual(self.count("-t", "3", env={"TMPDIR": "", "TMP": self.path("tmp")}), 1)

    def test_help_and_version(self):
        for flag in ("-h", "--help"):
            job = self.run_to_end(flag)
            self.assertEqual(job.code, 0)
            for word in ("--nproc-per-node", "-np", "--max-restarts", "PET_", "Exit codes", "localhost, port 29400"):
                self.assertIn(word, job.out)
        self.assertRegex(self.run_to_end("--version").out, r"^cpprun \d+\.\d+\.\d+\n$")


class Noticed(ScenarioTest):
    """What can be run and is likely a slip gets one warning."""

    def warnings(self, *arguments, env=None):
        job = self.run_to_end(*arguments, "--no-python", "true", env=env)
        self.assertEqual(job.code, 0, job.err)
        return [line.split("warning: ", 1)[1] for line in job.err.splitlines() if " warning: " in line]

    def test_settings_without_effect(self):
        c10d = ("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}")
        for arguments, env, expected in (
                (("--rdzv-conf=jion_timeout=3",), {},
                 ["--rdzv-conf: the unknown key 'jion_timeout' has no effect; did you mean join_timeout?"]),
                ((), {"PET_RDZV_CONF": "colour=red,close_timeout=3"},
                 ["--rdzv-conf (PET_RDZV_CONF): the unknown key 'colour' has no effect"]),
                ((*c10d, "--rdzv-conf=timeout=900,keep_alive_interval=1"), {},
                 ["--rdzv-conf: the key 'timeout' has no effect with --rdzv-backend c10d; it is for static and etcd"]),
                ((*c10d, "--rdzv-conf=join_timeout=900,is_host=1"), {}, [])):
            with self.subTest(arguments):
                self.assertEqual(self.warnings(*arguments, env=env), expected)


    def test_values_without_effect(self):
        port = free_port()
        twice = f"127.0.0.1:{port}"
        for arguments, env, expected in (
                (("-r", "0:3,9:1", "-n2"), {}, "--redirects: no worker of this node has the local rank 9"),
                (("-t", "2:1", "-n2"), {}, "--tee: no worker of this node has the local rank 2"),
                (("--local-ranks-filter=0,9",), {},
                 "--local-ranks-filter: no worker of this node has the local rank 9"),
                (("--rdzv-backend=c10d", f"--rdzv-endpoint={twice},{twice}"), {},
                 f"--rdzv-endpoint: '{twice}' is there twice"),
                ((), {"PET_RDZV_ID": "a\nb"},
                 "--rdzv-id (PET_RDZV_ID): 'a\\x0ab' holds characters that cannot be seen"),
                ((), {"LOGLEVEL": "FOO"},
                 "LOGLEVEL: 'FOO' is none of DEBUG, INFO, WARNING, ERROR and CRITICAL; it counts as INFO"),
                ((), {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "abc"},
                 "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT: 'abc' is not a positive number of seconds; "
                 "nobody looks for stuck workers")):
            with self.subTest(expected):
                self.assertEqual(self.warnings(*arguments, env=env), [expected])
        for arguments, env in ((("-r", "1:3", "-t", "0:3", "-n2", "--local-ranks-filter=1"), {"LOGLEVEL": "warning"}),
                               ((), {"LOGLEVEL": "", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0"})):
            self.assertEqual(self.warnings(*arguments, env=env), [])


class Refused(ScenarioTest):
    def refused(self, sentence, *arguments, env=None):
        job = self.run_to_end(*arguments, env=env)
        self.assertEqual(job.code, 2, f"{arguments}: {job.err}")
        lines = job.err.strip().splitlines()
        self.assertEqual(len(lines), 1, job.err)
        self.assertIn(sentence, lines[0])
        self.assertEqual(job.out, "")
        self.assert_tmp_empty()

    def test_options(self):
        true = ("--no-python", "true")
        self.refused("unknown option --bogus", "--bogus", *true)
        self.refused("did you mean --max-restarts?", "--max-restart5", "1", *true)
        self.refused("unknown option -x", "-x", *true)
        self.refused("needs a value", "--nnodes")
        self.refused("takes no value", "--standalone=yes", *true)
        self.refused("ambiguous", "--rdzv", "x", *true)
        self.refused("no program to run")
        self.refused("no program to run", "--nproc-per-node=2")
        self.refused("exclude each other", "-m", *true)

    def test_values(self):
        true = ("--no-python", "true")
        for option, value, sentence in (
                ("--nproc-per-node", "abc", "'abc' is not a whole number from 1 to 10000"),
                ("--nproc-per-node", "0", "from 1 to"), ("--nproc-per-node", "-1", "from 1 to"),
                ("--nproc-per-node", "1000000", "from 1 to"),
                ("--nproc-per-node", "", "from 1 to"),
                ("--nproc-per-node", "gpu", "no GPU"), ("--nnodes", "1:2:3", "of the form N or MIN:MAX"),
                ("--nnodes", "x", "whole number"), ("--nnodes", "0", "from 1 up"), ("--nnodes", "2:1", "larger"),
                ("--max-restarts", "-1", "from 0 up"), ("--max-restarts", "1.5", "whole number"),
                ("--max-restarts", "99999999999", "whole number"),
                ("--hang-detection", "silence", "is not 'on', 'off' or a setting such as silence=60"),
                ("--hang-detection", "silence=0", "silence=0 is not a number of seconds from 0.1 up or 'off'"),
                ("--monitor-interval", "0", "positive number of seconds"), ("--monitor-interval", "x", "positive"),
                ("--start-method", "zzz", "spawn, fork or forkserver"), ("--rdzv-backend", "foo", "backend"),
                ("--rdzv-conf", "a", "key=value"), ("--master-port", "65536", "to 65535"),
                ("--redirects", "4", "neither 0 (none)"), ("--tee", "0:9", "neither 0 (none)"),
                ("--shutdown-timeout", "-3", "from 0"), ("--signals-to-handle", "SIGNOPE", "signal"),
                ("--signals-to-handle", "SIGKILL", "signal"), ("--local-ranks-filter", "a", "whole number"),
                ("--event-log-handler", "kafka", "null, console, dynamic_rendezvous and file:PATH"),
                ("--numa-binding", "nodes", "node, socket, exclusive or core-complex"),
                ("--node-rank", "x", "whole number")):
            self.refused(sentence, f"{option}={value}", *true)
            self.refused(option, option, value, *true)
        self.refused("CUDA_VISIBLE_DEVICES='5' names 1 device, too few", "--virtual-local-rank", "--nproc-per-node=2",
                     *true, env={"CUDA_VISIBLE_DEVICES": "5"})
        self.refused("need log files", "--log-dir=/dev/null", "--duplicate-stderr-filters=x", *true)
        self.refused("lacks its port", "--rdzv-endpoint=host", *true)
        self.refused("no port", "--rdzv-backend=c10d", "--rdzv-endpoint=h:99999", *true)
        self.refused("--max-restarts", *true, env={"PET_MAX_RESTARTS": "yes"})
        self.refused("1 or 0", *true, env={"PET_STANDALONE": "maybe"})
        self.refused("TMPDIR", *true, env={"TMPDIR": "/no/such/folder"})
        self.refused("'/no/such/folder' (TMP)", *true, env={"TMPDIR": "", "TMP": "/no/such/folder"})
        self.refused("unknown option --b\\x1b[31m\\x0ax", "--b\x1b[31m\nx", *true)

    def test_programs(self):
        self.refused("the script 'missing.py' does not exist", "missing.py", env={"PYTHON_EXEC": "/bin/true"})
        self.refused("'./missing' does not exist", "./missing")
        self.refused("'cpprun-no-such-thing' does not exist", "--no-python", "cpprun-no-such-thing")
        self.refused("is not a file", self.folder)
        os.symlink("loop.py", self.path("loop.py"))  # as what lies in a folder that may not be searched
        self.refused("the script 'loop.py' cannot be reached: Too many levels of symbolic links", "loop.py")
        self.refused("the program './loop.py' cannot be reached: Too many", "--no-python", "./loop.py")
        self.write("not-executable", "#!/bin/sh\n")
        self.refused("'./not-executable' is not executable", "./not-executable")
        self.refused("is not executable", "--no-python", "./not-executable")
        self.refused("PYTHON_EXEC='/no/python' is no executable file", "-m", "x", env={"PYTHON_EXEC": "/no/python"})
        self.refused("no Python found", "-m", "x", env={"PATH": self.folder})


if __name__ == "__main__":
    unittest.main()

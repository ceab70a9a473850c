"""Jobs of several nodes: each node is a cpprun of its own; here all on one machine."""
import glob
import json
import os
import signal
import socket
import unittest

from harness import ScenarioTest, children, free_port, until

ENVIRONMENT = 'echo "$RANK $LOCAL_RANK $GROUP_RANK $GROUP_WORLD_SIZE $WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE ' \
              '$TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT" >> $CASE/env.$NODE.$LOCAL_RANK\n'


class NodesTest(ScenarioTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def node(self, rank, *arguments, nodes=2, static=True, run="job", **options):
        environment = {"NODE": str(rank), "PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": "1", "PET_RDZV_ID": run}
        environment.update(options.pop("env", {}))
        if static:
            where = ["--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", str(self.port)]
        else:
            where = ["--rdzv-backend=c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}"]
        return self.start(*where, *arguments, env=environment, **options)

    def two_that_run(self, *of_the_second):
        """Nodes 0 and 1, whose workers are up and sleep."""
        self.script("w.sh", "touch $CASE/up.$NODE; exec sleep 300")
        nodes = self.node(0, "./w.sh"), self.node(1, *of_the_second, "./w.sh")
        self.wait_for_files("up.0", "up.1")
        return nodes

    def end(self, *jobs):
        for job in jobs:
            job.code = job.end()
            self.assert_nothing_left(job)
        return [job.code for job in jobs]

    def reports(self, logs):
        return [json.loads(self.read(path)) for path in glob.glob(self.path(logs, "*", "attempt_*", "failure.json"))]


class Rounds(NodesTest):
    def test_ranks_by_node_rank_whoever_comes_first(self):
        self.script("w.sh", ENVIRONMENT)
        late = self.node(1, "--nproc-per-node=2", "./w.sh")
        first = self.node(0, "--nproc-per-node=3", "./w.sh")
        self.assertEqual(self.end(first, late), [0, 0], first.err + late.err)
        end = f"0 127.0.0.1 {self.port}\n"
        for local in range(3):
            self.assertEqual(self.read(f"env.0.{local}"), f"{local} {local} 0 2 5 {local} 5 {end}")
        for local in range(2):
            self.assertEqual(self.read(f"env.1.{local}"), f"{3 + local} {local} 1 2 5 {3 + local} 5 {end}")
        self.assert_tmp_empty()

    def test_each_nodes_workers_get_node_0_as_their_own_user_spelled_it(self):
        self.script("w.sh", ENVIRONMENT)
        first = self.node(0, "./w.sh")
        second = self.node(1, "--master-addr", "localhost", "./w.sh")
        self.assertEqual(self.end(first, second), [0, 0], first.err + second.err)
        self.assertEqual([self.read(f"env.{node}.0").split()[8] for node in "01"], ["127.0.0.1", "localhost"])

    def test_roles_count_apart(self):
        self.script("w.sh", ENVIRONMENT)
        jobs = [self.node(rank, "--role", role, "./w.sh", nodes=3) for rank, role in enumerate(["a", "b", "a"])]
        self.assertEqual(self.end(*jobs), [0, 0, 0])
        roles = [self.read(f"env.{node}.0").split()[5:7] for node in range(3)]
        self.assertEqual(roles, [["0", "2"], ["0", "1"], ["1", "2"]])

    def test_c10d_without_node_ranks(self):
        self.script("w.sh", ENVIRONMENT)
        jobs = [self.node(n, "./w.sh", nodes=3, static=False) for n in range(3)]
        self.assertEqual(self.end(*jobs), [0, 0, 0], [job.err for job in jobs])
        lines = [self.read(f"env.{node}.0").split() for node in range(3)]
        self.assertEqual(sorted(line[0] for line in lines), ["0", "1", "2"])
        self.assertEqual(len({(line[8], line[9]) for line in lines}), 1)
        self.assertNotEqual(lines[0][9], str(self.port))  # the workers' store is another than the agents'

    def test_a_failure_anywhere_restarts_all_and_is_charged_once(self):
        self.script("w.sh", ENVIRONMENT + """
            touch $CASE/up.$NODE.$TORCHELASTIC_RESTART_COUNT
            until [ -e $CASE/up.0.$TORCHELASTIC_RESTART_COUNT ] && [ -e $CASE/up.1.$TORCHELASTIC_RESTART_COUNT ]
            do sleep 0.02; done
            case $NODE$TORCHELASTIC_RESTART_COUNT in
              00|10|11) exit 3;;   # both nodes at once in the first attempt, node 1 in the second
              01) sleep 300;;
            esac""")
        jobs = [self.node(rank, "--max-restarts=2", "./w.sh") for rank in (0, 1)]
        self.assertEqual(self.end(*jobs), [0, 0], jobs[0].err + jobs[1].err)
        for node in "01":
            counts = [line.split()[7] for line in self.read(f"env.{node}.0").splitlines()]
            self.assertEqual(counts, ["0", "1", "2"])

    def test_the_workers_store_is_empty_in_each_attempt(self):
        self.write("w.py", """
import os, socket, struct, sys
def text(s): return struct.pack("<Q", len(s)) + s
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
s.sendall(b"\\x00" + struct.pack("<I", 0x3C85F7CE) + b"\\x04" + text(b"/n") + struct.pack("<q", 1))
n = struct.unpack("<q", s.recv(8))[0]
print(os.environ["TORCHELASTIC_RESTART_COUNT"], n, flush=True)
sys.exit(5 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1" else 0)
""")
        jobs = [self.node(rank, "--max-restarts=1", "w.py") for rank in (0, 1)]
        self.assertEqual(self.end(*jobs), [0, 0], jobs[0].err + jobs[1].err)
        self.assertLessEqual({"1 1", "1 2"}, set((jobs[0].out + jobs[1].out).splitlines()))

    def test_an_early_node_waits_for_the_others(self):
        self.script("w.sh", 'touch $CASE/done.$NODE; [ $NODE = 0 ] || until [ -e $CASE/go ]; do sleep 0.02; done')
        first, second = self.node(0, "./w.sh"), self.node(1, "./w.sh")
        self.wait_for_files("done.0", "done.1")
        # Its worker has ended, the agent serves on: reachable for the other's.
        self.assertTrue(until(lambda: not children(first.agent())))
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.assertIsNone(first.process.poll())
        self.write("go", "")
        self.assertEqual(self.end(first, second), [0, 0])

    def test_agents_may_open_more_files_than_the_workers(self):
        self.script("w.sh", 'ulimit -Sn >$CASE/soft.$NODE; ulimit -Hn >$CASE/hard.$NODE; touch $CASE/up.$NODE; sleep 300')
        nodes = [self.node(node, "--rdzv-conf", f"is_host={is_host}", "./w.sh", static=False,
                           wrap=("prlimit", "--nofile=500:600")) for node, is_host in enumerate(("true", "false"))]
        self.wait_for_files("up.0", "up.1")
        limits = []
        for node in nodes:
            with open(f"/proc/{node.agent()}/limits") as file:
                limits += [line.split()[3:5] for line in file if line.startswith("Max open files")]
        self.assertEqual(limits, [["600", "600"], ["600", "600"]])
        for node in range(2):
            self.assertEqual((self.read(f"soft.{node}"), self.read(f"hard.{node}")), ("500\n", "600\n"))
        for node in nodes:
            node.signal(signal.SIGTERM)
        self.end(*nodes)


class Ends(NodesTest):
    def test_a_failure_for_good_is_every_nodes_failure_with_the_same_cause(self):
        self.script("w.sh", """
            touch $CASE/up.$NODE
            [ $NODE = 1 ] || exec sleep 300
            until [ -e $CASE/up.0 ]; do sleep 0.02; done
            echo "these were my last words" >&2; exit 9""")
        jobs = [self.node(rank, "--log-dir", f"logs{rank}", "./w.sh") for rank in (0, 1)]
        self.assertEqual(self.end(*jobs), [1, 1], jobs[0].err + jobs[1].err)
        for rank, job in enumerate(jobs):
            self.assertIn("exitcode  : 9 (pid:", job.err)
            self.assertIn("these were my last words", job.err)
            (report,) = self.reports(f"logs{rank}")
            self.assertEqual((report["root_cause"]["global_rank"], report["root_cause"]["exit_code"]), (1, 9))
            self.assertEqual(report["root_cause"]["stderr_tail"], ["these were my last words"])
        self.assertEqual([failure["stopped_by_agent"] for failure in self.reports("logs0")[0]["failures"]], [True])

    def test_each_failed_attempt_is_reported_on_every_node(self):
        self.script("w.sh", """
            touch $CASE/up.$NODE.$TORCHELASTIC_RESTART_COUNT
            [ $NODE = $((1 - TORCHELASTIC_RESTART_COUNT)) ] || exec sleep 300
            until [ -e $CASE/up.$((1 - NODE)).$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.02; done
            exit 1$TORCHELASTIC_RESTART_COUNT""")
        jobs = [self.node(rank, "--max-restarts=1", "--log-dir", f"logs{rank}", "./w.sh") for rank in (0, 1)]
        self.assertEqual(self.end(*jobs), [1, 1], jobs[0].err + jobs[1].err)
        for rank in (0, 1):
            causes = [(report["attempt"], report["root_cause"]["global_rank"], report["root_cause"]["exit_code"])
                      for report in self.reports(f"logs{rank}")]
            self.assertEqual(sorted(causes), [(0, 1, 10), (1, 0, 11)])

    def test_a_node_that_is_stopped_ends_the_others(self):
        self.script("w.sh", "touch $CASE/up.$NODE; exec sleep 300")
        for stopped in (0, 1):
            jobs = [self.node(rank, "./w.sh") for rank in (0, 1)]
            self.wait_for_files("up.0", "up.1")
            jobs[stopped].signal(signal.SIGTERM)
            codes = self.end(*jobs)
            self.assertEqual(codes[stopped], 128 + signal.SIGTERM)
            self.assertEqual(codes[1 - stopped], 1, jobs[1 - stopped].err)
            self.assertRegex(jobs[1 - stopped].err, rf"node {stopped} \(.*\) was stopped by SIGTERM")
            os.unlink(self.path("up.0"))
            os.unlink(self.path("up.1"))

    def test_a_killed_node_is_noticed_and_its_replacement_goes_on(self):
        self.script("w.sh", """
            trap 'touch $CASE/stopped.$NODE; exit' TERM
            touch $CASE/up.$NODE.$TORCHELASTIC_RESTART_COUNT
            [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 300 & wait""")
        more = ("--max-restarts=1", "./w.sh")
        first, second = self.node(0, *more), self.node(1, *more)
        self.wait_for_files("up.0.0", "up.1.0")
        os.kill(second.agent(), signal.SIGKILL)
        self.assertEqual(self.end(second), [137])
        self.wait_for_files("stopped.0")  # one that stands ready before the loss is noticed costs no restart
        again = self.node(1, *more)
        self.assertEqual(self.end(first, again), [0, 0], first.err + again.err)
        self.assertRegex(first.err, r"node 1 \(.*\) has not been heard of for 3 s; restarting all workers")

    def test_a_killed_node_without_restarts_left(self):
        first, second = self.two_that_run()
        os.kill(second.agent(), signal.SIGKILL)
        self.assertEqual(self.end(first, second), [1, 137])
        self.assertIn("has not been heard of for 3 s; no restarts left", first.err)

    def test_a_guardian_killed(self):
        """Of whichever node: its agent tells the others, and they are not left without a verdict."""
        self.script("w.sh", "touch $CASE/up.$NODE; exec sleep 300")
        for killed in (0, 1):
            jobs = [self.node(rank, "./w.sh") for rank in (0, 1)]
            self.wait_for_files("up.0", "up.1")
            jobs[killed].signal(signal.SIGKILL)
            self.end(*jobs)
            self.assertEqual([jobs[killed].code, jobs[1 - killed].code], [-signal.SIGKILL, 1], jobs[1 - killed].err)
            self.assertRegex(jobs[1 - killed].err, rf"node {killed} \(.*\): its cpprun was killed")
            os.unlink(self.path("up.0"))
            os.unlink(self.path("up.1"))

    def test_the_stores_host_killed(self):
        first, second = self.two_that_run("--max-restarts=3")
        os.kill(first.agent(), signal.SIGKILL)
        self.assertEqual(self.end(first, second), [137, 3], second.err)
        self.assertIn("the agent that led the run was lost", second.err)
        self.assertIn(f"127.0.0.1:{self.port}: Connection refused", second.err)
        self.assertIn("the logs are in ", second.err)

    def test_what_failed_before_the_rendezvous_was_lost_is_reported(self):
        self.script("w.sh", "touch $CASE/up.$NODE; until [ -e $CASE/go ]; do sleep 0.02; done\n"
                            "[ $NODE = 0 ] && exec sleep 300\necho the dataset is empty >&2; exit 7")
        first = self.node(0, "./w.sh")
        second = self.node(1, "--max-restarts=3", "--rdzv-conf=timeout=10", "./w.sh")
        self.wait_for_files("up.0", "up.1")
        os.kill(first.agent(), signal.SIGSTOP)
        self.write("go", "")
        self.assertEqual(self.end(second), [3], second.err)
        self.assertIn("the dataset is empty", second.err)
        self.assertRegex(second.err, "exit ?code *:? *7")
        logs = second.err.split("the logs are in ")[1].splitlines()[0].split(";")[0]
        with open(os.path.join(logs, "attempt_0", "failure.json")) as file:
            self.assertEqual(json.load(file)["failures"][0]["exit_code"], 7)
        os.kill(first.agent(), signal.SIGKILL)
        self.end(first)

    def test_a_stopped_agent_is_lost(self):
        first, second = self.two_that_run()
        agent = second.agent()
        os.kill(agent, signal.SIGSTOP)
        self.assertEqual(self.end(first), [1])
        self.assertIn("has not been heard of", first.err)
        os.kill(agent, signal.SIGCONT)
        self.end(second)
        self.assertNotEqual(second.code, 0)

    def test_a_leader_that_was_stopped_blames_itself(self):
        first, second = self.two_that_run()
        agent = first.agent()
        os.kill(agent, signal.SIGSTOP)
        self.assertEqual(self.end(second), [3], second.err)
        os.kill(agent, signal.SIGCONT)
        self.assertEqual(self.end(first), [3], first.err)
        self.assertRegex(first.err, r"the rendezvous was lost: .*: this agent did not run for \d+\.\d s "
                                    r"\(it was stopped, or the machine was suspended\)")
        self.assertNotIn("does not answer", first.err)


class Joining(NodesTest):
    def test_the_trouble_with_each_endpoint_is_named(self):
        ports = [free_port() for _ in range(3)]
        job = self.start("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=job",
                         "--rdzv-endpoint=" + ",".join(f"127.0.0.1:{port}" for port in ports),
                         "--rdzv-conf=is_host=false,join_timeout=3,read_timeout=3", "--no-python", "true")
        self.assertEqual(self.end(job), [3], job.err)
        for port in ports:
            self.assertIn(f"127.0.0.1:{port}: Connection refused", job.err.splitlines()[-1])

    def test_interrupted_while_waiting(self):
        for static in (True, False):
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                job = self.node(0, "--no-python", "true", static=static)
                self.assertTrue(until(lambda: self.listening()))
                job.signal(number)
                self.assertEqual(self.end(job), [code], job.err)
                self.assert_tmp_empty()

    def listening(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    def test_time_out_names_who_is_missing(self):
        job = self.node(0, "--rdzv-conf=timeout=1", "--no-python", "true", nodes=3)
        self.assertEqual(self.end(job), [3])
        self.assertRegex(job.err, r"timed out.*1 of 3 nodes have joined \(node 0 \(.*\)\); missing: node 1, node 2")

    def test_the_first_line_and_the_waiting_name_where_nodes_meet(self):
        """Also where the user named no endpoint and no run."""
        conf = "--rdzv-conf=join_timeout=0.1"
        job = self.run_to_end("--nnodes=2", "--rdzv-backend=c10d", conf + ",is_host=false", "--no-python", "true")
        self.assertEqual(job.code, 3)
        self.assertRegex(job.err, r"info: run without a name of its own \(--rdzv-id\): .* c10d at localhost:29400\n")
        self.port = free_port()
        job = self.node(0, conf, "--no-python", "true", static=False)
        self.assertEqual(self.end(job), [3])
        self.assertIn(f"run job: 1 worker a node, 2 nodes, 0 restarts, c10d at 127.0.0.1:{self.port}", job.err)
        self.assertIn(f"timed out: the rendezvous at 127.0.0.1:{self.port} was not complete within 100 ms", job.err)

    def test_time_out_where_nobody_serves(self):
        job = self.node(1, "--rdzv-conf=timeout=1", "--no-python", "true")
        self.assertEqual(self.end(job), [3])
        self.assertIn(f"timed out: no agent served the rendezvous within 1 s: cannot connect to the store at "
                      f"127.0.0.1:{self.port}: Connection refused", job.err)

    def test_time_out_where_nobody_answers(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.port = silent.getsockname()[1]
            job = self.node(1, "--rdzv-conf=timeout=0.3", "--no-python", "true")
            self.assertEqual(self.end(job), [3])
        self.assertIn(f"no agent served the rendezvous within 300 ms: no answer has come from "
                      f"127.0.0.1:{self.port}", job.err)

    def test_another_run_and_another_size_are_refused(self):
        first = self.node(0, "--no-python", "true")
        other = self.node(1, "--no-python", "true", run="other")
        self.assertEqual(self.end(other), [3])
        self.assertIn("serves another run (compare --rdzv-id)", other.err)
        larger = self.node(1, "--no-python", "true", nodes=3)
        self.assertEqual(self.end(larger), [3])
        self.assertIn("it expects 3 nodes and this run has 2 (compare --nnodes)", larger.err)
        second = self.node(1, "--no-python", "true")
        self.assertEqual(self.end(first, second), [0, 0])

    def test_another_kind_of_rendezvous_is_refused(self):
        for static in (True, False):
            first = self.node(0, "--rdzv-conf=is_host=1" if not static else "--role=r", "--no-python", "true",
                              static=static)
            self.assertTrue(until(self.listening))
            other = self.node(1, "--no-python", "true", static=not static)
            self.assertEqual(self.end(other), [3])
            self.assertIn("(compare --rdzv-backend)", other.err)
            second = self.node(1, "--no-python", "true", static=static)
            self.assertEqual(self.end(first, second), [0, 0], first.err + second.err)

    def test_other_rules_are_noticed_on_both_sides(self):
        first = self.node(0, "--max-restarts=2", "--no-python", "true")
        second = self.node(1, "--max-restarts=1", "--no-python", "true")
        self.assertEqual(self.end(first, second), [0, 0])
        self.assertRegex(first.err, r"warning: rendezvous: .* at 127.0.0.1 was "
                                    r"started with --max-restarts 1, not 2 as here")
        self.assertRegex(second.err, "warning: rendezvous at .* this node was started with --max-restarts 1, not 2")
        self.assertEqual((first.err + second.err).count("--max-restarts 1, not 2"), 2)

    def test_a_job_of_one_node_at_the_port_is_no_rendezvous(self):
        alone = self.start("--master-port", str(self.port), "--no-python", "sleep", "300")
        self.assertTrue(until(self.listening))
        job = self.node(1, "--no-python", "true")
        self.assertEqual(self.end(job), [3])
        self.assertIn("a store answers there, but no cpprun agent of several nodes", job.err)
        alone.signal(signal.SIGTERM)
        self.end(alone)

    def test_port_in_use_at_the_stores_host(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.port = taken.getsockname()[1]
            job = self.node(0, "--no-python", "true")
            self.assertEqual(self.end(job), [4])
        self.assertRegex(job.err, f"{self.port}.*in use")

    def test_a_port_that_a_passing_connection_has_is_waited_for(self):
        """c10d: a port in use where nobody listens is not another agent's; it comes free."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            passing = socket.socket()
            passing.bind(("127.0.0.1", self.port))
            passing.connect(listener.getsockname())
            jobs = [self.node(n, "--no-python", "true", static=False) for n in range(2)]
            self.assertTrue(until(lambda: all(children(job.pid) for job in jobs)))
            listener.accept()[0].close()  # first: the port that lingers is then the listener's
            passing.close()
        self.assertEqual(self.end(*jobs), [0, 0], jobs[0].err + jobs[1].err)

    def test_wrong_usage(self):
        for arguments, why in (
                (("--nnodes=2", "--standalone"), "--standalone is for one node"),
                (("--nnodes=2", "--node-rank=2"), "--node-rank: '2' is not below the number of nodes, 2"),
                (("--nnodes=2", "--rdzv-endpoint=h"), "lacks its port"),
                (("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:0"), "port 0 is for one node"),
                (("--nnodes=2", "--rdzv-id="), "--rdzv-id: several nodes need the same name"),
                (("--nnodes=2", "--rdzv-conf=timeout=-1"), "timeout=-1 is not a positive number of seconds"),
                (("--nnodes=1:2",), "--nnodes: '1:2' is not a fixed number, as --rdzv-backend static needs"),
                (("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1,,g:2"), "has an empty place"),
                (("--nnodes=2", "--rdzv-endpoint=h:1,g:2"), "a list of endpoints is for --rdzv-backend c10d or etcd")):
            job = self.run_to_end(*arguments, "--no-python", "true")
            self.assertEqual(job.code, 2, job.err)
            self.assertIn(why, job.err)


if __name__ == "__main__":
    unittest.main()

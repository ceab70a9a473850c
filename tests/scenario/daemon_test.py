"""cpprund: the rendezvous of many jobs and a store on one port, seen by jobs, clients, operators and systemd."""
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import unittest
import urllib.request

from daemon import CPPRUND, HELLO, DaemonTest, set_request, text
from harness import LIMIT, free_port, until

# A worker says that it has begun, and waits for its end.
WORKER = """echo "$WORLD_SIZE $RANK $TORCHELASTIC_RESTART_COUNT" >> $CASE/starts.$NODE
trap 'exit 0' TERM
until [ -e $CASE/go ]; do sleep 0.02; done
[ ! -e $CASE/fail.$NODE.$TORCHELASTIC_RESTART_COUNT ]
"""


class WorkerTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.script("w.sh", WORKER)

    def starts(self, name):
        with contextlib.suppress(FileNotFoundError):
            return [line.split() for line in self.read(f"starts.{name}").splitlines()]
        return []

    def wait_for_starts(self, count, *names):
        self.assertTrue(until(lambda: all(len(self.starts(name)) == count for name in names)),
                        [self.starts(name) for name in names])

    def end(self, *jobs):
        codes = [job.end() for job in jobs]
        for job in jobs:
            self.assert_nothing_left(job)
        return codes

    def go(self):
        self.write("go", "")


class Jobs(WorkerTest):
    def test_two_nodes_meet_and_their_run_is_forgotten(self):
        daemon = self.daemon()
        jobs = [self.node(daemon, name) for name in "ab"]
        self.wait_for_starts(1, *"ab")
        self.assertEqual(daemon.metric('cpprund_run_agents{run="job"}'), 2)
        self.assertEqual(daemon.metric('cpprund_run_nodes{run="job"}'), 2)
        self.assertEqual(until(lambda: daemon.metric('cpprund_run_running{run="job"}')), 1)
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertEqual(sorted(self.starts(name)[0][1] for name in "ab"), ["0", "1"])
        self.assertTrue(until(lambda: daemon.metric("cpprund_runs") == 0))
        # The daemon outlives them: the next run of that name is a new one.
        self.write("starts.a", "")
        again = self.node(daemon, "a", nodes="1:2", command=("true",))
        other = self.node(daemon, "b", nodes="1:2", command=("true",))
        self.assertEqual(self.end(again, other), [0, 0], [again.err, other.err])
        self.assertEqual(daemon.metric("cpprund_runs_opened_total"), 2)

    def test_a_failure_restarts_all_and_the_budget_is_the_runs(self):
        daemon = self.daemon()
        self.write("fail.a.0", "")
        self.write("fail.b.1", "")
        self.go()
        jobs = [self.node(daemon, name, "--max-restarts=1") for name in "ab"]
        codes = self.end(*jobs)
        self.assertEqual(codes, [1, 1], [job.err for job in jobs])
        for job in jobs:
            self.assertIn("attempt 1: started", job.err)
            self.assertNotIn("attempt 2: started", job.err)

    def test_a_killed_agent_is_replaced(self):
        daemon = self.daemon()
        jobs = {name: self.node(daemon, name, nodes="2:3") for name in "abc"}
        self.wait_for_starts(1, *"abc")
        victim = jobs.pop("c")
        os.kill(victim.agent(), signal.SIGKILL)
        self.wait_for_starts(2, *"ab")
        self.assertEqual([self.starts(name)[-1][0] for name in "ab"], ["2", "2"])
        jobs["d"] = self.node(daemon, "d", nodes="2:3")
        self.wait_for_starts(3, *"ab")
        self.wait_for_starts(1, "d")
        self.assertEqual(self.starts("d")[0][0], "3")
        self.go()
        self.assertEqual(self.end(*jobs.values()), [0, 0, 0], [job.err for job in jobs.values()])
        self.assertEqual(daemon.metric("cpprund_run_restarts"), None)

    def test_the_daemons_death_ends_a_run_with_a_sentence(self):
        daemon = self.daemon()
        jobs = [self.node(daemon, name) for name in "ab"]
        self.wait_for_starts(1, *"ab")
        daemon.process.kill()
        self.assertEqual(self.end(*jobs), [3, 3])
        for job in jobs:
            self.assertIn("the agent that led the run was lost", job.err)

    def test_a_list_of_endpoints_is_refused_with_a_sentence(self):
        daemon = self.daemon()
        job = self.start("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=job", "--rdzv-conf=is_host=0,join_timeout=1",
                         f"--rdzv-endpoint=127.0.0.1:{daemon.port},127.0.0.1:{free_port()}", "--no-python", "true")
        self.assertEqual(job.end(), 3)
        self.assertIn("not opened, it has other endpoints too", daemon.words())

    def test_no_more_runs_than_allowed(self):
        daemon = self.daemon("--max-runs=1")
        first = self.node(daemon, "a", run="one")
        self.assertTrue(until(lambda: daemon.metric("cpprund_runs") == 1))
        late = self.node(daemon, "x", "--rdzv-conf=join_timeout=1", run="two")
        self.assertEqual(late.end(), 3)
        self.assertIn("serves as many runs as it may", late.err)
        second = self.node(daemon, "b", run="one")
        self.go()
        self.assertEqual(self.end(first, second), [0, 0], [first.err, second.err])

    def test_a_run_that_all_have_left_is_forgotten(self):
        daemon = self.daemon("--run-idle-limit=0.2")
        job = self.node(daemon, "a")
        self.assertTrue(until(lambda: daemon.metric("cpprund_runs") == 1))
        os.kill(job.agent(), signal.SIGKILL)
        self.assertTrue(until(lambda: "nobody has asked for it for a while" in daemon.words()), daemon.words())
        self.assertEqual(daemon.metric("cpprund_runs"), 0)


class Ends(WorkerTest):
    def test_sigterm_waits_for_the_runs_and_opens_no_more(self):
        daemon = self.daemon()
        jobs = [self.node(daemon, name) for name in "ab"]
        self.wait_for_starts(1, *"ab")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertTrue(until(lambda: daemon.get("/healthz")[0] == 503))
        late = self.node(daemon, "x", "--rdzv-conf=join_timeout=1", run="late")
        self.assertEqual(late.end(), 3)
        self.assertIn("is about to end", late.err)
        self.go()
        self.assertEqual(self.end(*jobs), [0, 0], [job.err for job in jobs])
        self.assertEqual(daemon.end(), 0)

    def test_a_second_sigterm_ends_the_runs(self):
        daemon = self.daemon()
        jobs = [self.node(daemon, name) for name in "ab"]
        self.wait_for_starts(1, *"ab")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertTrue(until(lambda: daemon.get("/healthz")[0] == 503))
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.end(), 0)
        codes = self.end(*jobs)
        self.assertTrue(all(codes), codes)
        for job in jobs:
            self.assertIn("the rendezvous daemon that led it was stopped", job.err)

    def test_the_drain_has_a_limit(self):
        daemon = self.daemon("--drain-limit=0.1")
        job = self.node(daemon, "a")
        self.assertTrue(until(lambda: daemon.metric("cpprund_runs") == 1))
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.end(), 0)
        self.assertNotEqual(job.end(), 0)


class Clients(WorkerTest):
    def test_the_store_is_one_for_all_and_apart_from_the_runs(self):
        daemon = self.daemon()
        job = self.node(daemon, "a")
        self.assertTrue(until(lambda: daemon.metric('cpprund_run_agents{run="job"}') == 1))
        with daemon.client() as one, daemon.client() as other:
            one.sendall(set_request("/k", "value") + b"\x07")
            self.assertEqual(one.recv(8), struct.pack("<q", 1))
            other.sendall(b"\x03" + text("/k"))
            self.assertEqual(other.recv(64), text("value"))
        self.assertEqual(daemon.metric('cpprund_store_requests_total{op="set"}'), 1)
        self.assertEqual(daemon.metric("cpprund_store_bytes"), 7)
        job.signal(signal.SIGTERM)
        job.end()

    def test_limits_of_the_store(self):
        daemon = self.daemon("--max-keys=1", "--max-connections=2")
        with daemon.client() as one, daemon.client() as other:
            one.sendall(set_request("a", "1") + b"\x07")
            self.assertEqual(one.recv(8), struct.pack("<q", 1))
            other.sendall(set_request("b", "2"))
            self.assertEqual(other.recv(1), b"")
            self.assertIn("more than the store may hold", daemon.words())
        self.assertTrue(until(lambda: daemon.metric("cpprund_store_faults_total") == 1))

    def test_stores_at_ports_of_their_own_are_apart(self):
        daemon = self.daemon("--store=one=0", "--store", "other=0", "--max-keys=2")
        ports = {"shared": daemon.port, "one": daemon.stores[0], "other": daemon.stores[1]}
        self.assertEqual(len(set(ports.values())), 3)
        with contextlib.ExitStack() as stack:
            clients = {name: stack.enter_context(daemon.client(port)) for name, port in ports.items()}
            for name, client in clients.items():
                client.sendall(set_request("/k", name) + set_request("/" + name, "") + b"\x07")
                self.assertEqual(client.recv(8), struct.pack("<q", 2), "each has a limit of its own")
            for name, client in clients.items():
                client.sendall(b"\3" + text("/k") + b"\x11")
                answer = client.recv(1000)
                while len(answer) < len(text(name) + struct.pack("<q", 2) + text("/k") + text("/" + name)):
                    answer += client.recv(1000)
                value, listed = answer[:len(text(name))], answer[len(text(name)) + 8:]
                self.assertEqual(value, text(name))
                self.assertIn(listed, (text("/k") + text("/" + name), text("/" + name) + text("/k")))
            clients["one"].sendall(set_request("/third", ""))
            self.assertEqual(clients["one"].recv(1), b"")
            clients["other"].sendall(b"\x07")
            self.assertEqual(clients["other"].recv(8), struct.pack("<q", 2))
            self.assertEqual(daemon.metric('cpprund_store_connections{store="other"}'), 1)
        for store in ("", '{store="one"}', '{store="other"}'):
            self.assertEqual(daemon.metric("cpprund_store_keys" + store), 2, store)
        self.assertEqual(daemon.metric('cpprund_store_faults_total{store="one"}'), 1)
        self.assertEqual(daemon.metric('cpprund_store_faults_total{store="other"}'), 0)
        self.assertEqual(daemon.metric('cpprund_store_requests_total{store="other",op="list_keys"}'), 1)
        self.assertIn(f"store other is at port {ports['other']}", daemon.words())

    def test_agents_do_not_meet_at_a_store(self):
        daemon = self.daemon("--store=one=0")
        with daemon.client(daemon.stores[0]) as client:
            client.sendall(b"\xc0" + text("run") + text("{}"))
            self.assertEqual(client.recv(1), b"")
        self.assertEqual(daemon.metric("cpprund_openings_refused_total"), 0)

    def test_garbage_costs_nothing(self):
        daemon = self.daemon()
        for garbage in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 100, HELLO + b"\xc0" + text("r") + text("no json"),
                        HELLO + b"\xc0" + b"\xff" * 8, HELLO + b"\xc0" + text("r" * 9000) + text("{}")):
            with socket.create_connection(("127.0.0.1", daemon.port), timeout=LIMIT) as client:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    while client.recv(100):
                        pass
        self.assertEqual(daemon.metric("cpprund_runs"), 0)
        self.assertEqual(daemon.get("/healthz"), (200, "ok\n"))

    def test_odd_http_clients(self):
        daemon = self.daemon()
        idle = [socket.create_connection(("127.0.0.1", daemon.http), timeout=LIMIT) for _ in range(20)]
        self.assertEqual(daemon.get("/nothing")[0], 404)
        self.assertEqual(daemon.get("/metrics?x=1")[0], 200)
        for request, status in ((b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
                                (b"\0\1\2\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nx: " + b"y" * 9000, b"400"),
                                (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"200")):
            with socket.create_connection(("127.0.0.1", daemon.http), timeout=LIMIT) as client:
                client.sendall(request)
                self.assertEqual(client.recv(12)[9:12], status, request[:20])
        for connection in idle:
            connection.close()


class Operators(DaemonTest):
    def run_daemon(self, *arguments):
        return subprocess.run([CPPRUND, *arguments], capture_output=True, text=True, timeout=LIMIT)

    def test_bad_options_are_one_sentence_and_2(self):
        for words in (["--bind", "nowhere:1"], ["--bogus"], ["--config", self.path("none.json")], ["--max-runs=x"],
                      ["--store=one"], ["--store=a=1", "--store=a=2"]):
            ended = self.run_daemon(*words)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""), words)
            self.assertRegex(ended.stderr, r"\Acpprund: UsageError: .*\n\Z")

    def test_the_address_is_bound_exactly(self):
        daemon = self.daemon(bind="127.0.0.2:0")
        with socket.create_connection(("127.0.0.2", daemon.port), timeout=LIMIT):
            pass
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", daemon.port), timeout=LIMIT)
        taken = self.run_daemon(f"--bind=127.0.0.2:{daemon.port}")
        self.assertEqual(taken.returncode, 4)
        self.assertIn(f"cannot listen on 127.0.0.2, port {daemon.port}: Address already in use", taken.stderr)

    def test_a_file_configures_it(self):
        path = self.write("c.json", json.dumps({"max-keys": 1, "bind": "127.0.0.1:1"}))
        daemon = self.daemon("--config", path)  # its --bind wins
        with daemon.client() as client:
            client.sendall(set_request("a", "1") + set_request("b", "2"))
            self.assertEqual(client.recv(1), b"")

    def test_a_file_names_stores(self):
        path = self.write("c.json", json.dumps({"store": ["one=0", "other=0"]}))
        daemon = self.daemon("--config", path)
        for port in daemon.stores:
            daemon.client(port).close()
        self.assertEqual(len(daemon.stores), 2)

    def test_a_store_is_bound_as_exactly_and_a_port_in_use_is_named(self):
        daemon = self.daemon("--store=one=0", bind="127.0.0.2:0")
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", daemon.stores[0]), timeout=LIMIT)
        taken = self.run_daemon("--bind=127.0.0.2:0", f"--store=two={daemon.stores[0]}")
        self.assertEqual(taken.returncode, 4)
        self.assertIn(f"cannot listen on 127.0.0.2, port {daemon.stores[0]}: Address already in use", taken.stderr)

    def test_systemd_passes_sockets_and_hears_of_readiness(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, \
                socket.create_server(("127.0.0.1", 0)) as store, socket.create_server(("127.0.0.1", 0)) as http:
            notify.bind(os.path.join(folder, "notify"))
            notify.settimeout(LIMIT)
            read_end, write_end = os.pipe()
            script = (f"exec 3<&{store.fileno()} 4<&{http.fileno()}; LISTEN_FDS=2 LISTEN_PID=$$ exec {CPPRUND} --bind=*:1 "
                      f"--store=one=0 --ready-fd={write_end}")
            process = subprocess.Popen(["bash", "-c", script], pass_fds=[store.fileno(), http.fileno(), write_end],
                                       env={**os.environ, "NOTIFY_SOCKET": notify.getsockname()},
                                       stderr=subprocess.PIPE, text=True)
            os.close(write_end)
            try:
                self.assertIn("READY=1", notify.recv(1000).decode())
                port = http.getsockname()[1]
                with os.fdopen(read_end) as ready:
                    passed = [int(line) for line in ready.read().split()]
                self.assertEqual(passed[:2], [store.getsockname()[1], port])
                with socket.create_connection(("127.0.0.1", passed[2]), timeout=LIMIT) as client:
                    client.sendall(HELLO)
                    self.assertEqual(client.recv(4), struct.pack("<I", 7))
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=LIMIT) as reply:
                    self.assertEqual(reply.read(), b"ok\n")
                with socket.create_connection(store.getsockname(), timeout=LIMIT) as client:
                    client.sendall(HELLO)
                    self.assertEqual(client.recv(4), struct.pack("<I", 7))
                process.terminate()
                self.assertIn("STOPPING=1", notify.recv(1000).decode())
                self.assertEqual(process.wait(LIMIT), 0)
            finally:
                process.kill()
                process.communicate()

    def test_nonsense_from_the_service_manager_is_refused(self):
        script = f"exec 3</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec {CPPRUND}"
        ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("not a listening socket", ended.stderr)


if __name__ == "__main__":
    unittest.main()

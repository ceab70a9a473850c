"""cpprun looks up no name that its user did not type: its system calls show it, and a name server that is silent."""
import glob
import re
import shutil
import signal
import unittest

from elastic_job import PORT, HostsTest, elastic
from hosts import SilentNameServer

STRACE = ("strace", "-f", "-qq", "-e", "trace=openat,connect,sendto,sendmsg,sendmmsg", "-e", "signal=none", "-o")
LOOK_UP = re.compile(r'/etc/(resolv\.conf|hosts|host\.conf|gai\.conf)"|htons\(53\)|nscd/socket|systemd/resolve')
# Sanitizers' search for leaks cannot run under strace.
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0"}

LESS_THAN_THE_RESOLVERS_S = 20  # which asks twice, for 30 s each: see hosts.py


@unittest.skipUnless(shutil.which("strace"), "strace is not installed")
class NameLookup(HostsTest):
    """Hosts h1 to h3, with and without a name server, which is a host that takes questions and never answers."""

    def setUp(self):
        super().setUp()
        self.traces = 0
        self.server = None

    def tearDown(self):
        super().tearDown()
        if self.server:
            self.server.close()

    def make(self, server=True):
        self.make_hosts("h1", "h2", "h3", "dns", nameserver="10.9.0.4" if server else None)
        if server:
            self.server = SilentNameServer(self.network["dns"], "10.9.0.4", self.path("questions"))

    def traced(self, name, **options):
        self.traces += 1
        return self.node(name, trace=(*STRACE, self.path(f"trace.{name}.{self.traces}")), env=ENVIRONMENT, **options)

    def trace_of(self, name):
        return "".join(self.read(path) for path in glob.glob(self.path(f"trace.{name}.*")))

    def look_ups(self):
        return [line for line in self.trace_of("*").splitlines() if LOOK_UP.search(line)]

    def assert_no_look_up(self):
        self.assertEqual(self.look_ups(), [])
        if self.server:
            self.assertEqual(self.server.questions(), 0)

    def connect_wait_and_restart(self):
        options = {"nnodes": "3", "endpoint": self.endpoint("h1"), "max_restarts": 1}
        for name in ("h3", "h2"):
            self.traced(name, **options)
        for name in ("h3", "h2"):  # they look for the store, and nobody serves yet
            self.see(lambda: "10.9.0.1" in self.trace_of(name), f"{name} connects")
        self.traced("h1", **options)
        self.next_world("h1", "h2", "h3")
        self.write("fail.0.1", "")
        self.next_world("h1", "h2", "h3")
        self.end_well("h1", "h2", "h3")
        self.assert_no_look_up()

    def test_connecting_waiting_and_restarting_where_no_name_is_answered(self):
        self.make()
        self.connect_wait_and_restart()

    def test_connecting_waiting_and_restarting_without_a_name_server(self):
        self.make(server=False)
        self.connect_wait_and_restart()

    def test_timing_out(self):
        self.make()
        self.traced("h2", nnodes="3", endpoint=self.endpoint("h1"), conf="join_timeout=1")  # nobody serves
        self.traced("h1", nnodes="3", endpoint=self.endpoint("h1"), conf="join_timeout=1")  # the others do not come
        self.traced("h3", nnodes="3", endpoint=f"10.9.0.77:{PORT}", conf="join_timeout=1")  # no such host
        for name in ("h1", "h2", "h3"):
            self.assertEqual(self.nodes[name].end(), 3, self.story())
        self.assert_no_look_up()

    def test_losing_the_others(self):
        self.make()
        for name in ("h1", "h2", "h3"):
            self.traced(name, nnodes="3", endpoint=self.endpoint("h1"))
        self.next_world("h1", "h2", "h3")
        self.network.cut(self.network["h3"])
        self.assertEqual([self.nodes[name].end() for name in ("h1", "h2", "h3")], [1, 1, 3], self.story())
        self.assert_no_look_up()

    @unittest.skipUnless(elastic(), "this cpprun has no jobs whose number of nodes changes")
    def test_joining_and_taking_over(self):
        self.make()
        options = {"nnodes": "1:3", "endpoint": self.endpoint("h1", "h2")}
        for name in ("h1", "h2"):
            self.traced(name, **options)
        self.next_world("h1", "h2")
        self.traced("h3", **options)
        self.next_world("h1", "h2", "h3")
        self.network.power_off(self.network["h1"])
        self.next_world("h2", "h3")
        self.end_well("h2", "h3")
        self.assert_no_look_up()

    def test_a_name_that_was_typed_is_looked_up(self):
        """Also shows that the look-ups above would have been seen."""
        self.make(server=False)
        self.traced("h2", nnodes="2", endpoint=f"elsewhere:{PORT}", conf="join_timeout=1")
        self.assertEqual(self.nodes["h2"].end(), 3, self.story())
        self.assertIn("elsewhere", self.nodes["h2"].err)
        self.assertTrue(self.look_ups())

    def ask(self):
        """A node that waits for the name of its endpoint."""
        self.make()
        node = self.node("h2", nnodes="2", endpoint=f"elsewhere:{PORT}", conf="join_timeout=1")
        self.see(lambda: self.server.questions() > 0, "a question to the name server")
        return node

    def test_an_unanswered_name_does_not_stretch_the_limit(self):
        self.assertEqual(self.ask().end(LESS_THAN_THE_RESOLVERS_S), 3)
        self.assertIn("elsewhere", self.nodes["h2"].err)

    def test_an_unanswered_name_does_not_hold_up_a_signal(self):
        node = self.ask()
        node.signal(signal.SIGTERM)
        self.assertEqual(node.end(LESS_THAN_THE_RESOLVERS_S), 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()

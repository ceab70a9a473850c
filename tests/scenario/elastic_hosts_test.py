"""Jobs of several hosts, made of namespaces with a network of their own: nodes join, die, are cut off and return."""
import signal
import unittest

from elastic_job import PORT, HostsTest, elastic

changing = unittest.skipUnless(elastic(), "this cpprun has no jobs whose number of nodes changes")


class TheTestItself(HostsTest):
    def test_two_worlds_at_once_are_seen(self):
        """As two halves of a cut would make them, each its own."""
        self.make_hosts("h1", "h2")
        for name in ("h1", "h2"):
            self.node(name, nnodes="1", endpoint=self.endpoint(name))
            self.see(lambda: name in (start["host"] for start in self.starts()), f"a worker on {name}")
        self.assertRaisesRegex(AssertionError, r"0\.0\.h1", self.assert_no_clash)


class FixedNumber(HostsTest):
    """--nnodes N: every member is needed."""

    def test_ranks_follow_the_hosts_names_whoever_comes_first(self):
        self.make_hosts("node10", "node9", "other")
        self.start_nodes("other", "node9", "node10", nnodes="3", endpoint=self.endpoint("node10"))
        world = self.next_world("node9", "node10", "other")
        self.assertEqual({start["master"][0] for start in world}, {self.network["node9"].v4()})
        self.end_well("node10", "node9", "other")

    def test_ipv6_only(self):
        self.make_hosts("h1", "h2", "h3", families=("v6",))
        self.start_nodes("h3", "h2", "h1", nnodes="3", endpoint=f"[{self.network['h1'].v6()}]:{PORT}")
        world = self.next_world("h1", "h2", "h3")
        self.assertEqual({start["master"][0] for start in world}, {self.network["h1"].v6()})
        self.end_well("h1", "h2", "h3")

    def meet_on_the_second_network(self, serving):
        """h1, which holds rank 0, is on both networks, and the others cannot reach its first address."""
        self.make_hosts("h1", "h2", "h3", segments={"h1": (0, 1), "h2": (1,), "h3": (1,)})
        self.start_nodes("h1", "h2", "h3", nnodes="3", endpoint=f"{self.network[serving].v4(1)}:{PORT}")
        world = self.next_world("h1", "h2", "h3")
        self.assertEqual({start["master"][0] for start in world}, {self.network["h1"].v4(1)})
        self.end_well("h1", "h2", "h3")

    def test_the_serving_host_is_on_two_networks(self):
        self.meet_on_the_second_network("h1")

    def test_a_host_on_two_networks_meets_another(self):
        self.meet_on_the_second_network("h2")

    def test_a_dead_nodes_replacement_runs_on_another_host(self):
        self.make_hosts("h1", "h2", "h3", "h4")
        options = {"nnodes": "3", "endpoint": self.endpoint("h1"), "max_restarts": 1}
        self.start_nodes("h1", "h2", "h3", **options)
        self.next_world("h1", "h2", "h3")
        self.kill_agent("h2")
        self.see(lambda: "has not been heard of" in self.nodes["h1"].said(), "h1 says that h2 is lost")
        self.node("h4", **options)  # had it waited before, it would have cost nothing
        self.assertEqual({start["restarts"] for start in self.next_world("h1", "h4", "h3")}, {1})
        self.end_well("h1", "h3", "h4")

    def test_a_cut_ends_both_sides(self):
        """No connection is closed or refused: each side only hears nothing more."""
        self.make_hosts("h1", "h2", "h3")
        self.start_nodes("h1", "h2", "h3", nnodes="3", endpoint=self.endpoint("h1"))
        self.next_world("h1", "h2", "h3")
        self.network.cut(self.network["h3"])
        self.assertEqual([self.nodes[name].end() for name in ("h1", "h2", "h3")], [1, 1, 3], self.story())
        self.assertRegex(self.nodes["h1"].err, r"node 2 \(h3, .*\) has not been heard of")
        self.assertRegex(self.nodes["h3"].err, r"the rendezvous was lost: .*10\.9\.0\.1:29400 does not answer")
        self.assertIn("the agent that led the run was lost", self.nodes["h3"].err)
        for node in self.nodes.values():
            self.assert_nothing_left(node)


@changing
class Members(HostsTest):
    """--nnodes MIN:MAX: nodes come and go, and a restart is spent on failures only."""

    def test_three_nodes(self):
        self.make_hosts("node10", "node9", "other")
        self.start_nodes("other", "node9", "node10", nnodes="2:4", endpoint=self.endpoint("node10"))
        self.next_world("node9", "node10", "other")
        self.end_well("node10", "node9", "other")
        self.assertEqual(len(self.starts()), 3)

    def test_a_node_joins(self):
        self.make_hosts("h1", "h2", "h3")
        where = {"nnodes": "2:4", "endpoint": self.endpoint("h1")}
        self.start_nodes("h1", "h2", **where)
        self.next_world("h1", "h2")
        self.node("h3", **where)
        self.next_world("h1", "h2", "h3")
        self.end_well("h1", "h2", "h3")
        self.assertEqual(self.restarts(), {0})

    def test_a_node_joins_with_more_workers(self):
        self.make_hosts("h1", "h2", "h3")
        where = {"nnodes": "1:4", "endpoint": self.endpoint("h3")}
        self.node("h3", nproc=2, **where)
        self.next_world("h3", "h3")
        self.node("h1", nproc=3, **where)
        self.next_world("h3", "h3", "h1", "h1", "h1")
        self.node("h2", **where)
        self.next_world("h3", "h3", "h1", "h1", "h1", "h2")
        self.end_well("h1", "h2", "h3")

    def test_a_newcomer_gets_the_jobs_count_of_restarts(self):
        self.make_hosts("h1", "h2", "h3")
        options = {"nnodes": "2:4", "endpoint": self.endpoint("h1"), "max_restarts": 1}
        self.start_nodes("h1", "h2", **options)
        self.next_world("h1", "h2")
        self.write("fail.0.1", "")
        self.next_world("h1", "h2")
        self.node("h3", **options)
        self.assertEqual({start["restarts"] for start in self.next_world("h1", "h2", "h3")}, {1})
        self.write("fail.2.2", "")  # the budget is the job's, so none is left for the newcomer
        self.assertEqual([self.nodes[name].end() for name in ("h1", "h2", "h3")], [1, 1, 1], self.story())
        for node in self.nodes.values():
            self.assertIn("exitcode  : 9 (pid:", node.err)
            self.assert_nothing_left(node)

    def test_an_agent_is_killed(self):
        self.make_hosts("h1", "h2", "h3", "h4")
        self.start_nodes("h1", "h2", "h3", "h4", nnodes="2:4", endpoint=self.endpoint("h1"))
        self.next_world("h1", "h2", "h3", "h4")
        self.kill_agent("h2")
        self.next_world("h1", "h3", "h4")
        self.end_well("h1", "h3", "h4")
        self.assertEqual(self.restarts(), {0})
        self.assertRegex(self.nodes["h1"].err, r"node 1 \(h2, .*\)")

    def test_rank_0_is_killed_and_does_not_serve(self):
        self.make_hosts("h1", "h2", "h3")
        self.start_nodes("h1", "h2", "h3", nnodes="2:4", endpoint=self.endpoint("h3"))
        self.next_world("h1", "h2", "h3")
        self.kill_agent("h1")
        world = self.next_world("h2", "h3")
        self.assertEqual({start["master"][0] for start in world}, {self.network["h2"].v4()})
        self.end_well("h2", "h3")

    def test_a_node_leaves(self):
        self.make_hosts("h1", "h2", "h3")
        self.start_nodes("h1", "h2", "h3", nnodes="2:4", endpoint=self.endpoint("h1"))
        self.next_world("h1", "h2", "h3")
        self.nodes["h2"].signal(signal.SIGTERM)
        self.assertEqual(self.nodes["h2"].end(), 128 + signal.SIGTERM)
        self.next_world("h1", "h3")
        self.end_well("h1", "h3")
        self.assertEqual(self.restarts(), {0})

    def test_a_replacement_takes_the_dead_nodes_rank(self):
        self.make_hosts("h1", "h2", "h3", "h4")
        where = {"nnodes": "3:3", "endpoint": self.endpoint("h1"), "max_restarts": 1}
        self.start_nodes("h1", "h2", "h3", **where)
        self.next_world("h1", "h2", "h3")
        self.kill_agent("h2")
        self.node("h4", **where)
        self.next_world("h1", "h4", "h3")
        self.end_well("h1", "h3", "h4")

    def test_too_few_are_left(self):
        self.make_hosts("h1", "h2")
        self.start_nodes("h1", "h2", nnodes="2:3", endpoint=self.endpoint("h1"), max_restarts=1,
                         conf="last_call_timeout=1,join_timeout=8")
        self.next_world("h1", "h2")
        self.kill_agent("h2")
        self.assertEqual(self.nodes["h1"].end(), 3, self.story())
        self.assertRegex(self.nodes["h1"].err, r"1 of 2 to 3 nodes have joined \(node 0 \(h1, pid \d+\)\)")
        self.assert_nothing_left(self.nodes["h1"])


@changing
class Spares(HostsTest):
    """Nodes beyond MAX."""

    def start_full(self):
        """Three members and a spare."""
        self.make_hosts("h1", "h2", "h3", "h4")
        where = {"nnodes": "2:3", "endpoint": self.endpoint("h1")}
        self.start_nodes("h1", "h2", "h3", **where)
        self.next_world("h1", "h2", "h3")
        self.node("h4", **where)
        self.see_spare("h4")

    def test_a_spare_ends_well_with_the_job(self):
        self.start_full()
        self.end_well("h1", "h2", "h3", "h4")
        self.assertEqual(len(self.starts()), 3)

    def test_a_spare_takes_over(self):
        self.start_full()
        self.kill_agent("h2")
        self.next_world("h1", "h4", "h3")
        self.end_well("h1", "h3", "h4")
        self.assertEqual(self.restarts(), {0})

    def test_a_spare_fails_with_the_job(self):
        self.start_full()
        self.write("fail.0.1", "")
        codes = [self.nodes[name].end() for name in ("h1", "h2", "h3", "h4")]
        self.assertEqual(codes[:3], [1, 1, 1], self.story())
        self.assertNotEqual(codes[3], 0, self.story())

    def test_a_spare_is_stopped_and_nobody_minds(self):
        self.start_full()
        self.nodes["h4"].signal(signal.SIGTERM)
        self.assertEqual(self.nodes["h4"].end(), 128 + signal.SIGTERM)
        self.end_well("h1", "h2", "h3")
        self.assertEqual(len(self.starts()), 3)


@changing
class Cuts(HostsTest):
    """Links fail without a word: the side that may not go on stops its workers before the other starts new ones."""

    def cut_and_heal_one(self, **options):
        self.make_hosts("h1", "h2", "h3")
        self.start_nodes("h1", "h2", "h3", nnodes="2:4", endpoint=self.endpoint("h1"), **options)
        self.next_world("h1", "h2", "h3")
        self.network.unplug(self.network["h3"])
        self.next_world("h1", "h2")
        self.assertIsNone(self.nodes["h3"].process.poll(), self.story())
        self.network.plug(self.network["h3"])
        self.next_world("h1", "h2", "h3")
        self.end_well("h1", "h2", "h3")
        self.assertEqual(self.restarts(), {0})

    def test_one_host_is_cut_off_and_comes_back(self):
        self.cut_and_heal_one()

    def test_one_host_is_cut_off_whose_worker_ignores_sigterm(self):
        self.cut_and_heal_one(env={"STUBBORN": "h3"})

    def start_four(self, nnodes, *serving):
        self.make_hosts("h1", "h2", "h3", "h4")
        self.start_nodes("h1", "h2", "h3", "h4", nnodes=nnodes, endpoint=self.endpoint(*serving))
        self.next_world("h1", "h2", "h3", "h4")

    def assert_says_why(self, *names):
        for name in names:
            # Whichever is noticed first: that the others are silent, or that nobody leads.
            self.see(lambda: any(why in self.nodes[name].said() for why in
                                 ("the rendezvous was lost", "more than half of the 4 nodes")),
                     f"{name} says why it stopped")

    def test_halves_where_the_serving_half_has_the_lowest_rank(self):
        self.start_four("2:4", "h1", "h3")
        self.network.cut(self.network["h3"], self.network["h4"])
        self.next_world("h1", "h2")
        self.assert_says_why("h3", "h4")
        self.network.heal()
        self.later_world("h1", "h2", then=("h3", "h4"))
        self.end_well("h1", "h2", "h3", "h4")

    def test_halves_where_the_other_half_has_the_lowest_rank(self):
        self.start_four("2:4", "h3", "h1")
        self.network.cut(self.network["h3"], self.network["h4"])
        self.next_world("h1", "h2")
        self.assert_says_why("h3", "h4")
        self.network.heal()
        self.later_world("h1", "h2", then=("h3", "h4"))
        self.end_well("h1", "h2", "h3", "h4")

    def test_the_serving_host_is_cut_off_alone(self):
        """It would be enough nodes by itself, and is not: it is not the majority."""
        self.start_four("1:4", "h1", "h2")
        self.network.cut(self.network["h1"])
        self.next_world("h2", "h3", "h4")
        self.network.heal()
        self.later_world("h2", "h3", "h4", then=("h1",))
        self.end_well("h1", "h2", "h3", "h4")


@changing
class Takeover(HostsTest):
    """--rdzv-endpoint A,B: B serves when A is lost."""

    def start_three(self):
        self.make_hosts("h1", "h2", "h3")
        self.where = {"nnodes": "2:4", "endpoint": self.endpoint("h1", "h2")}
        self.start_nodes("h1", "h2", "h3", **self.where)
        self.next_world("h1", "h2", "h3")

    def test_the_serving_host_loses_its_power(self):
        self.start_three()
        self.network.power_off(self.network["h1"])
        world = self.next_world("h2", "h3")
        self.assertEqual({start["master"][0] for start in world}, {self.network["h2"].v4()})
        self.end_well("h2", "h3")
        self.assertEqual(self.restarts(), {0})

    def test_the_serving_agent_is_killed_and_its_host_comes_back(self):
        """The host that is first in everybody's list must find who serves now, not serve a second rendezvous."""
        self.start_three()
        self.kill_agent("h1")
        self.next_world("h2", "h3")
        self.node("h1", **self.where)
        self.next_world("h2", "h3", "h1")
        self.end_well("h1", "h2", "h3")
        self.assertEqual(self.restarts(), {0})

    def test_the_serving_node_is_stopped(self):
        self.start_three()
        self.nodes["h1"].signal(signal.SIGTERM)
        self.assertEqual(self.nodes["h1"].end(), 128 + signal.SIGTERM)
        self.next_world("h2", "h3")
        self.end_well("h2", "h3")

    def test_members_die_and_join_after_the_takeover(self):
        self.make_hosts("h1", "h2", "h3", "h4")
        where = {"nnodes": "2:4", "endpoint": self.endpoint("h1", "h2")}
        self.start_nodes("h1", "h2", "h3", "h4", **where)
        self.next_world("h1", "h2", "h3", "h4")
        self.network.power_off(self.network["h1"])
        self.next_world("h2", "h3", "h4")
        self.kill_agent("h3")
        self.next_world("h2", "h4")
        self.node("h3", **where)
        self.next_world("h2", "h4", "h3")
        self.end_well("h2", "h3", "h4")
        self.assertEqual(self.restarts(), {0})

    def test_the_first_of_the_list_never_comes(self):
        """A job begins at its first endpoint: the second takes over from it only when it knows that it is lost."""
        self.make_hosts("h1", "h2", "h3")
        self.start_nodes("h2", "h3", nnodes="2", endpoint=self.endpoint("h1", "h2"),
                         conf="read_timeout=4")
        for name in ("h2", "h3"):
            self.assertEqual(self.nodes[name].end(), 3, self.story())
            self.assertRegex(self.nodes[name].err, r"no agent served the rendezvous within 4 s: .*10\.9\.0\.[12]:29400")
        self.assertEqual(self.starts(), [])


if __name__ == "__main__":
    unittest.main()

"""Several hosts whose agents meet in a cluster of etcd members, each on a host of its own or beside an agent."""
import json
import subprocess
import sys
import time
import unittest

from elastic_job import HostsTest
from harness import until

ETCD = "/usr/bin/etcd"
LEASE = 3.0  # of an agent at the defaults

# On a host, as nobody else reaches its network: asks an etcd member and prints its answer.
ASK = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode())
print(urllib.request.urlopen(request, timeout=5).read().decode())
"""


class EtcdHostsTest(HostsTest):
    def start_etcd(self, *names):
        """A cluster with a member on each of these hosts."""
        self.members = names
        cluster = ",".join(f"{name}=http://{self.network[name].v4()}:2380" for name in names)
        for name in names:
            clients, peers = (f"http://{self.network[name].v4()}:{port}" for port in (2379, 2380))
            with open(self.path(f"etcd.{name}.log"), "wb") as log:
                process = subprocess.Popen(
                    [*self.network[name].enter(self.folder), ETCD, "--name", name, "--data-dir",
                     self.path(f"etcd.{name}"), "--unsafe-no-fsync", "--logger", "zap", "--listen-client-urls", clients,
                     "--advertise-client-urls", clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls",
                     peers, "--initial-cluster", cluster], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        self.assertTrue(until(self.leading_member), self.read(f"etcd.{names[0]}.log"))

    def ask(self, name, what):
        done = subprocess.run([*self.network[name].enter(self.folder), sys.executable, "-c", ASK,
                               f"http://{self.network[name].v4()}:2379/v3/{what}", "{}"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def leading_member(self):
        for name in self.members:
            status = self.ask(name, "maintenance/status")
            if status.get("leader", "0") not in ("0", 0) and status["leader"] == status["header"]["member_id"]:
                return name
        return None

    def start_agents(self, *names):
        endpoint = ",".join(f"{self.network[name].v4()}:2379" for name in self.members)
        self.where = {"nnodes": "2:3", "endpoint": endpoint}
        for name in names:
            self.node(name, "--rdzv-backend=etcd", **self.where)
        self.next_world_of(names)

    def next_world_of(self, names):
        """Ranks are by arrival, which nobody decides here."""
        self.later_world(then=names)

    def power_off(self, name):
        self.network.power_off(self.network[name])

    def see_nothing(self, seconds):
        """That nothing happens can only be waited for."""
        before = self.starts()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.assertEqual(self.starts(), before, self.story())
            self.assertEqual([node.process.poll() for node in self.nodes.values()], [None] * len(self.nodes),
                             self.story())
            time.sleep(0.05)


class Members(EtcdHostsTest):
    def test_the_loss_of_the_leading_member_interrupts_nobody(self):
        self.make_hosts("s1", "s2", "s3", "h1", "h2", "h3")
        self.start_etcd("s1", "s2", "s3")
        self.start_agents("h1", "h2", "h3")
        lost = self.leading_member()
        self.power_off(lost)
        self.members = [name for name in self.members if name != lost]
        self.assertTrue(until(self.leading_member))
        self.see_nothing(2 * LEASE)
        self.end_well("h1", "h2", "h3")
        self.assertEqual(self.restarts(), {0})

    def test_the_loss_of_the_member_that_all_ask_interrupts_nobody(self):
        self.make_hosts("s1", "s2", "s3", "h1", "h2")
        self.start_etcd("s1", "s2", "s3")
        self.start_agents("h1", "h2")
        self.power_off("s1")
        self.see_nothing(2 * LEASE)
        self.end_well("h1", "h2")


class Agents(EtcdHostsTest):
    def test_a_host_with_a_member_and_an_agent_loses_its_power(self):
        self.make_hosts("h1", "h2", "h3")
        self.start_etcd("h1", "h2", "h3")
        self.start_agents("h1", "h2", "h3")
        lost = self.leading_member()
        self.power_off(lost)
        left = [name for name in ("h1", "h2", "h3") if name != lost]
        self.next_world_of(left)
        self.end_well(*left)
        self.assertEqual(self.restarts(), {0})

    def test_a_host_that_is_cut_off_from_the_cluster_stops_and_comes_back(self):
        self.make_hosts("s1", "s2", "s3", "h1", "h2", "h3")
        self.start_etcd("s1", "s2", "s3")
        self.start_agents("h1", "h2", "h3")
        self.network.cut(self.network["h3"])
        self.next_world_of(["h1", "h2"])
        self.assert_no_clash()
        self.network.heal()
        self.next_world_of(["h1", "h2", "h3"])
        self.end_well("h1", "h2", "h3")
        self.assertEqual(self.restarts(), {0})


if __name__ == "__main__":
    unittest.main()

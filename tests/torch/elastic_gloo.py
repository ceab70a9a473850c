"""An unmodified Python job on torch.distributed over Gloo, on three hosts: goes on when nodes die and come."""
import itertools
import json
import os
import sys
import unittest

SOURCE = os.environ["CPPRUN_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "tests/scenario"))
from elastic_job import HostsTest, elastic  # noqa: E402  (its folder is only known here)

STEPS = 3  # that a world must make before the next event
LIMIT_S = 120  # a hang guard, not a measurement


class ElasticGloo(HostsTest):
    def start_job(self, *names, **options):
        # A peer's death is also an error in the collective of the others, so their workers may fail: one restart.
        script = os.path.join(SOURCE, "tests/torch/data/counting.py")
        self.options = {"max_restarts": 1, "program": (script, "checkpoint", "end"),
                        "env": {"VIRTUAL_ENV": os.environ["CPPRUN_VENV"], "OMP_NUM_THREADS": "1"},
                        "endpoint": self.endpoint("h1"), **options}
        self.start_nodes(*names, **self.options)

    def worlds(self):
        """The worlds so far, with the number of steps in a row."""
        try:
            state = json.loads(self.read("checkpoint"))
        except FileNotFoundError:
            return []
        self.assertEqual(state["total"], sum(size for _, size in state["worlds"]))
        return [(*world, len(list(steps))) for world, steps in itertools.groupby(state["worlds"])]

    def see_steps(self, number, size):
        """Waits until the job's world of that number, from 0, of that size, has made its steps."""
        def made():
            worlds = self.worlds()
            return worlds[number:] and worlds[number][1] == size and worlds[number][2] >= STEPS
        self.see(made, f"world {number} of size {size}; so far {self.worlds()}", LIMIT_S)

    def test_a_replacement(self):
        self.make_hosts("h1", "h2", "h3", "h4")
        self.start_job("h1", "h2", "h3", nnodes="3")
        self.see_steps(0, 3)
        self.kill_agent("h2")
        self.node("h4", **self.options)
        self.see_steps(1, 3)
        self.end_well("h1", "h3", "h4")

    @unittest.skipUnless(elastic(), "this cpprun has no jobs whose number of nodes changes")
    def test_an_agent_is_killed_and_another_comes(self):
        self.make_hosts("h1", "h2", "h3")
        self.start_job("h1", "h2", "h3", nnodes="2:4")
        self.see_steps(0, 3)
        self.kill_agent("h2")
        self.see_steps(1, 2)
        self.node("h2", **self.options)
        self.see_steps(2, 3)
        self.end_well("h1", "h2", "h3")


if __name__ == "__main__":
    unittest.main()

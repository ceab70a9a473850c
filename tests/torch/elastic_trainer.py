"""cpprun-train on three hosts: when a node dies and another takes its place, the job goes on from its checkpoint and
ends with the very bytes of a run that was left alone."""
import json
import pathlib
import sys
import unittest

from trainer_jobs import LIMIT_S, MLP, SOURCE, TRAIN, checkpoints, metrics, with_changes

sys.path.insert(0, str(SOURCE / "tests/scenario"))
from elastic_job import HostsTest, elastic  # noqa: E402  (its folder is only known here)

STEPS = 200 * 4  # 96 examples, 3 ranks, batches of 8: seconds, so that the first checkpoint lies well before the end
CONFIG = with_changes(MLP, {
    "epochs": 200,
    "data.val_examples": 3,
    "checkpoint": {"dir": "checkpoints", "every_steps": 50, "keep": 100},
    "metrics_file": "metrics.jsonl",
    "weights_file": "weights.safetensors",
})
ENVIRONMENT = {"USE_CPU": "1", "OMP_NUM_THREADS": "1"}


class ElasticTrainer(HostsTest):
    def start_job(self, *names, config=CONFIG, **options):
        self.write("config.json", json.dumps(config))
        # A peer's death is also an error in the collective of the others, so their workers may fail: one restart.
        self.options = {"max_restarts": 1, "program": (TRAIN, "--config", "config.json"), "env": ENVIRONMENT,
                        "endpoint": self.endpoint("h1"), **options}
        self.start_nodes(*names, **self.options)

    def see_checkpoint(self):
        self.see(lambda: checkpoints(self.path("checkpoints")), "a checkpoint", LIMIT_S)

    def end_of(self, folder):
        return (pathlib.Path(folder) / "weights.safetensors").read_bytes()

    def assert_ends_as_if_left_alone(self, *names):
        for name in names:
            self.assertEqual(self.nodes[name].end(LIMIT_S), 0, name + self.story())
            self.assert_nothing_left(self.nodes[name])
        self.assertIn("resumed from checkpoints/step-", self.nodes["h1"].out)
        steps = [record["step"] for record in metrics(self.path("metrics.jsonl"), "step")]
        self.assertEqual(steps, list(range(1, STEPS + 1)))
        weights = self.end_of(self.folder)
        whole = self.run_to_end("--standalone", "--nproc-per-node=3", TRAIN, "--config", "config.json", env=ENVIRONMENT,
                                limit=LIMIT_S)
        self.assertEqual(whole.code, 0, whole.err)
        self.assertIn("is finished", whole.out)  # it began anew
        self.assertEqual(self.end_of(self.folder), weights)

    def test_a_replacement(self):
        self.make_hosts("h1", "h2", "h3", "h4")
        self.start_job("h1", "h2", "h3", nnodes="3")
        self.see_checkpoint()
        self.kill_agent("h2")
        self.node("h4", **self.options)
        self.assert_ends_as_if_left_alone("h1", "h3", "h4")

    @unittest.skipUnless(elastic(), "this cpprun has no jobs whose number of nodes changes")
    def test_a_spare_takes_over(self):
        self.make_hosts("h1", "h2", "h3", "h4")
        self.start_job("h1", "h2", "h3", nnodes="2:3")
        for name in ("h1", "h2", "h3"):  # else one of them could be the spare
            self.see(lambda n=name: "started 1 of 3 workers" in self.nodes[n].said(), f"{name} starts its worker")
        self.node("h4", **self.options)
        self.see_spare("h4")
        self.see_checkpoint()
        self.kill_agent("h2")
        self.assert_ends_as_if_left_alone("h1", "h3", "h4")

    def epochs_seen(self):
        """The number of examples that the job trained on, by epoch."""
        seen = {}
        for record in metrics(self.path("metrics.jsonl"), "step"):
            seen[record["epoch"]] = seen.get(record["epoch"], 0) + record["examples"]
        return seen

    def assert_ends_well(self, *names, processes):
        """Each step once, each epoch's examples once but for what did not divide, and the world of the end."""
        for name in names:
            self.assertEqual(self.nodes[name].end(LIMIT_S), 0, name + self.story())
            self.assert_nothing_left(self.nodes[name])
        records = metrics(self.path("metrics.jsonl"), "step")
        self.assertEqual([record["step"] for record in records], list(range(1, len(records) + 1)))
        self.assertEqual(records[-1]["examples"], 8 * processes)
        seen = self.epochs_seen()
        self.assertEqual(list(seen), list(range(CONFIG["epochs"])))
        dropped = [96 - count for count in seen.values() if count != 96]
        self.assertLessEqual(len(dropped), 1)
        self.assertLess(sum(dropped), processes)
        self.assertRegex(self.nodes["h1"].out, r"resumed from checkpoints/step-\d+, which \d processes wrote")

    @unittest.skipUnless(elastic(), "this cpprun has no jobs whose number of nodes changes")
    def test_fewer_go_on(self):
        self.make_hosts("h1", "h2", "h3")
        self.start_job("h1", "h2", "h3", nnodes="2:3")
        self.see_checkpoint()
        self.kill_agent("h2")
        self.assert_ends_well("h1", "h3", processes=2)

    @unittest.skipUnless(elastic(), "this cpprun has no jobs whose number of nodes changes")
    def test_more_go_on(self):
        self.make_hosts("h1", "h2", "h3")
        self.start_job("h1", "h2", nnodes="2:3")
        self.see_checkpoint()
        self.node("h3", **self.options)
        self.assert_ends_well("h1", "h2", "h3", processes=3)


if __name__ == "__main__":
    unittest.main()

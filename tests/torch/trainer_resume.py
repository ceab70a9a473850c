"""Runs that are carried on from a checkpoint end as if nothing had happened, and checkpoints that do not belong to a
run are refused."""
import os
import shutil
import signal
import unittest

from trainer_jobs import MLP, TrainerTest, checkpoints, epoch_lines, metrics, with_changes

STEPS = 3 * 6  # 96 examples, 2 ranks, batches of 8
CONFIG = with_changes(MLP, {
    "checkpoint": {"dir": "checkpoints", "every_steps": 4, "keep": 100},
    "metrics_file": "metrics.jsonl",
    "weights_file": "weights.safetensors",
})


class Resume(TrainerTest):
    def setUp(self):
        super().setUp()
        self.whole = self.folder("whole")

    def run_whole(self, config=CONFIG, processes=2):
        done = self.train(self.whole, config, processes)
        self.assertEqual(checkpoints(self.whole / "checkpoints"), [4, 8, 12, 16, STEPS])
        return done

    def interrupted(self, name, last_step):
        """A folder as a run leaves it that is killed after the checkpoint of `last_step`."""
        folder = self.folder(name)
        shutil.copytree(self.whole / "checkpoints", folder / "checkpoints")
        for step in checkpoints(folder / "checkpoints"):
            if step > last_step:
                shutil.rmtree(folder / f"checkpoints/step-{step}")
        shutil.copy(self.whole / "metrics.jsonl", folder)
        return folder

    def assert_same_end(self, folder):
        for name in ("weights.safetensors", *(f"checkpoints/step-{STEPS}/{file}" for file in (
                "model.safetensors", "optimizer.safetensors", "rng-0.safetensors", "rng-1.safetensors"))):
            self.assertEqual((folder / name).read_bytes(), (self.whole / name).read_bytes(), name)

    # huggingface/accelerate#4195: the rest of the epoch came from another order. transformers#46628: dropout
    # repeated or differed. Step 8 lies in the middle of the second epoch, 12 at the end of one, before its
    # evaluation.
    def test_from_any_checkpoint_the_weights_are_bit_for_bit_the_same(self):
        whole = self.run_whole()
        for step in (4, 8, 12, 16):
            folder = self.interrupted(f"from-{step}", step)
            done = self.train(folder, CONFIG)
            self.assertIn(f"resumed from checkpoints/step-{step}", done.stdout)
            self.assert_same_end(folder)
            self.assertEqual(epoch_lines(done), epoch_lines(whole)[-len(epoch_lines(done)):])

    def test_the_same_on_three_ranks_with_batch_norm_shifts_and_accumulation(self):
        config = with_changes(CONFIG, {
            "model": {"type": "cnn", "channels": [4], "hidden": 8},
            "data": {"type": "idx", "dir": os.environ["CPPRUN_SOURCE_DIR"] + "/conf/data/digits", "shift": 1},
            "batch_size": 40, "accumulation_steps": 2})  # 479 images a rank: 12 batches, 6 windows
        self.run_whole(config, 3)
        folder = self.interrupted("from-8", 8)
        self.train(folder, config, 3)
        self.assert_same_end(folder)

    def test_metrics_have_every_step_once(self):
        self.run_whole()
        folder = self.interrupted("from-8", 8)  # its metrics file holds all 18 steps
        self.train(folder, CONFIG)
        self.assertEqual([r["step"] for r in metrics(folder / "metrics.jsonl", "step")], list(range(1, STEPS + 1)))
        self.assertEqual([r["epoch"] for r in metrics(folder / "metrics.jsonl", "eval")], [0, 1, 2])

    def test_a_finished_run_is_begun_anew_by_a_new_command_only(self):
        self.run_whole()
        again = self.train(self.whole, CONFIG)
        self.assertIn("beginning anew", again.stdout)
        self.assertEqual(len(epoch_lines(again)), 3)

    def test_a_restarted_worker_of_a_finished_run_only_ends(self):
        alone = self.folder("alone")
        self.worker(alone, CONFIG)
        ended = self.worker(alone, CONFIG, TORCHELASTIC_RESTART_COUNT="1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0",
                            MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        self.assertEqual(epoch_lines(ended), [])
        self.assertIn("validation accuracy", ended.stdout)

    def test_more_epochs_carry_a_finished_run_on(self):
        self.run_whole()
        done = self.train(self.whole, with_changes(CONFIG, {"epochs": 4}))
        self.assertEqual([line.split()[1] for line in epoch_lines(done)], ["3"])

    def test_never_begins_anew_each_time(self):
        self.run_whole()
        folder = self.interrupted("never", 8)
        done = self.train(folder, with_changes(CONFIG, {"checkpoint.resume": "never"}))
        self.assertEqual(len(epoch_lines(done)), 3)
        self.assert_same_end(folder)

    def test_a_damaged_checkpoint_is_passed_over(self):
        self.run_whole()
        folder = self.interrupted("damaged", 12)
        model = folder / "checkpoints/step-12/model.safetensors"
        os.truncate(model, model.stat().st_size // 2)
        done = self.train(folder, CONFIG)
        self.assertIn("resumed from checkpoints/step-8", done.stdout)
        self.assert_same_end(folder)

    def refused(self, folder, changes, sentence, processes=2, cls="exception"):
        done = self.train(folder, with_changes(CONFIG, changes), processes, code=1)
        self.assertIn(sentence, done.stderr)
        self.assertRegex(done.stderr, r"exit ?code\W+2\b")
        self.assertIn(f"  cause     : {cls}: ", done.stderr)

    def test_checkpoints_that_do_not_fit_are_refused(self):
        self.run_whole()
        folder = self.interrupted("refused", 8)
        before = checkpoints(folder / "checkpoints")
        self.refused(folder, {"model.hidden": [17]}, "0.weight has shape")
        self.refused(folder, {"optimizer": {"type": "sgd"}}, "step-8")
        self.refused(folder, {"seed": 6}, "seed 5 instead of 6")
        self.refused(folder, {"batch_size": 4}, "batch_size 8 instead of 4")
        for step in before:
            model = folder / f"checkpoints/step-{step}/model.safetensors"
            os.truncate(model, model.stat().st_size - 1)
        self.refused(folder, {}, "model.safetensors", cls="checkpoint_corrupt")
        self.assertEqual(checkpoints(folder / "checkpoints"), before)

    def test_another_number_of_processes_goes_on_behind_what_was_used(self):
        """96 examples: 2 ranks have used 32 of the second epoch at step 8; of the 64 left, 3 ranks get 21 each."""
        self.run_whole()
        folder = self.interrupted("three", 8)
        done = self.train(folder, CONFIG, 3)
        self.assertIn("resumed from checkpoints/step-8, which 2 processes wrote\n", done.stdout)
        records = metrics(folder / "metrics.jsonl", "step")[8:]
        self.assertEqual([(r["step"], r["epoch"], r["examples"]) for r in records],
                         [(9, 1, 24), (10, 1, 24), (11, 1, 15),
                          (12, 2, 24), (13, 2, 24), (14, 2, 24), (15, 2, 24)])
        whole = metrics(self.whole / "metrics.jsonl", "step")
        # 8 of 18 steps, and the fifth of 12: the schedule is where it was.
        self.assertAlmostEqual(records[0]["lr"], whole[8]["lr"], delta=0.1 * whole[8]["lr"])
        self.assertAlmostEqual(records[-1]["lr"], whole[-1]["lr"], delta=0.01 * whole[8]["lr"])
        self.assertEqual([r["epoch"] for r in metrics(folder / "metrics.jsonl", "eval")], [0, 1, 2])

    def test_a_run_whose_number_of_processes_changed_is_resumed_bit_for_bit(self):
        self.run_whole()
        ends = []
        for stops in ((), (10,), (10, 13)):
            folder = self.interrupted(f"stopped-{len(stops)}", 8)
            for stop in stops:
                self.train(folder, with_changes(CONFIG, {"checkpoint.every_steps": 1}), 3)
                for step in checkpoints(folder / "checkpoints"):
                    if step > stop:
                        shutil.rmtree(folder / f"checkpoints/step-{step}")
            self.train(folder, CONFIG, 3)
            ends.append((folder / "weights.safetensors").read_bytes())
        self.assertEqual(ends[1:], [ends[0]] * 2)

    # Lightning-AI/pytorch-lightning#379: one rank stopped and the others hung.
    def test_a_signal_at_one_rank_stops_all_after_the_same_step(self):
        config = with_changes(CONFIG, {"epochs": 2000, "checkpoint.every_steps": 100, "checkpoint.keep": 1})
        folder = self.folder("signal")
        job = self.start(folder, config)
        job.wait_until("a checkpoint", lambda: checkpoints(folder / "checkpoints"))
        os.kill(job.worker_pid(1), signal.SIGTERM)
        done = job.finish()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)  # the launcher had not asked for it
        self.assertRegex(done.stdout, r"stopped after step \d+\n")
        (step,) = checkpoints(folder / "checkpoints")
        self.assertIn(f"stopped after step {step}\n", done.stdout)
        self.assertIn(f"checkpoint checkpoints/step-{step}\n", done.stdout)


if __name__ == "__main__":
    unittest.main()

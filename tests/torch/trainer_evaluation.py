"""Validation counts every example once, on any number of ranks (pytorch/pytorch#25162 and others: padded samples
counted twice, so that the metric depended on the number of ranks)."""
import unittest

from trainer_jobs import MLP, TrainerTest, metrics, with_changes


class Evaluation(TrainerTest):
    def evaluate(self, processes, val_examples):
        """Of the start weights: nothing is learned at a rate of 0."""
        folder = self.folder(f"{processes}-{val_examples}")
        self.train(folder, with_changes(MLP, {"optimizer.lr": 0, "epochs": 1, "data.val_examples": val_examples,
                                              "metrics_file": "metrics.jsonl"}), processes)
        return metrics(folder / "metrics.jsonl", "eval")[0]

    def compare(self, val_examples, expected_accuracies):
        one = self.evaluate(1, val_examples)
        self.assertEqual(one["val_n"], val_examples)
        for processes in (2, 3):
            many = self.evaluate(processes, val_examples)
            self.assertEqual(many["val_n"], val_examples)
            self.assertEqual(many["acc"], one["acc"])
            self.assertAlmostEqual(many["loss"], one["loss"], places=6)
        self.assertIn(one["acc"], expected_accuracies)

    def test_eleven_examples_do_not_divide(self):
        self.compare(11, [k / 11 for k in range(12)])

    def test_a_rank_without_examples_takes_part(self):
        self.compare(2, [0, 0.5, 1])


if __name__ == "__main__":
    unittest.main()

"""A job that runs costs its launcher nothing: neither guardian nor agent wakes while the workers work."""
import os
import unittest

from harness import ScenarioTest


def switches(pid):
    """How often the kernel gave a process a core, or took one away."""
    with open(f"/proc/{pid}/status") as f:
        return sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)


class Idle(ScenarioTest):
    def test_no_wake_up_while_workers_run(self):
        # The workers are the clock; a launcher that looks at them each 100 ms would wake 20 times a turn. On a busy
        # machine the first turns may see the end of its start.
        self.script("w.sh", "for turn in 0 1 2 3; do sleep 2; touch $CASE/$1.$turn.$RANK; done; read x <$CASE/gate")
        os.mkfifo(self.path("gate"))
        jobs = {name: self.start("--nproc-per-node=2", *options, "./w.sh", name)
                for name, options in (("plain", ()), ("teed", ("-t3", "--log-dir=logs")))}
        counts = {name: [] for name in jobs}
        for turn in range(4):
            self.wait_for_files(*(f"{name}.{turn}.{rank}" for name in jobs for rank in (0, 1)))
            for name, job in jobs.items():
                counts[name].append(switches(job.pid) + switches(job.agent()))
        for name, seen in counts.items():
            woken = [after - before for before, after in zip(seen, seen[1:])]
            self.assertLessEqual(min(woken), 2, f"{name}: guardian and agent woke {woken} times")
        for job in jobs.values():
            job.signal(15)
            self.assertEqual(job.end(), 128 + 15)


if __name__ == "__main__":
    unittest.main()

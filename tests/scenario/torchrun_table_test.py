"""Every option and variable of torchrun: launcher/README.md says what cpprun makes of it, and cpprun takes it."""
import os
import re
import unittest

from harness import ScenarioTest
from torchrun_options import AGENT_VARIABLES, OPTIONS, OWN_OPTIONS, WORKER_VARIABLES, given, twin_of, variable_of

README = os.path.join(os.environ["CPPRUN_SOURCE_DIR"], "launcher", "README.md")
VERDICTS = {"same", "better", "different"}


def table_rows():
    """{name: verdict} of the README's tables whose second column is a verdict; one that is not "same" has a reason."""
    rows = {}
    with open(README) as f:
        for line in f:
            cells = [cell.strip() for cell in line.strip().split("|")[1:-1]]
            if len(cells) == 3 and cells[1] in VERDICTS and (cells[1] == "same" or cells[2]):
                for name in re.findall(r"`([^`]+)`", cells[0]):
                    rows[name] = cells[1]
    return rows


class Table(unittest.TestCase):
    def test_nothing_of_torchrun_is_missing(self):
        rows = table_rows()
        expected = [option.name for option in OPTIONS] + [option.short for option in OPTIONS if option.short]
        for name in expected + WORKER_VARIABLES + AGENT_VARIABLES:
            with self.subTest(name):
                self.assertIn(name, rows)

    def test_no_row_is_about_something_else(self):
        known = {option.name for option in OPTIONS} | {option.short for option in OPTIONS}
        self.assertEqual(set(table_rows()) - known - set(WORKER_VARIABLES) - set(AGENT_VARIABLES), set())


class Taken(ScenarioTest):
    def setUp(self):
        super().setUp()
        self.program = self.write("w.py", "", 0o755)
        self.base = {"PYTHON_EXEC": "/bin/true", "PET_NPROC_PER_NODE": "2"}

    def dry_run(self, *options, env=None):
        job = self.run_to_end("--dry-run", *options, self.program, env={**self.base, **(env or {})})
        self.assertEqual(job.code, 0, f"{options} {env}: {job.err}")
        return job.out

    def test_each_option_and_its_twin_and_its_variable_do_the_same(self):
        for option in OPTIONS + OWN_OPTIONS:
            if option.name in ("--print-completion", "--config"):
                continue  # tested on their own
            with self.subTest(option.name):
                beside = option.beside
                expected = self.dry_run(*beside, *given(option))
                self.assertEqual(self.dry_run(*beside, *given(option, twin_of(option.name))), expected)
                if option.short:
                    short = [option.short] if option.good is None else [option.short, option.good]
                    self.assertEqual(self.dry_run(*beside, *short), expected)
                if option.variable:
                    value = "1" if option.good is None else option.good
                    self.assertEqual(self.dry_run(*beside, env={variable_of(option): value}), expected)
                if option.variable and option.good is None:
                    plain = self.dry_run(*beside)
                    self.assertEqual(self.dry_run(*beside, env={variable_of(option): "0"}), plain)

    def test_what_shows_in_a_dry_run_changes_by_the_variable(self):
        unseen = {"--nnodes", "--monitor-interval", "--start-method", "--node-rank", "--dry-run", "--config",
                  "--logs-specs", "--event-log-handler"}
        for option in OPTIONS + OWN_OPTIONS:
            if not option.variable or option.name in unseen:
                continue
            with self.subTest(option.name):
                # Where the meeting place counts, one is given.
                beside = option.beside
                if option.name in ("--rdzv-conf", "--local-addr", "--rdzv-backend"):
                    backend = () if option.name == "--rdzv-backend" else ("--rdzv-backend=c10d",)
                    beside = (*backend, "--rdzv-endpoint=localhost:29515")
                env = {variable_of(option): "1" if option.good is None else option.good}
                self.assertNotEqual(self.dry_run(*beside, env=env), self.dry_run(*beside))

    def test_defaults_are_torchruns(self):
        plain = self.dry_run()
        for option in OPTIONS:
            if option.good is None or option.default in (None, "") or option.name == "--nproc-per-node":
                continue
            with self.subTest(option.name):
                self.assertEqual(self.dry_run(f"{option.name}={option.default}"), plain)


if __name__ == "__main__":
    unittest.main()

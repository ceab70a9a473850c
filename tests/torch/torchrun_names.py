"""tests/scenario/torchrun_options.py lists what the installed torchrun has: options, aliases and defaults."""
import os
import sys
import unittest

from torch.distributed.run import get_args_parser

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "scenario"))
from torchrun_options import OPTIONS  # noqa: E402


class Names(unittest.TestCase):
    def test_options_aliases_and_defaults(self):
        for name in [name for name in os.environ if name.startswith("PET_")]:
            del os.environ[name]
        theirs = {}
        for action in get_args_parser()._actions:
            names = [name for name in action.option_strings if "_" not in name]
            if names and action.dest != "help":
                long_name = next(name for name in names if name.startswith("--"))
                short = next((name for name in names if not name.startswith("--")), None)
                theirs[long_name] = (short, action.nargs == 0)
                if action.nargs != 0 and action.default is not None:
                    theirs[long_name] += (action.default if action.default != [] else "",)
        ours = {}
        for option in OPTIONS:
            ours[option.name] = (option.short, option.good is None)
            if option.good is not None and option.default is not None:
                ours[option.name] += (option.default,)
        self.assertEqual(theirs, ours)


if __name__ == "__main__":
    unittest.main()

"""The Python rank of process_group_test.cpp: joins by env:// and makes the calls that the C++ rank makes."""
import datetime
import os
import warnings

warnings.filterwarnings("ignore")  # torch's about NumPy, which the tests do not need

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
tensor = torch.arange(5, dtype=torch.float32) * (rank + 1)
dist.all_reduce(tensor)
assert torch.equal(tensor, torch.arange(5, dtype=torch.float32) * 3), tensor

# The C++ rank broadcasts lists by broadcast_coalesced; the root is the Python rank.
sent = torch.full((2,), rank, dtype=torch.float64)
dist._broadcast_coalesced(dist.group.WORLD, [sent], 250 * 1024 * 1024, rank)
dist.barrier()
dist.destroy_process_group()

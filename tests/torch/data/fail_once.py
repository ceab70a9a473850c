"""A Gloo job whose rank 1 dies in its first attempt, at the step that the argument names (-1: before the process
group exists), and whose second attempt must find nothing of the first."""
import os
import sys

import torch
import torch.distributed as dist

STEPS = 4
fails_at = int(sys.argv[1]) if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1" else None
if fails_at == -1:
    os._exit(9)
dist.init_process_group("gloo")
total = torch.zeros(1)
for step in range(STEPS):
    if step == fails_at:
        os._exit(9)
    part = torch.tensor([float(dist.get_rank() + step)])
    dist.all_reduce(part)
    total += part
dist.barrier()
# In one piece: unbuffered, print writes the end of the line by itself, and another rank's line may come between.
print(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']} rank {dist.get_rank()}: {total.item():g}\n", end="")
dist.destroy_process_group()

"""A Gloo job that knows nothing of cpprun: adds up the world's size in each step, and keeps its state in a checkpoint.

Arguments: the checkpoint, and a file that ends the job when it is there."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

checkpoint, end = sys.argv[1:]
start = time.time_ns()  # rank 0's tells one world from the next
dist.init_process_group("gloo")
state = {"total": 0, "worlds": []}  # a world for each step
if os.path.exists(checkpoint):
    with open(checkpoint) as file:
        state = json.load(file)
while True:
    sums = torch.tensor([1, int(dist.get_rank() == 0 and os.path.exists(end))])
    dist.all_reduce(sums)
    state["total"] += sums[0].item()
    state["worlds"].append([start, dist.get_world_size()])
    if dist.get_rank() == 0:
        with open(checkpoint + ".new", "w") as file:
            json.dump(state, file)
        os.rename(checkpoint + ".new", checkpoint)
    dist.barrier()  # nobody is ahead of the checkpoint
    if sums[1]:
        break
    time.sleep(0.05)
dist.destroy_process_group()

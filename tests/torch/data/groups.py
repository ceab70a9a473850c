"""Sub-groups, collectives of Python objects, and monitored_barrier, with and without everybody there."""
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def say(text):
    print(f"rank {rank}: {text}\n", end="")  # in one piece, lest the ranks' lines mix


alone = [dist.new_group([r]) for r in range(size)]
reverse = dist.new_group(list(reversed(range(size))))
value = torch.tensor([rank + 1.0])
dist.all_reduce(value, group=alone[rank])
dist.all_reduce(value, group=reverse)
say(f"sum {value.item():g}")

everyone = [None] * size
dist.all_gather_object(everyone, {"rank": rank, "name": "x" * rank})
say(f"gathered {everyone}")

shared = [{"seed": 7}, "text", None] if rank == 0 else [None] * 3
dist.broadcast_object_list(shared, src=0)
say(f"got {shared}")

own = [None]
dist.scatter_object_list(own, [f"part {r}" for r in range(size)] if rank == 1 else None, src=1)
say(f"has {own[0]}")

dist.monitored_barrier()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
        say("nobody was missed")
    except RuntimeError as error:
        say("missed rank 1" if "Rank 1" in str(error) or "Ranks 1" in str(error) else str(error))
    store.set("missed", "yes")
else:
    store.wait(["missed"])
dist.destroy_process_group()

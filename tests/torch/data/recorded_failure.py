"""Rank 1 raises in a function whose errors are recorded."""
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def check_batch(number):
    if dist.get_rank() == 1:
        raise ValueError(f"the labels of batch {number} do not match its images")


@record
def main():
    dist.init_process_group("gloo")
    for number in range(3):
        dist.barrier()
    check_batch(number)
    dist.barrier()


main()

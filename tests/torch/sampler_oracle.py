"""Prints what torch's own DistributedSampler gives: a line for each configuration, its numbers and its indices."""
import itertools
import random
import warnings

warnings.filterwarnings("ignore")  # torch's about NumPy, which the tests do not need

from torch.utils.data.distributed import DistributedSampler


def show(n, world, rank, shuffle, seed, epoch, drop_last):
    sampler = DistributedSampler(range(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    print(n, world, rank, int(shuffle), seed, epoch, int(drop_last), *sampler)


for n, world, shuffle, drop_last in itertools.product((0, 1, 2, 3, 7, 10, 128), (1, 2, 3, 5, 16), (True, False),
                                                      (True, False)):
    for rank in {0, world // 2, world - 1}:
        for seed, epoch in ((0, 0), (9, 1)):
            show(n, world, rank, shuffle, seed, epoch, drop_last)
chooser = random.Random(1)
for _ in range(400):
    world = chooser.randint(1, 40)
    seed = chooser.choice((0, 1, 42, -1, -(2**31), 2**31, 2**53 + 1, 2**62, chooser.getrandbits(60)))
    show(chooser.randint(1, 700), world, chooser.randrange(world), chooser.random() < 0.9, seed,
         chooser.randint(0, 1000), chooser.random() < 0.5)
show(100_003, 3, 1, True, 7, 2, False)

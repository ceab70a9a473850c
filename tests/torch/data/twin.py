"""The training of cpprun-train in Python, for the configs of trainer_twin.py. Run by torchrun: CONFIGS OUT."""
import contextlib
import json
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DistributedSampler


def load(data):
    if data["type"] == "synthetic":
        g = torch.Generator().manual_seed(data["seed"])
        x = torch.randn(data["train_examples"] + data["val_examples"], 8, generator=g)
        y = (x @ torch.randn(8, 3, generator=g)).argmax(1)
        return x[:data["train_examples"]], y[:data["train_examples"]]
    read = lambda name, header: torch.frombuffer(  # noqa: E731
        bytearray((pathlib.Path(data["dir"]) / name).read_bytes()[header:]), dtype=torch.uint8)
    images = read("train-images-idx3-ubyte", 16).view(-1, 1, 8, 8).float() / 16
    return images, read("train-labels-idx1-ubyte", 8).long()


def build(model, inputs, classes):
    if model["type"] == "mlp":
        widths = [inputs.shape[1], *model["hidden"]]
        layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes))
    layers, width = [], 1
    for channels in model["channels"]:
        layers += [nn.Conv2d(width, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
        width = channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(model["dropout"]), nn.Linear(width * 4, model["hidden"]),
                         nn.ReLU(), nn.Linear(model["hidden"], classes))


def optimizer_of(config, parameters):
    options = {k: v for k, v in config.items() if k != "type"}
    return {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[config["type"]](parameters, **options)


def scheduler_of(config, optimizer, lr, total_steps):
    if config["type"] == "one_cycle":
        return lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=total_steps, cycle_momentum=False)
    warm = config["warmup_steps"]
    return lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, config["start_factor"], total_iters=warm),
                    lr_scheduler.CosineAnnealingLR(optimizer, total_steps - warm, eta_min=config["min_factor"] * lr)],
        milestones=[warm])


def shifted(images, pixels):
    moves = torch.randint(0, 2 * pixels + 1, (2, len(images)))
    padded = F.pad(images, (pixels,) * 4)
    return torch.stack([image[:, r:r + 8, c:c + 8] for image, r, c in zip(padded, *moves.tolist())])


def train(config, rank, world):
    inputs, targets = load(config["data"])
    torch.manual_seed(config["seed"])
    model = DistributedDataParallel(build(config["model"], inputs, int(targets.max()) + 1))
    torch.manual_seed(config["seed"] + rank)
    sampler = DistributedSampler(range(len(inputs)), world, rank, seed=config.get("shuffle_seed", config["seed"]),
                                 drop_last=True)
    size, window = config["batch_size"], config.get("accumulation_steps", 1)
    batches = -(-len(sampler) // size)
    optimizer = optimizer_of(config["optimizer"], model.parameters())
    scheduler = scheduler_of(config["schedule"], optimizer, config["optimizer"]["lr"],
                             config["epochs"] * -(-batches // window))
    model.train()
    steps = []
    for epoch in range(config["epochs"]):
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        totals = torch.zeros(2, dtype=torch.float64)
        for number in range(batches):
            last = (number + 1) % window == 0 or number + 1 == batches
            batch = order[number * size:(number + 1) * size]
            x = inputs[batch]
            if config["data"].get("shift"):
                x = shifted(x, config["data"]["shift"])
            with contextlib.nullcontext() if last else model.no_sync():
                loss = F.cross_entropy(model(x), targets[batch], reduction="sum")
                loss.backward()
            totals += torch.tensor([loss.item(), len(batch)])
            if last:
                dist.all_reduce(totals)
                loss_sum, examples = totals.tolist()
                for p in model.parameters():
                    p.grad.mul_(world / examples)
                if config.get("clip_norm"):
                    nn.utils.clip_grad_norm_(model.parameters(), config["clip_norm"])
                steps.append({"loss": loss_sum / examples, "examples": int(examples),
                              "lr": optimizer.param_groups[0]["lr"]})
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                totals.zero_()
    weights = {name: {"shape": list(t.shape), "values": t.flatten().tolist()}
               for name, t in model.module.state_dict().items()}
    return {"steps": steps, "weights": weights}


def main():
    warnings.simplefilter("ignore")  # SequentialLR's own
    dist.init_process_group("gloo")
    configs = json.loads(pathlib.Path(sys.argv[1]).read_text())
    runs = {name: train(config, dist.get_rank(), dist.get_world_size()) for name, config in configs.items()}
    if dist.get_rank() == 0:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(runs))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

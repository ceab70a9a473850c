import os
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Subset
from torch.utils.data.distributed import DistributedSampler


def setup():
    local_rank = int(os.environ["LOCAL_RANK"])
    use_cuda = torch.cuda.is_available() and os.environ.get("USE_CPU") != "1"
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if use_cuda else "gloo", timeout=timedelta(seconds=120))
    return device, dist.get_rank(), dist.get_world_size()


def build_model():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


@torch.no_grad()
def evaluate_distributed(model, loader, device):
    model.eval()
    # Synchronize buffers once, then avoid DDP forward collectives on uneven shards.
    for buffer in model.module.buffers():
        dist.broadcast(buffer, src=0)
    totals = torch.zeros(3, dtype=torch.float64, device=device)
    for xb, yb in loader:
        xb, yb = xb.to(device), yb.to(device)
        logits = model.module(xb)
        totals[0] += F.cross_entropy(logits, yb, reduction="sum").double()
        totals[1] += (logits.argmax(1) == yb).sum()
        totals[2] += yb.numel()
    dist.all_reduce(totals, op=dist.ReduceOp.SUM)
    loss_sum, correct, count = totals.tolist()
    if count == 0:
        raise ValueError("validation set is empty")
    return loss_sum / count, correct / count, int(count)


def main():
    device, rank, world_size = setup()
    try:
        torch.manual_seed(42)
        g = torch.Generator().manual_seed(7)
        x = torch.randn(229, 8, generator=g)
        teacher = torch.randn(8, 3, generator=g)
        y = (x @ teacher).argmax(1)
        train_set = TensorDataset(x[:128], y[:128])
        val_set = TensorDataset(x[128:], y[128:])
        if world_size > len(train_set):
            raise ValueError("too many processes for this training set")
        sampler = DistributedSampler(train_set, num_replicas=world_size,
                                     rank=rank, shuffle=True, seed=9, drop_last=True)
        loader = DataLoader(train_set, batch_size=16, sampler=sampler, num_workers=0)
        val_shard = Subset(val_set, list(range(rank, len(val_set), world_size)))
        val_loader = DataLoader(val_shard, batch_size=16, num_workers=0)
        model = DDP(build_model().to(device),
                    device_ids=[device.index] if device.type == "cuda" else None)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            model.train()
            for xb, yb in loader:
                xb, yb = xb.to(device), yb.to(device)
                optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(model(xb), yb)
                loss.backward()
                optimizer.step()
            val_loss, val_acc, count = evaluate_distributed(model, val_loader, device)
            if rank == 0:
                print(f"epoch {epoch} val_n {count} loss {val_loss:.4f} acc {val_acc:.4f}")
                torch.save(model.module.state_dict(), "ddp_weights.pt")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        print("Launch this file with torchrun to execute distributed training.")

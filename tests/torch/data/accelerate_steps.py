"""A Hugging Face Accelerate loop on two CPU processes, and the same steps computed by each process alone."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
x = torch.randn(24, 4)
y = x.sum(dim=1, keepdim=True)
examples = TensorDataset(x, y, torch.arange(24))


def new_model():
    torch.manual_seed(5)
    return torch.nn.Linear(4, 1)


accelerator = Accelerator(cpu=True)
model = new_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(examples, batch_size=3))
seen = []
for batch, target, number in loader:
    loss = torch.nn.functional.mse_loss(model(batch), target)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    seen += accelerator.gather_for_metrics(number).tolist()
weights = accelerator.gather(accelerator.unwrap_model(model).weight.detach())

alone = new_model()
plain = torch.optim.SGD(alone.parameters(), lr=0.1)
for batch, target, _ in DataLoader(examples, batch_size=6):
    torch.nn.functional.mse_loss(alone(batch), target).backward()
    plain.step()
    plain.zero_grad()

accelerator.print(f"{accelerator.num_processes} processes, {accelerator.distributed_type}")
accelerator.print(f"every example seen once: {sorted(seen) == list(range(24))}")
accelerator.print(f"the weights of one process: {torch.allclose(weights, alone.weight.repeat(2, 1), atol=1e-6)}")
accelerator.end_training()

"""What a user's type checker has to know of Tenon: `mypy --strict` passes here, line by line."""

from typing import assert_type

import numpy as np

import tenon as tn
from tenon import nn, optim


class Net(nn.Module):
    def __init__(self) -> None:
        self.hidden, self.out = nn.Linear(4, 8), nn.Linear(8, 3)

    def __call__(self, x: tn.Tensor) -> tn.Tensor:
        logits: tn.Tensor = self.out(tn.relu(self.hidden(x)))
        return logits


net = Net()
optimizer = optim.Adam(net.parameters(), lr=1e-3)


@tn.jit
def step(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
    loss: tn.Tensor = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@tn.jit(fullgraph=True, background=False)
def scaled(x: tn.Tensor, factor: float) -> tn.Tensor:
    return x * factor


x = tn.zeros((2, 4), dtype=tn.float32)
assert_type(x, tn.Tensor)
assert_type(step(x, tn.tensor([0, 1])), tn.Tensor)
assert_type(scaled(x, 2.0), tn.Tensor)
assert_type((1 + x @ x.T) - np.float32(2) * x[:, :2], tn.Tensor)
assert_type(x > 0, tn.Tensor)
assert_type(x[0, 1:].sum(axis=0, keepdims=True).reshape(1, -1).astype("float64").float(), tn.Tensor)
assert_type(x.topk(2).values, tn.Tensor)
assert_type(tn.split(x, 2, axis=1), tuple[tn.Tensor, ...])
assert_type(tn.frexp(x), tuple[tn.Tensor, tn.Tensor])
assert_type(x.real, tn.Tensor)
assert_type(x.dim() + x.numel() + len(x) + x.ndim, int)
assert_type(tn.where(x > 0, x, 0.0), tn.Tensor)
assert_type(tn.rand(2, 3), tn.Tensor)
assert_type(x.sum(dim=0, keepdim=True).add_(1, alpha=0.5), tn.Tensor)
assert_type(tn.softmax(x, dim=-1).std(0, unbiased=False), tn.Tensor)
assert_type(x.gather(1, tn.zeros((2, 3), dtype=tn.int64)).transpose(0, 1).flip(0, 1), tn.Tensor)
rows, columns = x.shape
assert_type(tn.ones((rows * 2, columns)), tn.Tensor)
assert_type(tn.linalg.qr(x).Q, tn.Tensor)

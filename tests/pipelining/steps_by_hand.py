"""Training steps whose gradients are summed over micro-batches by hand, and what runs their devices in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.graph.ir import Graph
from tenon.ops.collectives import all_reduce
from tenon.ops.communicator import speaking
from tenon.pipelining.device_program import DeviceProgram
from tenon.runtime.local_transport import LocalTransport
from tenon.sharding.mesh import Mesh

LossOf = Callable[[Any, Any, Any], Any]


class Block(nn.Module):
    """Causal attention and a two-layer network."""

    def __init__(self, width: int) -> None:
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: tn.Tensor) -> Any:
        n, t, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).reshape(n, t, 3, 2, width // 2).permute((2, 0, 3, 1, 4)).unstack(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.permute((0, 2, 1, 3)).reshape(n, t, width))
        return x + self.mlp(self.before_mlp(x))


class SmallGPT(nn.Module):
    """The embedding is also the last layer's weight, so that the first and the last stage share it."""

    def __init__(self, layers: int = 4, width: int = 8) -> None:
        self.words, self.places = nn.Embedding(7, width), nn.Embedding(5, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: tn.Tensor) -> Any:
        x = self.blocks(self.words(ids) + self.places(tn.arange(ids.shape[1])))
        return self.norm(x) @ self.words.weight.mT


def mlp() -> Any:
    tn.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.Tanh(),
                         nn.Linear(32, 3)).to(tn.float64)


def gpt() -> Any:
    tn.manual_seed(0)
    return SmallGPT().to(tn.float64)


def shallow_gpt() -> Any:
    tn.manual_seed(0)
    return SmallGPT(layers=2).to(tn.float64)


def data_for(net: Any, batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if isinstance(net, SmallGPT):
        return rng.integers(0, 7, (batch, 5)), rng.integers(0, 7, (batch, 5))
    return rng.standard_normal((batch, 8)), rng.integers(0, 3, batch)


def loss_of(net: Any, x: Any, y: Any) -> Any:
    scores = net(x)
    return nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1), reduction="sum")


def captured(net: Any, batch: int, micro_batches: int) -> tuple[Graph, list[np.ndarray]]:
    """The step on a micro-batch, with the sums over all written down, and the arguments for the whole batch."""
    optimizer = optim.AdamW(net.parameters(), lr=0.01)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        loss = loss_of(net, x, y) / batch
        loss.backward()
        for p in net.parameters():
            p.grad = all_reduce(p.grad, over=("micro",))
        optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return all_reduce(loss.detach(), over=("micro",))

    x, y = data_for(net, batch)
    part = batch // micro_batches
    found = step.capture(tn.tensor(x[:part]), tn.tensor(y[:part]))
    holders: Any = found.inputs.holders([tn.tensor(x), tn.tensor(y)])
    return found.graph, [np.asarray(h.payload) for h in holders]


def whole_step(net: Any, batch: int) -> tuple[Graph, list[np.ndarray]]:
    """The same step on the whole batch, and its arguments."""
    optimizer = optim.AdamW(net.parameters(), lr=0.01)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        loss = loss_of(net, x, y) / batch
        loss.backward()
        optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x, y = (tn.tensor(a) for a in data_for(net, batch))
    found = step.capture(x, y)
    holders: Any = found.inputs.holders([x, y])
    return found.graph, [np.asarray(h.payload) for h in holders]


def mean_step(net: Any, batch: int) -> tuple[Graph, list[np.ndarray]]:
    """A step as one writes it, with the mean over all targets, and its arguments."""
    optimizer = optim.AdamW(net.parameters(), lr=0.01)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        scores = net(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x, y = (tn.tensor(a) for a in data_for(net, batch))
    found = step.capture(x, y)
    holders: Any = found.inputs.holders([x, y])
    return found.graph, [np.asarray(h.payload) for h in holders]


def run_all(programs: Sequence[DeviceProgram], arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """What each device returns."""
    speakers = LocalTransport(Mesh({"pipe": len(programs)})).begin()
    found: dict[int, list[np.ndarray]] = {}
    errors: list[BaseException] = []

    def work(device: int) -> None:
        try:
            with speaking(speakers[device]):
                found[device] = programs[device].run([arrays[k] for k in programs[device].arguments])
        except Exception as error:
            errors.append(error)
            speakers[device].abort(error)
    threads = [threading.Thread(target=work, args=(device,)) for device in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[device] for device in range(len(programs))]

"""Small models, and training steps of them on one device or a mesh: what tests compare.

    PYTHONPATH=.:tests python tests/sharded_models.py 50        # all of them, for 50 steps
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.distributed.shard import gather, shard
from tenon.sharding.mesh import Mesh


class Mlp(nn.Module):
    def __init__(self) -> None:
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 3)

    def __call__(self, x: Any) -> Any:
        return self.down(tn.relu(self.up(x)))


class Cnn(nn.Module):
    def __init__(self) -> None:
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 6, 3)
        self.out = nn.Linear(6, 3)

    def __call__(self, x: Any) -> Any:
        h = tn.max_pool2d(tn.relu(self.norm(self.first(x))), 2)
        return self.out(tn.relu(self.second(h)).mean(axis=(2, 3)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def __call__(self, x: Any) -> Any:
        batch, time, width = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).reshape(batch, time, self.heads, width // self.heads).permute(0, 2, 1, 3)
                   for f in (self.q, self.k, self.v))
        a = tn.scaled_dot_product_attention(q, k, v, is_causal=True).permute(0, 2, 1, 3)
        x = x + self.o(a.reshape(batch, time, width))
        return x + self.down(tn.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width: int = 8, heads: int = 4, layers: int = 1) -> None:
        self.tokens, self.places = nn.Embedding(11, width), nn.Embedding(6, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 11)

    def __call__(self, x: Any) -> Any:
        h = self.tokens(x) + self.places(tn.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)).reshape(-1, 11)


class Moe(nn.Module):
    """Tokens of each group go to one of four experts, two each at most (GShard, Lepikhin et al. 2021)."""

    def __init__(self, width: int = 6, experts: int = 4, room: int = 2) -> None:
        self.route = nn.Linear(width, experts)
        self.up = nn.Parameter(tn.randn(experts, width, 2 * width) * 0.3)
        self.down = nn.Parameter(tn.randn(experts, 2 * width, width) * 0.3)
        self.out, self.experts, self.room = nn.Linear(width, 3), experts, room

    def __call__(self, x: Any) -> Any:
        chances = tn.softmax(self.route(x), axis=-1)
        chosen = tn.one_hot(tn.argmax(chances, axis=-1), self.experts, dtype=x.dtype)
        place = (tn.cumsum(chosen, axis=1) - 1) * chosen
        slot = tn.one_hot(place.sum(axis=-1).astype(tn.int64) % self.room, self.room, dtype=x.dtype)
        fits = (place.sum(axis=-1) < self.room).astype(x.dtype)
        send = chosen[..., None] * slot[:, :, None, :] * fits[..., None, None]         # [groups, tokens, experts, room]
        sent = tn.einsum("gtec,gtm->egcm", send, x)
        hidden = tn.relu(tn.einsum("egcm,emh->egch", sent, self.up))
        back = tn.einsum("egch,ehm->egcm", hidden, self.down)
        weight = send * (chances * chosen).sum(axis=-1)[..., None, None]
        return self.out(x + tn.einsum("gtec,egcm->gtm", weight, back)).reshape(-1, 3)


def batch(model: type, size: int) -> tuple[Any, Any]:
    """Inputs and classes."""
    if model is Mlp:
        return tn.rand(size, 6, dtype=tn.float64), tn.randint(0, 3, (size,))
    if model is Cnn:
        return tn.rand(size, 2, 6, 6, dtype=tn.float64), tn.randint(0, 3, (size,))
    if model is Gpt:
        return tn.randint(0, 11, (size, 6)), tn.randint(0, 11, (size, 6))
    return tn.rand(size, 5, 6, dtype=tn.float64), tn.randint(0, 3, (size, 5))


def trained(model: type, mesh: Mesh | None = None, data: Any = (), rules: Any = None, state: Any = None,
            steps: int = 5, size: int = 6, dtype: Any = None, make: Callable[..., Any] | None = None,
            seen: list[Any] | None = None) -> tuple[list[float], list[Any]]:
    """(the losses of some steps, the parameters afterwards): on a mesh with the batch split as `data` says, parameters
    by `rules`, the optimizer's state as they are, and over the axis `state` besides."""
    dtype = dtype or tn.float64
    tn.manual_seed(3)
    net = model().to(dtype)
    optimizer = (make or (lambda parameters: optim.Adam(parameters, lr=1e-2)))(net.parameters())
    if mesh is not None and rules is not None:
        shard(net, mesh, rules)
    if mesh is not None and (rules is not None or state is not None):
        shard(optimizer, mesh, state or ())

    @tn.jit(mesh=mesh)
    def step(x: Any, y: Any) -> Any:
        if mesh is not None:
            x, y = shard(x, mesh, data), shard(y, mesh, data)
        loss = nn.cross_entropy(net(x), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    x, y = batch(model, size)
    x = x if x.dtype.kind == "i" else x.astype(dtype)
    losses = [float(step(x, y)) for _ in range(steps)]
    if seen is not None:
        seen += [step, net, optimizer]
    return losses, [gather(p).detach().numpy() for p in net.parameters()]


COLUMNS = {r".*\.[qkv]\.(weight|bias)": ("model",), r".*up\.(weight|bias)": ("model",)}
MEGATRON = {**COLUMNS, r".*\.(o|down)\.weight": (None, "model")}
EXPERTS = {"up": ("data",), "down": ("data",)}
RUNS: dict[str, tuple[type, dict[str, int], dict[str, Any]]] = {
    "mlp data parallel": (Mlp, {"data": 2}, {"data": ("data",)}),
    "mlp data parallel, uneven": (Mlp, {"data": 4}, {"data": ("data",), "size": 7}),
    "mlp data parallel, parts without a row": (Mlp, {"data": 8}, {"data": ("data",), "size": 5}),
    "mlp zero 1": (Mlp, {"data": 2}, {"data": ("data",), "state": "data"}),
    "mlp zero 3": (Mlp, {"data": 3}, {"data": ("data",), "rules": "data"}),
    "mlp first weight in columns": (Mlp, {"model": 2}, {"rules": {"up.*": ("model",)}}),
    "mlp columns and rows": (Mlp, {"data": 2, "model": 2}, {
        "data": ("data",), "rules": {"up.*": ("model",), "down.weight": (None, "model")}, "state": "data"}),
    "cnn data parallel": (Cnn, {"data": 2}, {"data": ("data",)}),
    "cnn data parallel, uneven": (Cnn, {"data": 4}, {"data": ("data",)}),
    "cnn zero 3": (Cnn, {"data": 2}, {"data": ("data",), "rules": "data"}),
    "cnn channels": (Cnn, {"data": 2, "model": 2}, {
        "data": ("data",), "rules": {"first.*": ("model",), "norm.*": ("model",), "second.weight": (None, "model")}}),
    "gpt data parallel": (Gpt, {"data": 2}, {"data": ("data",)}),
    "gpt columns": (Gpt, {"model": 2}, {"rules": {f"blocks{k}": v for k, v in COLUMNS.items()}}),
    "gpt megatron": (Gpt, {"model": 2}, {"rules": {f"blocks{k}": v for k, v in MEGATRON.items()}}),
    "gpt sequence parallel": (Gpt, {"sequence": 3}, {"data": (None, "sequence")}),
    "gpt data and sequence": (Gpt, {"data": 2, "sequence": 2}, {"data": ("data", "sequence")}),
    "gpt zero 3": (Gpt, {"data": 2}, {"data": ("data",), "rules": "data"}),
    "gpt in three dimensions": (Gpt, {"data": 2, "sequence": 2, "model": 2}, {
        "data": ("data", "sequence"), "rules": {f"blocks{k}": v for k, v in MEGATRON.items()}, "state": "data"}),
    "moe data parallel": (Moe, {"data": 2}, {"data": ("data",)}),
    "moe expert parallel": (Moe, {"data": 2}, {"data": ("data",), "rules": EXPERTS, "size": 4}),
    "moe expert and model": (Moe, {"data": 2, "model": 2}, {
        "data": ("data",), "rules": {"up": ("data", None, "model"), "down": ("data", "model")}}),
}


def main() -> None:
    """Every way to split, and every model over more meshes of up to eight devices, against one device."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    more = {f"{model.__name__.lower()} data parallel on {n}": (model, {"data": n}, {"data": ("data",)})
            for model in (Mlp, Cnn, Gpt, Moe) for n in (2, 3, 4, 5, 8)}
    known: dict[Any, list[float]] = {}
    for name, (model, sizes, how) in {**RUNS, **more}.items():
        started, size = time.time(), how.get("size", 6)
        if (model, size) not in known:
            known[model, size] = trained(model, steps=steps, size=size)[0]
        losses, expected = np.array(trained(model, Mesh(sizes), steps=steps, **how)[0]), np.array(known[model, size])
        worst = np.max(np.abs(losses - expected) / np.abs(expected))
        print(f"{name:45s} {sizes!s:45s} {worst:.1e} {'ok' if worst < 1e-12 else 'WRONG'} {time.time() - started:5.0f} s",
              flush=True)


if __name__ == "__main__":
    main()

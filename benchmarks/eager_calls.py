"""What users call most, eagerly, on small tensors: layers, methods, indexing, a training step; Tenon beside PyTorch.

    TENON_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.eager_calls [words] [--rounds 20] [--forward]

Each case runs forward, and forward with backward; ratios of the two libraries' times, the largest first.  `words` picks
the cases whose names contain one of them.  Operators have their machine code before the first is measured, as in any
program that made some thousands of calls.
"""
from __future__ import annotations

import argparse
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from tenon.eager.native_fast_path import MIN_CALLS

BURST = 5e-4            # seconds


class Tools:
    """One library and tensors of it, the same for both libraries."""

    def __init__(self, name: str, gradient: bool):
        self.m: Any = importlib.import_module(name)
        self.nn: Any = importlib.import_module(f"{name}.nn")
        self.optim: Any = importlib.import_module(f"{name}.optim")
        self.f: Any = importlib.import_module(f"{name}.nn.functional")
        self.gradient, self.axis = gradient, "axis" if name == "tenon" else "dim"
        random = np.random.default_rng(0)

        def tensor(*shape: int) -> Any:
            return self.leaf(random.standard_normal(shape).astype(np.float32))
        self.v, self.w, self.x, self.y = tensor(10), tensor(10), tensor(32, 128), tensor(32, 128)
        self.image, self.small = tensor(8, 4, 12, 12), tensor(32, 10)
        self.heads = tensor(2, 4, 16, 8)
        self.labels = self.m.tensor(random.integers(0, 10, 32))
        self.words = self.m.tensor(random.integers(0, 50, (4, 16)))
        self.places = self.m.tensor(random.integers(0, 32, 8))
        self.mask = self.m.tensor(random.random((32, 128)) < 0.5)

    def leaf(self, array: Any) -> Any:
        """A tensor, with a gradient where these are measured."""
        return self.m.tensor(array, requires_grad=True) if self.gradient else self.m.tensor(array)

    def layer(self, made: Any) -> Any:
        """A layer whose parameters want gradients only where these are measured."""
        for p in made.parameters():
            p.requires_grad = self.gradient
        return made


def layers(t: Tools) -> dict[str, Callable[[], Any]]:
    nn, f = t.nn, t.f
    linear, narrow = t.layer(nn.Linear(128, 64)), t.layer(nn.Linear(10, 10))
    norm, batch = t.layer(nn.LayerNorm(128)), t.layer(nn.BatchNorm1d(128))
    batch2, conv = t.layer(nn.BatchNorm2d(4)), t.layer(nn.Conv2d(4, 8, 3, padding=1))
    embedding, pool, drop = t.layer(nn.Embedding(50, 16)), nn.MaxPool2d(2), nn.Dropout(0.5)
    group = t.layer(nn.GroupNorm(2, 4))
    used = t.layer(nn.BatchNorm1d(128)).eval()
    mlp = t.layer(nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    attention = t.layer(nn.MultiheadAttention(16, 4, batch_first=True))
    sequence = t.leaf(np.ones((2, 8, 16), np.float32))
    return {
        "linear 32x128": lambda: linear(t.x), "linear 10": lambda: narrow(t.v),
        "relu": lambda: f.relu(t.x), "relu 10": lambda: f.relu(t.v), "gelu": lambda: f.gelu(t.x),
        "gelu 10": lambda: f.gelu(t.v), "silu": lambda: f.silu(t.x), "sigmoid 10": lambda: t.m.sigmoid(t.v),
        "tanh 10": lambda: t.m.tanh(t.v), "leaky_relu 10": lambda: f.leaky_relu(t.v), "elu 10": lambda: f.elu(t.v),
        "softplus 10": lambda: f.softplus(t.v),
        "softmax": lambda: f.softmax(t.x, -1), "softmax 10": lambda: f.softmax(t.v, -1),
        "log_softmax": lambda: f.log_softmax(t.x, -1),
        "layer_norm": lambda: norm(t.x), "batch_norm": lambda: batch(t.x), "batch_norm 2d": lambda: batch2(t.image),
        "batch_norm in use": lambda: used(t.x), "group_norm": lambda: group(t.image),
        "conv2d": lambda: conv(t.image), "max_pool": lambda: pool(t.image),
        "avg_pool": lambda: f.avg_pool2d(t.image, 2), "adaptive_avg_pool": lambda: f.adaptive_avg_pool2d(t.image, 1),
        "embedding": lambda: embedding(t.words), "dropout": lambda: drop(t.x), "dropout 10": lambda: drop(t.v),
        "cross_entropy": lambda: f.cross_entropy(t.small, t.labels), "mse_loss": lambda: f.mse_loss(t.x, t.y),
        "mse_loss 10": lambda: f.mse_loss(t.v, t.w), "l1_loss": lambda: f.l1_loss(t.x, t.y),
        "nll_loss": lambda: f.nll_loss(t.small, t.labels), "smooth_l1": lambda: f.smooth_l1_loss(t.x, t.y),
        "bce_with_logits": lambda: f.binary_cross_entropy_with_logits(t.v, t.w.detach()),
        "attention": lambda: f.scaled_dot_product_attention(t.heads, t.heads, t.heads),
        "attention, causal": lambda: f.scaled_dot_product_attention(t.heads, t.heads, t.heads, is_causal=True),
        "MultiheadAttention": lambda: attention(sequence, sequence, sequence)[0],
        "normalize": lambda: f.normalize(t.x), "mlp": lambda: mlp(t.x), "pad": lambda: f.pad(t.x, (1, 1)),
        "cosine_similarity": lambda: f.cosine_similarity(t.x, t.y),
    }


def methods(t: Tools) -> dict[str, Callable[[], Any]]:
    m, k = t.m, t.axis
    swapped = m.swapaxes
    gather = m.take_along_axis if m is tn else lambda x, at, axis: m.gather(x, axis, at)
    along, kept = {k: 1}, {k: 1, "keepdim" + "s" * (k == "axis"): True}
    return {
        "add 10": lambda: t.v + t.w, "multiply by 2.0": lambda: t.v * 2.0, "add": lambda: t.x + t.y,
        "add row": lambda: t.x + t.x[0], "divide 10": lambda: t.v / t.w, "power 10": lambda: t.v ** 2,
        "exp 10": lambda: t.v.exp(), "abs 10": lambda: t.v.abs(), "negative 10": lambda: -t.v,
        "sum": lambda: t.x.sum(), "sum 10": lambda: t.v.sum(), "sum axis": lambda: t.x.sum(**along),
        "sum axis kept": lambda: t.x.sum(**kept), "mean": lambda: t.x.mean(), "mean 10": lambda: t.v.mean(),
        "mean axis": lambda: t.x.mean(**along), "max": lambda: t.x.max(), "max 10": lambda: t.v.max(),
        "argmax": lambda: t.x.argmax(**along), "std": lambda: t.x.std(), "var": lambda: t.x.var(**along),
        "norm": lambda: m.linalg.norm(t.x), "cumsum": lambda: t.x.cumsum(1), "clip": lambda: t.x.clip(-1, 1),
        "x[1]": lambda: t.x[1], "x[:, 1]": lambda: t.x[:, 1], "x[2:5]": lambda: t.x[2:5],
        "x[..., :3]": lambda: t.x[..., :3],
        "x[None]": lambda: t.x[None], "x[1, 2]": lambda: t.x[1, 2], "x[places]": lambda: t.x[t.places],
        "x[:, places]": lambda: t.x[:, t.places], "x[rows, columns]": lambda: t.x[t.places, t.places],
        "x[mask]": lambda: t.x[t.mask],
        "reshape": lambda: t.x.reshape(128, 32), "reshape -1": lambda: t.x.reshape(-1), "x.T": lambda: t.x.T,
        "transpose": lambda: swapped(t.image, 1, 2),
        "permute": lambda: t.image.permute(0, 2, 3, 1), "squeeze": lambda: t.x[None].squeeze(0),
        "unsqueeze": lambda: m.unsqueeze(t.x, 0), "flatten": lambda: t.image.flatten(1),
        "cat": lambda: m.cat([t.x, t.y], 1), "cat 10": lambda: m.cat([t.v, t.w]),
        "stack": lambda: m.stack([t.x, t.y]), "stack 10": lambda: m.stack([t.v, t.w]),
        "chunk": lambda: m.chunk(t.x, 2, 1)[0], "split": lambda: m.split(t.x, [64, 64], 1)[0],
        "where": lambda: m.where(t.mask, t.x, t.y), "where number": lambda: m.where(t.mask, t.x, 0.0),
        "masked_fill": lambda: t.x.masked_fill(t.mask, 0.0), "x > y": lambda: t.x > t.y, "x > 0": lambda: t.v > 0,
        "x == y": lambda: t.v == t.w, "x.astype": lambda: t.v.to(m.float64), "detach": lambda: t.v.detach(),
        "matmul": lambda: t.x @ t.y.T, "matmul vector": lambda: t.x @ t.y[0],
        "bmm": lambda: t.heads @ swapped(t.heads, -1, -2), "einsum": lambda: m.einsum("ij,kj->ik", t.x, t.y),
        "maximum": lambda: m.maximum(t.x, t.y), "gather": lambda: gather(t.x, t.words.reshape(32, 2), 1),
        "tril": lambda: m.tril(t.x), "sort": lambda: m.sort(t.x, **along)[0 if k == "dim" else ...],
        "item": lambda: t.v[0].item(), "topk": lambda: m.topk(t.x, 3)[0],
        "logsumexp": lambda: m.logsumexp(t.x, 1), "expand": lambda: m.broadcast_to(t.v, (4, 10)),
    }


def makers(t: Tools) -> dict[str, Callable[[], Any]]:
    m, data = t.m, np.ones(10, np.float32)
    listed = [1.0, 2.0, 3.0]
    half = m.full((10,), 0.5)
    return {
        "zeros": lambda: m.zeros(10), "ones": lambda: m.ones(32, 128), "zeros_like": lambda: m.zeros_like(t.v),
        "arange": lambda: m.arange(10), "full": lambda: m.full((10,), 2.0), "tensor of array": lambda: m.tensor(data),
        "tensor of list": lambda: m.tensor(listed), "tensor of number": lambda: m.tensor(1.0), "eye": lambda: m.eye(4),
        "linspace": lambda: m.linspace(0, 1, 10),
        "normal 10": lambda: m.randn(10), "uniform 10": lambda: m.rand(10), "normal": lambda: m.randn(32, 128),
        "integers 10": lambda: m.randint(0, 5, (10,)), "permutation 10": lambda: m.randperm(10),
        "bernoulli 10": lambda: tn.random.bernoulli(0.5, (10,)) if m is tn else m.bernoulli(half),
        "numpy": lambda: t.v.detach().numpy(),
    }


def steps(t: Tools) -> dict[str, Callable[[], Any]]:
    nn, f = t.nn, t.f

    def step(of: Callable[[Any], Any], x: Any = t.small) -> Callable[[], Any]:
        net = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = of(list(net.parameters()))

        def run() -> None:
            loss = f.cross_entropy(net(x), t.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return run

    def asked() -> Callable[[], Any]:
        net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        parameters = list(net.parameters())
        return lambda: t.m.autograd.grad(f.cross_entropy(net(t.small), t.labels), parameters)

    def only(of: Callable[[Any], Any]) -> Callable[[], Any]:
        net = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 10))
        for p in net.parameters():
            p.grad = p.detach() * 0.01
        return of(list(net.parameters())).step       # type: ignore[no-any-return]
    x = t.m.tensor(np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32))
    o = t.optim
    return {"step, Adam": step(lambda p: o.Adam(p, lr=1e-3), x), "step, SGD": step(lambda p: o.SGD(p, lr=1e-3), x),
            "autograd.grad": asked(),
            "Adam alone": only(lambda p: o.Adam(p, lr=1e-3)), "AdamW alone": only(lambda p: o.AdamW(p, lr=1e-3)),
            "SGD alone": only(lambda p: o.SGD(p, lr=1e-3)),
            "momentum alone": only(lambda p: o.SGD(p, lr=1e-3, momentum=0.9))}


def backward(run: Callable[[], Any]) -> Callable[[], Any] | None:
    """The case with its gradients; None where it has none."""
    result = run()
    if not getattr(result, "requires_grad", False):
        return None
    seed = (result * 0 + 1).detach()
    return lambda: run().backward(seed)


def cases(name: str, forward_only: bool) -> dict[str, Callable[[], Any] | str]:
    found: dict[str, Any] = {}
    plain, wanted = Tools(name, False), Tools(name, True)
    for family in (layers, methods, makers):
        found |= family(plain)
    if not forward_only:
        for family in (layers, methods):
            for key, run in family(wanted).items():
                found[f"{key}, backward"] = run
    return found | steps(wanted)


def bursts(runs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The least mean time of short bursts of each, in turns, by the processor's clock."""
    repeats = []
    for run in runs:
        for _ in range(5):
            run()
        start = time.process_time()
        run()
        repeats.append(max(1, int(BURST / max(time.process_time() - start, 1e-6))))
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for k, run in enumerate(runs):
            start = time.process_time()
            for _ in range(repeats[k]):
                run()
            best[k] = min(best[k], (time.process_time() - start) / repeats[k])
    return best


def with_machine_code() -> None:
    """Call an operator as often as it takes, and wait for what another thread makes then: the clock counts it too."""
    x = tn.ones(1)
    for _ in range(MIN_CALLS + 1):
        x + x
    for thread in threading.enumerate():
        if thread.name == "tenon-compile":
            thread.join()


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("words", nargs="*")
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--forward", action="store_true", help="without gradients")
    given = options.parse_args(arguments)
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with_machine_code()
    ours, theirs = cases("tenon", given.forward), cases("torch", given.forward)
    rows = []
    for name in ours:
        if given.words and not any(word in name for word in given.words):
            continue
        runs: list[Any] = [ours[name], theirs[name]]
        try:
            if name.endswith(", backward"):
                runs = [backward(run) for run in runs]
                if None in runs:
                    continue
            for run in runs:
                run()
        except Exception as error:
            print(f"{name}: {type(error).__name__} {error}")
            continue
        a, b = bursts(runs, given.rounds)
        rows.append((a / b, name, a, b))
    for ratio, name, a, b in sorted(rows, reverse=True):
        print(f"{ratio:6.2f}  {name:32s} {1e6 * a:8.2f} us  PyTorch {1e6 * b:8.2f} us")


if __name__ == "__main__":
    main()

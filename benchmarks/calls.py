"""What a warm call of a jitted function costs beside its arithmetic: Tenon jitted, JAX jitted, PyTorch eager.

    TENON_THREADS=1 python -m benchmarks.calls [--seconds 0.5]
"""
import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.timing import compare, installed, row, use_one_core
from tenon import nn

ONES = np.ones(10, np.float32)


def small(wrap: Callable[..., Any], make: Callable[[Any], Any]) -> Callable[[], object]:
    """One input, one output."""
    f, x = wrap(lambda x: x * 2 + 1), make(ONES)
    return lambda: f(x)


def twenty(wrap: Callable[..., Any], make: Callable[[Any], Any]) -> Callable[[], object]:
    """Twenty tensors as arguments."""
    f, xs = wrap(lambda *xs: sum(xs[1:], xs[0])), [make(ONES) for _ in range(20)]
    return lambda: f(*xs)


def held(wrap: Callable[..., Any], make: Callable[[Any], Any]) -> Callable[[], object]:
    """Two hundred tensors in a list from outside; for JAX, whose functions are pure, they are an argument."""
    ps, x = [make(ONES) for _ in range(200)], make(ONES)
    f = wrap(lambda x, ps: sum(ps, x))
    return lambda: f(x, ps)


def held_outside(wrap: Callable[..., Any], make: Callable[[Any], Any]) -> Callable[[], object]:
    """Two hundred tensors in a list from outside, which the function reads."""
    ps, x = [make(ONES) for _ in range(200)], make(ONES)
    f = wrap(lambda x: sum(ps, x))
    return lambda: f(x)


def network(module: Any, wrap: Callable[..., Any], make: Callable[[Any], Any]) -> Callable[[], object]:
    """A hundred small layers in fifty blocks: 200 parameters in 151 modules."""
    blocks = [module.Sequential(module.Linear(2, 2), module.Linear(2, 2)) for _ in range(50)]
    net, x = module.Sequential(*blocks), make(np.ones((2, 2), np.float32))
    for p in net.parameters():
        p.requires_grad_(False)
    f = wrap(lambda x: net(x))
    return lambda: f(x)


def training(wrap: Callable[..., Any]) -> Callable[[], object]:
    """A step that assigns 200 small tensors."""
    ps, x = [tn.tensor(ONES) for _ in range(200)], tn.tensor(ONES)

    def step(x: Any) -> Any:
        for p in ps:
            p.assign(p * 0.5 + x)
        return x * 2
    f = wrap(step)
    return lambda: f(x)


def cases() -> dict[str, dict[str, Callable[[], object]]]:
    """The rows: who runs what."""
    rows = {"small function": {"Tenon": small(tn.jit, tn.tensor)},
            "20 arguments": {"Tenon": twenty(tn.jit, tn.tensor)},
            "200 tensors held": {"Tenon": held_outside(tn.jit, tn.tensor)},
            "200 parameters": {"Tenon": network(nn, tn.jit, tn.tensor)},
            "200 tensors assigned": {"Tenon": training(tn.jit)}}
    if installed("jax"):
        import jax
        rows["small function"]["JAX"] = small(jax.jit, jax.numpy.asarray)
        rows["20 arguments"]["JAX"] = twenty(jax.jit, jax.numpy.asarray)
        rows["200 tensors held"]["JAX"] = held(jax.jit, jax.numpy.asarray)
    if installed("torch"):
        import torch
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        rows["small function"]["PyTorch"] = small(lambda f: f, torch.tensor)
        rows["20 arguments"]["PyTorch"] = twenty(lambda f: f, torch.tensor)
        rows["200 tensors held"]["PyTorch"] = held_outside(lambda f: f, torch.tensor)
        rows["200 parameters"]["PyTorch"] = network(torch.nn, lambda f: f, torch.tensor)
    return rows


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.5)
    given = options.parse_args(arguments)
    use_one_core()
    for name, runs in cases().items():
        print(row(name, compare(runs, given.seconds)), flush=True)


if __name__ == "__main__":
    main()

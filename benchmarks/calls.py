"""What a warm call of a jitted function costs beside its arithmetic: Tenon jitted, JAX jitted, PyTorch eager.

    TENON_THREADS=1 python -m benchmarks.calls [--seconds 0.5]
"""
import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.peers import able
from benchmarks.timing import compare, row, use_one_core
from tenon import nn

ONES = np.ones(10, np.float32)
Case = Callable[[Callable[..., Any], Callable[[Any], Any]], Callable[[], object]]


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


def recorded(module: Any, wrap: Callable[..., Any], x: Any) -> Callable[[], object]:
    """A small network as one function, whose gradient is asked for outside of it."""
    net = module.Sequential(module.Linear(16, 16), module.Tanh(), module.Linear(16, 16), module.Tanh(),
                            module.Linear(16, 1))
    f = wrap(net)

    def step() -> None:
        net.zero_grad()
        f(x).sum().backward()
    return step


def jitted(case: Case) -> Callable[[], object]:
    return case(tn.jit, tn.tensor)


def of_jax(case: Case) -> Callable[[], object]:
    import jax

    return case(jax.jit, jax.numpy.asarray)


def of_torch(case: Case) -> Callable[[], object]:
    """Eager, on one thread, and without recording."""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    return case(lambda f: f, torch.tensor)


def torch_network() -> Callable[[], object]:
    import torch

    return of_torch(partial(network, torch.nn))


def torch_recorded() -> Callable[[], object]:
    import torch

    torch.set_num_threads(1)
    step: Callable[[], object] = torch.enable_grad()(recorded(torch.nn, lambda f: f, torch.ones(8, 16)))
    return step


# the rows: who runs what
MAKE: dict[str, dict[str, Callable[[], Callable[[], object]]]] = {
    "small function": {"tenon": lambda: jitted(small), "jax": lambda: of_jax(small), "torch": lambda: of_torch(small)},
    "20 arguments": {"tenon": lambda: jitted(twenty), "jax": lambda: of_jax(twenty), "torch": lambda: of_torch(twenty)},
    "200 tensors held": {"tenon": lambda: jitted(held_outside), "jax": lambda: of_jax(held),
                         "torch": lambda: of_torch(held_outside)},
    "200 parameters": {"tenon": lambda: jitted(partial(network, nn)), "torch": torch_network},
    "gradient outside": {"tenon": lambda: recorded(nn, tn.jit, tn.tensor(np.ones((8, 16), np.float32))),
                         "eager": lambda: recorded(nn, lambda f: f, tn.tensor(np.ones((8, 16), np.float32))),
                         "torch": torch_recorded},
    "200 tensors assigned": {"tenon": lambda: training(tn.jit)}}


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.5)
    given = options.parse_args(arguments)
    use_one_core()
    for name, makers in MAKE.items():
        runs = {library: make() for library, make in makers.items() if library == "eager" or able(library)}
        print(row(name, compare(runs, given.seconds)), flush=True)


if __name__ == "__main__":
    main()

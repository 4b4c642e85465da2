"""Attention, forward and with its gradient, beside PyTorch's scaled_dot_product_attention.

    python -m benchmarks.attention [--seconds 1.0] [--element f32 bf16]

Sizes are batch x heads x length x width of a head; the last column is the part of the time that the multiply-adds of
its products take at the peak of one core, where a causal mask leaves out half of them.  TENON_THREADS says how many
threads both use.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.machine import fma_peak
from benchmarks.timing import compare, installed, row, use_one_core
from tenon.config import config

SIZES = ((8, 6, 256, 64), (1, 12, 128, 64), (1, 12, 1024, 64), (2, 4, 2048, 128), (4, 8, 197, 80))
Run = Callable[[], Any]


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--element", nargs="*", default=["f32", "bf16"], choices=["f32", "bf16"])
    given = options.parse_args(arguments)
    use_one_core()
    peak = fma_peak(threads=config().threads)
    for size, causal, gradient, element in product(SIZES, (True, False), (False, True), given.element):
        times = compare(runs(size, causal, gradient, element), given.seconds)
        label = f"{'x'.join(map(str, size))} {'causal ' * causal}{'gradient ' * gradient}{element}"
        limit = operations(size, causal, gradient) / peak / times["tenon"]
        print(f"{row(f'{label:36}', times)}   {limit:4.0%} of the peak", flush=True)


def operations(size: tuple[int, ...], causal: bool, gradient: bool) -> float:
    """Those of the products, two a multiply-add: two products forward, five more for the gradient."""
    batch, heads, length, width = size
    pairs = length * (length + 1) / 2 if causal else length**2
    return 2 * (7 if gradient else 2) * batch * heads * pairs * width


def runs(size: tuple[int, ...], causal: bool, gradient: bool, element: str) -> dict[str, Run]:
    """The result, or the gradients of queries, keys and values, in each library; they agree."""
    found = {name: MAKE[name](size, causal, gradient, element) for name in MAKE if name == "tenon" or installed(name)}
    expected = found["tenon"]()
    for other in found.values():
        for x, y in zip(other(), expected, strict=True):
            np.testing.assert_allclose(_numbers(x), _numbers(y), *(2 * [2e-3 if element == "f32" else 6e-2]))
    return found


def _numbers(x: Any) -> np.ndarray:
    return np.asarray(x.float() if hasattr(x, "float") else x.astype("float32"))


def _arrays(size: tuple[int, ...]) -> list[np.ndarray]:
    """Queries, keys, values, and what the result's gradient begins with."""
    random = np.random.default_rng(0)
    return [random.normal(size=size).astype(np.float32) for _ in range(4)]


def _tenon(size: tuple[int, ...], causal: bool, gradient: bool, element: str) -> Run:
    q, k, v, g = (tn.asarray(x).astype({"f32": "float32", "bf16": "bfloat16"}[element]) for x in _arrays(size))

    def attend(*xs: Any) -> Any:
        return tn.scaled_dot_product_attention(*xs, is_causal=causal)

    @tn.jit
    def forward(q: Any, k: Any, v: Any) -> Any:
        return (attend(q, k, v),)

    @tn.jit
    def backward(q: Any, k: Any, v: Any, g: Any) -> Any:
        return tn.vjp(attend, q, k, v)[1](g)
    return (lambda: backward(q, k, v, g)) if gradient else lambda: forward(q, k, v)


def _torch(size: tuple[int, ...], causal: bool, gradient: bool, element: str) -> Run:
    import torch

    torch.set_num_threads(config().threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[element]
    q, k, v, g = (torch.from_numpy(x).to(dtype).requires_grad_(gradient) for x in _arrays(size))

    def attend() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def forward() -> Any:
        with torch.no_grad():
            return (attend(),)
    return (lambda: torch.autograd.grad(attend(), (q, k, v), g)) if gradient else forward


MAKE: dict[str, Callable[[tuple[int, ...], bool, bool, str], Run]] = {"tenon": _tenon, "torch": _torch}


if __name__ == "__main__":
    main()

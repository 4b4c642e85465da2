"""The likelihood of a Gaussian process with the gradients of its parameters, in float64, beside others.

    OPENBLAS_NUM_THREADS=1 TENON_THREADS=1 python -m benchmarks.gaussian_process [--points 200]

C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1: a matrix made of
distances, its Cholesky factor, two triangular systems; and the gradients of all that.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.peers import able
from benchmarks.timing import compare, row, use_one_core
from tenon.config import config

Run = Callable[[], np.ndarray]
POINTS = 200


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--points", type=int, nargs="*", default=[POINTS])
    options.add_argument("--seconds", type=float, default=2.0)
    given = options.parse_args(arguments)
    use_one_core()
    for points in given.points:
        print(row(f"{points} points", compare(runs(points), given.seconds)), flush=True)


def unlikeliness(of: Any, factor: Any, solve: Any, given: Any, x: Any, y: Any, one: Any) -> Any:
    """Minus the logarithm of how likely y is at x; `given` are logarithms of length, height and noise.

    `of` are the functions of a library; `factor(a)` is its Cholesky factor, `solve(low, y)` solves with it.
    """
    distance = ((x[:, None] - x[None]) ** 2).sum(-1) * of.exp(-2 * given[0])
    low = factor(of.exp(2 * given[1] - 0.5 * distance) + (of.exp(2 * given[2]) + 1e-6) * one)
    return 0.5 * (y @ solve(low, y)) + of.log(of.diagonal(low)).sum() + 0.5 * len(y) * math.log(2 * math.pi)


def problem(points: int) -> tuple[np.ndarray, ...]:
    """Logarithms of length, height and noise; places in a square, what is measured there, and the unit matrix."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 4, (points, 2))
    return np.array([0.1, -0.2, -1.0]), x, np.sin(x[:, 0]) + random.normal(0, 0.1, points), np.eye(points)


def runs(points: int) -> dict[str, Run]:
    """Calls that give the value and its gradients, on which libraries agree."""
    found = {name: make(points) for name, make in MAKE.items() if able(name)}
    expected = found["tenon"]()
    for run in list(found.values())[1:]:
        np.testing.assert_allclose(run(), expected, rtol=1e-8)
    return found


def _tenon(points: int) -> Run:
    given, *data = map(tn.asarray, problem(points))
    step = tn.jit(tn.value_and_grad(lambda *args: unlikeliness(
        tn, tn.linalg.cholesky, lambda low, y: tn.cholesky_solve(y[:, None], low)[:, 0], *args)))

    def run() -> np.ndarray:
        value, gradient = step(given, *data)
        return np.append(gradient.numpy(), value.numpy())
    return run


def _torch(points: int) -> Run:
    import torch

    torch.set_num_threads(config().threads)
    given, *data = map(torch.from_numpy, problem(points))
    given.requires_grad_()

    def run() -> np.ndarray:
        value = unlikeliness(torch, torch.linalg.cholesky,
                             lambda low, y: torch.cholesky_solve(y[:, None], low)[:, 0], given, *data)
        return np.append(torch.autograd.grad(value, given)[0].numpy(), value.detach().numpy())
    return run


def _jax(points: int) -> Run:
    import jax
    import jax.numpy as jnp

    given = problem(points)
    with jax.enable_x64(True):
        step = jax.jit(jax.value_and_grad(lambda *args: unlikeliness(
            jnp, jnp.linalg.cholesky, lambda low, y: jax.scipy.linalg.cho_solve((low, True), y), *args)))

    def run() -> np.ndarray:
        with jax.enable_x64(True):
            value, gradient = step(*given)
            return np.append(np.asarray(gradient), np.asarray(value))
    return run


MAKE: dict[str, Callable[[int], Run]] = {"tenon": _tenon, "torch": _torch, "jax": _jax}


if __name__ == "__main__":
    main()

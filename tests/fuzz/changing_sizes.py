"""Random programs whose sizes and numbers differ much from call to call, jitted beside eager.

    PYTHONPATH=tests python -m fuzz.changing_sizes FIRST COUNT

A program is a chain of phrases on a tensor x of [rows, columns] and an int n, as it is or with its gradient.  Sizes
jump, are 1 or 2, and repeat, so that captures, their conditions and the ways of later calls are all met.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tenon as tn

CALLS = 12
TOLERANCE = {np.float32: 1e-3, np.float64: 1e-9}        # of the largest element, or of 1
PHRASES = """
x * 2 + 1 | tn.softmax(x, 1) | x[:, :max(1, n // 2)] | tn.cat([x, x[:, :n]], 1) | x + tn.arange(x.shape[1]).astype(x.dtype)
tn.pad(x, [(0, 0), (n % 3, 1)]) | x @ (tn.arange(x.shape[1] * 5) % 7).astype(x.dtype).reshape(-1, 5) | x.cumsum(1) | x[:, ::2] | x.flip(1) | x.sort(1)
tn.stack([x, x], 0).reshape(-1, x.shape[1]) | x.T.reshape(x.shape[0], -1) | x - x.mean(1, keepdims=True) | x.repeat(2, 0) | x * n
tn.where(tn.arange(x.shape[1]) < n, x, 0.5) | tn.layer_norm(x, (x.shape[1],)) | x[:, -n:] | x.roll(n, 1) | x + x.max(1, keepdims=True)
x[:, 1:] - x[:, :-1] | x[:, n % x.shape[1]:] | tn.gather(x, tn.argsort(x, 1), 1) | x.unfold(1, 2, 1).reshape(x.shape[0], -1)
tn.max_pool1d(x[:, None], 2, 1, 1)[:, 0] | tn.conv1d(x[:, None], tn.ones((1, 1, 3), dtype=x.dtype), padding=1)[:, 0]
tn.tril(x, n % 3) | tn.kron(x[:, :3], tn.ones((1, 2), dtype=x.dtype)) | x / len(x) | x * (x.shape[1] ** -0.5) | tn.take(x, tn.arange(x.shape[1] - 1, -1, -1), 1)
tn.einsum("ab,ac->bc", x, x)[:3] | x.split([1, x.shape[1] - 1], 1)[n % 2] | tn.concat([x[:1], x], 0) | x[:int(0.5 * x.shape[0]) + 1]
tn.interpolate(x[:, None], scale_factor=2)[:, 0] | sum(x.chunk(2, 0)[:1]) | x.reshape(-1, x.shape[0] * x.shape[1] // 1) | x.T
x * (0.5 if len(x) > 3 else n / x.shape[1]) | x[:, :max(1, len(x) // 2)] | x.chunk(2, 1)[-1] | x[:x.shape[0] // 2 * 2].reshape(-1, x.shape[1] * 2)
x + sum([x[k].sum() / (k + 1) for k in range(min(3, len(x)))]) | tn.full((2, x.shape[1]), n / len(x)) + x[:1] | x.clip(-1 / len(x), n / 2)
tn.linspace(0, len(x) / 4, x.shape[1]).astype(x.dtype) + x | x[:, round(0.3 * x.shape[1]):] | x.reshape(x.shape[1], -1) if len(x) == x.shape[1] else x
"""
PHRASE = [phrase.strip() for line in PHRASES.strip().splitlines() for phrase in line.split(" | ")]
ENDS = ("x", "x, x.sum(0), x.shape[1]", "x.max(1), x.argmin()", "(x * x).sum() / x.shape[0], x.shape[1] / 4, len(x)")


def program(rng: random.Random) -> str:
    """The source of a function of x and n."""
    lines = [f"x = {rng.choice(PHRASE)}" for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.4:
        inner = "".join(f"        {line}\n" for line in lines)
        return f"def f(x, n):\n    def g(x):\n{inner}        return (x * x).sum()\n    return tn.grad(g)(x)\n"
    return "def f(x, n):\n" + "".join(f"    {line}\n" for line in lines) + f"    return {rng.choice(ENDS)}\n"


def arguments(rng: random.Random, dtype: type) -> Iterator[tuple[np.ndarray, int]]:
    """What each call is given."""
    data = np.random.default_rng(rng.randrange(1 << 30))
    for _ in range(CALLS):
        columns = rng.choice([3, 4, 5, 7, 8, 16, 33, rng.randint(2, 200), rng.choice([1, 300, 1000])])
        rows = rng.choice([2, 2, 3, 6, rng.randint(1, 40)])
        n = rng.choice([1, 2, 3, columns, max(1, columns // 3), rng.randint(1, 12)])
        yield data.standard_normal((rows, columns)).astype(dtype), n


def outcome(f: Callable[..., Any], x: np.ndarray, n: int) -> list[np.ndarray] | str:
    """The results of a call, or its error in words."""
    try:
        found = f(tn.tensor(x), n)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [np.asarray(y.numpy() if isinstance(y, tn.Tensor) else y) for y in (found if isinstance(found, tuple) else (found,))]


def agree(wanted: list[np.ndarray] | str, found: list[np.ndarray] | str, tolerance: float) -> bool:
    """Whether a jitted call does what the eager one did, but for roundings."""
    if isinstance(wanted, str) or isinstance(found, str):
        return isinstance(wanted, str) and isinstance(found, str) and wanted.split(":")[0] == found.split(":")[0]
    return all(x.dtype == y.dtype and x.shape == y.shape and np.allclose(
        x, y, 0, tolerance * max(1.0, float(np.abs(x).max(initial=0))), equal_nan=True) for x, y in zip(wanted, found, strict=True))


def judge(seed: int) -> str | None:
    """What is wrong with the program of a seed; None where nothing is."""
    rng = random.Random(seed)
    source, dtype, env = program(rng), rng.choice(list(TOLERANCE)), {"tn": tn}
    exec(source, env)
    jitted: Any = tn.jit(env["f"])
    for call, (x, n) in enumerate(arguments(rng, dtype)):
        wanted, found = outcome(env["f"], x, n), outcome(jitted, x, n)  # type: ignore[arg-type]
        if not agree(wanted, found, TOLERANCE[dtype]):
            return f"{source}call {call} of {x.dtype.name} {list(x.shape)}, n = {n}: jitted {found}, eagerly {wanted}"
    bugs = [record.eager.what for record in jitted.records.values() if record.eager is not None and record.eager.bug]
    return f"{source}runs with graph breaks, by a mistake of Tenon's: {bugs[0]}" if bugs else None


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    wrong = 0
    for seed in range(first, first + count):
        if (found := judge(seed)) is not None:
            wrong += 1
            print(f"seed {seed}: {found[:1500]}", flush=True)
    print(f"{count} programs, {wrong} wrong")
    sys.exit(bool(wrong))

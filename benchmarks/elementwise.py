"""Chains of elementwise operators, reductions and a softmax: a compiled Tenon program beside NumPy.

    python -m benchmarks.elementwise [--seconds 0.5]
"""
import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.timing import compare, row

Function = Callable[..., Any]


def softmax(module: Any) -> Function:
    def apply(x: Any) -> Any:
        e = module.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    return apply


def transposed(module: Any) -> Function:
    """The elements moved, as a result of Tenon's always has them; NumPy's x.T alone is another view of them."""
    return (lambda x: np.array(x.T, order="C")) if module is np else (lambda x: x.T)


# name: (function of the module that it is written for, shapes of its arguments)
CASES: dict[str, tuple[Callable[[Any], Function], tuple[tuple[int, ...], ...]]] = {
    "x * y + z, 1M": (lambda m: lambda x, y, z: x * y + z, ((1_000_000,),) * 3),
    "x * y + z, 1K": (lambda m: lambda x, y, z: x * y + z, ((1_000,),) * 3),
    "exp, 1M": (lambda m: m.exp, ((1_000_000,),)),
    "tanh, 1M": (lambda m: m.tanh, ((1_000_000,),)),
    "gelu, 1M": (lambda m: lambda x: 0.5 * x * (1 + m.tanh(0.79788456 * (x + 0.044715 * x * x * x))), ((1_000_000,),)),
    "sum, 1M": (lambda m: lambda x: x.sum(), ((1_000_000,),)),
    "sum of rows, 256x1000": (lambda m: lambda x: x.sum(axis=1), ((256, 1000),)),
    "sum of columns, 256x1000": (lambda m: lambda x: x.sum(axis=0), ((256, 1000),)),
    "max of columns, 256x1000": (lambda m: lambda x: x.max(axis=0), ((256, 1000),)),
    "softmax, 256x1000": (softmax, ((256, 1000),)),
    "transpose, 1000x1000": (transposed, ((1000, 1000),)),
}


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.5)
    given = options.parse_args(arguments)
    random = np.random.default_rng(0)
    for name, (make, shapes) in CASES.items():
        arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
        tensors = [tn.asarray(a) for a in arrays]
        compiled, plain = tn.jit(make(tn)), make(np)
        np.testing.assert_allclose(compiled(*tensors).numpy(), plain(*arrays), rtol=1e-3, atol=2e-3)
        print(row(name, compare({"Tenon": lambda f=compiled, xs=tensors: f(*xs),
                                 "NumPy": lambda f=plain, xs=arrays: f(*xs)}, given.seconds)), flush=True)


if __name__ == "__main__":
    main()

"""Products of square f32 matrices: a compiled Tenon program beside NumPy's BLAS.

    python -m benchmarks.matmul [--seconds 1] [64 128 ...]
"""
import argparse

import numpy as np

import tenon as tn
from benchmarks.timing import compare, row

SIZES = (64, 128, 256, 512, 1024, 2048)


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sizes", nargs="*", type=int, default=SIZES)
    options.add_argument("--seconds", type=float, default=1.0)
    given = options.parse_args(arguments)
    random = np.random.default_rng(0)
    for n in given.sizes:
        a, b = (random.standard_normal((n, n)).astype(np.float32) for _ in range(2))
        x, y = tn.asarray(a), tn.asarray(b)
        product = tn.jit(lambda x, y: x @ y)
        np.testing.assert_allclose(product(x, y).numpy(), a @ b, rtol=1e-3, atol=1e-3)
        times = compare({"Tenon": lambda f=product, x=x, y=y: f(x, y), "NumPy": lambda a=a, b=b: a @ b}, given.seconds)
        print(row(f"matmul {n}", times) + f"   {2 * n ** 3 / times['Tenon'] / 1e9:6.1f} GFLOP/s", flush=True)


if __name__ == "__main__":
    main()

"""Products of f32 matrices: a compiled Tenon program beside NumPy's BLAS, in GFLOP/s and as fractions of the FMA peak.

    OPENBLAS_NUM_THREADS=1 TENON_THREADS=1 python -m benchmarks.matmul [--seconds 1] [768 64x768x768 ...]

A size is n (a square), m x k x n, or batch x m x k x n; the FMA peak, of one thread, is measured in the same run.
"""
import argparse
import math

import numpy as np

import tenon as tn
from benchmarks.machine import fma_run
from benchmarks.timing import compare, row

SIZES = ("64", "128", "256", "512", "768", "1024", "2048", "64x768x768", "96x128x64x128", "1x4096x4096", "4x1024x1024")


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sizes", nargs="*", default=SIZES)
    options.add_argument("--seconds", type=float, default=1.0)
    given = options.parse_args(arguments)
    random = np.random.default_rng(0)
    peak, most = fma_run()
    for size in given.sizes:
        *batch, m, k, n = sizes_of(size)
        a, b = (random.standard_normal((*batch, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
        x, y = tn.asarray(a), tn.asarray(b)
        product = tn.jit(lambda x, y: x @ y)
        np.testing.assert_allclose(product(x, y).numpy(), a @ b, rtol=1e-3, atol=1e-3)
        times = compare({"Tenon": lambda f=product, x=x, y=y: f(x, y), "NumPy": lambda a=a, b=b: a @ b, "peak": peak},
                        given.seconds)
        limit, operations = most / times.pop("peak"), 2 * math.prod((*batch, m, k, n))
        rates = [f"{operations / time / limit:.2f}" for time in times.values()]
        print(row(f"matmul {size}", times) + f"   of the FMA peak {' / '.join(rates)}   "
              f"{operations / times['Tenon'] / 1e9:6.1f} GFLOP/s", flush=True)


def sizes_of(size: str) -> list[int]:
    """[m, k, n], after the batch if there is one."""
    found = [int(part) for part in str(size).split("x")]
    return found * 3 if len(found) == 1 else found


if __name__ == "__main__":
    main()

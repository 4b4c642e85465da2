"""The contraction template beside NumPy's product and the machine's FMA peak, one thread, interleaved in one run.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.contraction [--seconds 1] [--element f32] [matmul skinny convolution]

Times are the thread's own computing time, of which the median and, in brackets, the tenth percentile are shown: on a
shared machine the first says what one gets, the second what the code can do.  Figures are fractions of the peak.
"""
import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from benchmarks.example_specs import F32, F64, convolution, matmul
from benchmarks.machine import fma_run
from benchmarks.run_spec import Native

ELEMENTS = {"f32": (F32, np.float32), "f64": (F64, np.float64)}
MATMUL = [*((size,) * 3 for size in (64, 256, 768, 1024, 2048)), (257, 263, 269), (101, 1009, 503), (1000, 64, 1000)]
SKINNY = [(1, 1024, 1024), (1024, 1, 1024), (4, 1024, 1024), (1024, 4, 1024), (16, 16, 16), (512, 512, 8)]
CONVOLUTIONS = [(64, 32, 28, 28, 64, 3, 1, 1), (8, 64, 56, 56, 64, 3, 1, 1), (8, 256, 14, 14, 256, 3, 1, 1),
                (8, 512, 7, 7, 512, 3, 1, 1), (8, 64, 56, 56, 128, 3, 1, 2), (8, 3, 224, 224, 64, 7, 3, 2)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="*", default=["matmul", "skinny", "convolution"])
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--element", choices=ELEMENTS, default="f32")
    given = options.parse_args()
    element, kind = ELEMENTS[given.element]
    peak, most = fma_run(given.element)

    def report(label: str, operations: int, ours: Callable[[], object], numpy: Callable[[], object]) -> None:
        limit, *times = compare([peak, ours, numpy], given.seconds)
        rates = [most / second / 1e9 for second in limit]
        (mine, best), (peer, its_best) = ([operations / time[i] / 1e9 / rates[i] for i in (0, 1)] for time in times)
        print(f"{label:38} peak {rates[1]:5.0f} GFLOP/s   ours {mine:.3f} ({best:.3f})   NumPy {peer:.3f} "
              f"({its_best:.3f})   ours/NumPy {mine / peer:.2f} ({best / its_best:.2f})", flush=True)

    random = np.random.default_rng(0)
    for what in given.what:
        if what == "convolution":                       # NumPy only multiplies: its windows are gathered beforehand
            for case in CONVOLUTIONS:
                images, channels, height, width, filters, kernel, padding, stride = case
                rows, columns = ((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
                places = rows * columns
                image = random.standard_normal((images, channels, height, width)).astype(kind)
                weight = random.standard_normal((filters, channels * kernel * kernel)).astype(kind)
                windows = random.standard_normal((images, channels * kernel * kernel, places)).astype(kind)
                out, call = np.empty((images, filters, places), kind), Native(convolution(element, *case))
                report(f"convolution {case}", 2 * out.size * weight.shape[1], call.bind(out, image, weight),
                       partial(np.matmul, weight, windows, out=out))
            continue
        for left, right in product(("mk", "km"), ("kn", "nk")):
            call = Native(matmul(element, left, right))
            for m, n, k in MATMUL if what == "matmul" else SKINNY:
                a, b = (random.standard_normal([{"m": m, "n": n, "k": k}[letter] for letter in letters]).astype(kind)
                        for letters in (left, right))
                out, ours = (np.empty((m, n), kind) for _ in range(2))
                plain_a, plain_b = a if left == "mk" else a.T, b if right == "kn" else b.T
                report(f"{left} {right} {m}x{n}x{k}", 2 * m * n * k, call.bind(ours, a, b, 1, m, n, k),
                       partial(np.matmul, plain_a, plain_b, out=out))
                np.testing.assert_allclose(ours, out, rtol=1e-3, atol=1e-2)


def compare(runs: list[Callable[[], object]], seconds: float) -> list[tuple[float, float]]:
    """(median, tenth percentile) of the seconds each takes, taken in turn."""
    times: list[list[float]] = [[] for _ in runs]
    repeats = [1] * len(runs)
    for place, run in enumerate(runs):                  # a clock reading must not be felt
        run()
        start = time.thread_time()
        run()
        repeats[place] = max(1, int(2e-4 / max(time.thread_time() - start, 1e-7)))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, count, taken in zip(runs, repeats, times):
            start = time.thread_time()
            for _ in range(count):
                run()
            taken.append((time.thread_time() - start) / count)
    return [(float(np.median(taken)), float(np.quantile(taken, 0.1))) for taken in times]


if __name__ == "__main__":
    main()

"""The limits that benchmarks are held against: each a number that some machine may have."""
import numpy as np

from benchmarks import machine


def test_the_limits_are_measured() -> None:
    peaks = [machine.fma_peak(name, seconds=0.01) for name in ("f32", "f64")]
    assert min(peaks) > 1e9 and max(peaks) < 1e13
    read, copy = (machine.bandwidth(kind, 1 << 20, 2, seconds=0.01) for kind in ("read", "copy"))
    assert min(read, copy) > 1e8 and max(read, copy) < 1e13


def test_a_copy_copies_and_counts_both_ways() -> None:
    run, moved = machine.bandwidth_run("copy", 1 << 16)
    source, target = run.__defaults__[0]
    source[:] = np.arange(source.size)
    run()
    assert np.array_equal(source, target) and moved == 2 << 16

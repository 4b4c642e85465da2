"""Elements some apart, as windows are that stand side by side, are shuffled out of whole vectors and into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn
from backends.kernel_text import ir_of
from tenon.backends.cpu.lower_kernel import kernel_of
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.llvm.machine_code import optimised

with_masks = pytest.mark.skipif(not host().has("avx512bw"), reason="vectors of this processor have no masks")


def code(*lines: str, given: str) -> str:
    """What LLVM makes of a kernel whose result is `y`."""
    graph = parse_graph("\n".join((f"def f({given}):", *(f"    {line}" for line in lines), "    return y", "")))
    return optimised(ir_of(kernel_of(graph, "f"), host()))


def window(kernel: int, stride: int) -> str:
    return f"kernel=({kernel}, {kernel}), stride=({stride}, {stride}), padding=((0, 0), (0, 0)), dilation=(1, 1)"


@with_masks
@pytest.mark.parametrize(("size", "kernel", "stride", "dtype"), [
    (28, 2, 2, "f32"), (57, 2, 2, "f32"), (26, 2, 2, "f64"), (39, 3, 3, "f32"), (57, 3, 2, "f32"), (28, 2, 2, "f64"),
    (14, 2, 2, "f32"), (13, 2, 2, "f32"), (8, 2, 2, "f32"), (15, 3, 3, "f32")])
def test_maxima_of_windows_are_shuffled(size: int, kernel: int, stride: int, dtype: str) -> None:
    n = (size - kernel) // stride + 1
    found = code(f"y: {dtype}[9, {n}, {n}] = max_pool_op(x, {window(kernel, stride)})",
                 given=f"x: {dtype}[9, {size}, {size}]")
    assert "shufflevector" in found
    assert "gather" not in found
    assert f"load {'float' if dtype == 'f32' else 'double'}," not in found      # of a number alone


@with_masks
@pytest.mark.parametrize(("size", "kernel"), [(28, 2), (56, 2), (26, 2), (39, 3), (14, 2), (8, 2)])
def test_gradients_of_windows_side_by_side_are_shuffled(size: int, kernel: int) -> None:
    n = size // kernel
    sizes = f"sizes=({size}, {size})"
    found = code(f"y: f32[9, {size}, {size}] = max_pool_grad(g, taps, {sizes}, {window(kernel, kernel)})",
                 given=f"g: f32[9, {n}, {n}], taps: i32[9, {n}, {n}]")
    assert "shufflevector" in found
    assert "scatter" not in found
    assert "store float" not in found


@with_masks
def test_short_loops_that_add_up_are_written_out() -> None:
    """Windows of five taps, two apart, are no rows."""
    found = code("y: f32[9, 31] = max_pool_op(x, kernel=(5,), stride=(1,), padding=((0, 0),), dilation=(2,))",
                 given="x: f32[9, 39]")
    assert "gather" not in found
    assert "reduce" not in found


def pooled(x: Any, *window: int) -> tuple[Any, ...]:
    """Maxima and means, beside a neighbour that is fused with them."""
    rows = x.reshape(x.shape[0] * x.shape[1], x.shape[2], x.shape[3])
    return (tn.max_pool(tn.relu(x), *window), tn.avg_pool(x, *window) * 2, tn.max_pool1d(rows, *window),
            tn.avg_pool3d(x, *window))


def squares(x: Any, *window: int) -> Any:
    return sum(((y * y).sum() for y in pooled(x, *window)), start=0.0)


@pytest.mark.parametrize(("width", "window", "dtype"), [
    (28, (2, 2, 0), "float32"), (27, (3, 3, 0), "float32"), (57, (3, 2, 1), "float32"), (13, (2, 2, 0), "float64"),
    (14, (2, 2, 1), "bfloat16"), (7, (3, 1, 1), "float32"), (35, (2, 1, 0), "bfloat16"), (37, (3, 3, 1), "float64"),
    (5, (2, 3, 1), "float32"), (66, (3, 2, 0), "float32"), (34, (2, 2, 0), "bfloat16"),
    (14, (2, 2, 0), "float32"), (8, (2, 2, 0), "float64"), (12, (2, 2, 0), "bfloat16"), (9, (2, 3, 0), "float32")])
def test_windows_of_all_kinds(width: int, window: tuple[int, int, int], dtype: str, threads: None) -> None:
    """There and back."""
    given = np.random.default_rng(width).permutation(45 * width).reshape(3, 3, 5, width)
    x = tn.asarray(given / 64.0 - 3).astype(dtype)
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 3e-2}[dtype]
    back = tn.grad(lambda x: squares(x, *window))
    for got, wanted in zip((*tn.jit(lambda x: pooled(x, *window))(x), tn.jit(back)(x)), (*pooled(x, *window), back(x)),
                           strict=True):
        one, other = (y.astype("float64").numpy() for y in (got, wanted))
        np.testing.assert_allclose(one, other, tolerance, tolerance * abs(other).max())


def test_nothing_between_or_beyond_is_touched(threads: None) -> None:
    """What is skipped keeps its bits, and is not read where it would fail."""
    @tn.jit
    def act(x: Any) -> Any:
        x[:, :57:3] = tn.exp(x[:, 1:58:3])
        return x
    given = np.full((6, 61), np.nan, "float32")
    given[:, 1:58:3] = 0
    got = act(tn.asarray(given.copy())).numpy()
    assert (got[:, :57:3] == 1).all()
    kept = np.ones(61, bool)
    kept[:57:3] = False
    np.testing.assert_array_equal(got[:, kept], given[:, kept])

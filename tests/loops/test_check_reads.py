"""A compute rule of a user that reads outside of its inputs ends in an error that names it, in every mode."""

import numpy as np
import pytest

import tenon as tn
from tenon.errors import BoundsError
from tenon.types import TensorType


def made(compute, ref=lambda x: x, type=lambda x: x):
    return tn.op("reads", type=type, ref=ref, compute=compute, replace=True)


ROWS = tn.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4))
OUTSIDE = [
    ("a place after", lambda s, i, x: x((i[0] + 1, i[1])), "at 3, an axis of size 3"),
    ("a place before", lambda s, i, x: x((i[0], i[1] - 1)), "at -1, an axis of size 4"),
    ("the next row", lambda s, i, x: x((i[0], i[1] + 1)), "at 4, an axis of size 4"),
    ("far away", lambda s, i, x: x((i[0] + 2**40, i[1])), f"at {2**40 + 2}, an axis of size 3"),
    ("a number", lambda s, i, x: x((3, i[1])), "at 3, an axis of size 3"),
    ("some of the places", lambda s, i, x: s.when(i[0] > 0, lambda: x((i[0] + 1, 0)), 0.0), "at 3, an axis of size 3"),
]


@pytest.mark.parametrize(("compute", "said"), [case[1:] for case in OUTSIDE], ids=[case[0] for case in OUTSIDE])
@pytest.mark.parametrize("around", [lambda op, x: op(x), lambda op, x: op(x * 2) + 1, lambda op, x: op(x).sum()],
                         ids=["alone", "among others", "added up"])
def test_what_is_outside_is_not_read(compute, said, around):
    op = made(compute)
    with pytest.raises(BoundsError, match=f"reads: its compute rule reads input 0 {said}"):
        tn.jit(lambda x: around(op, x))(ROWS)


def test_what_is_outside_of_a_single_place_is_not_read():
    with pytest.raises(BoundsError, match="at 1, an axis of size 1"):
        tn.jit(made(lambda s, i, x: x((i[0] + 1,))))(tn.ones(1))


@pytest.mark.parametrize("sizes", [(5, 7, 3), (64, 64, 64)])
def test_a_sum_that_is_too_long_is_not_a_product(sizes):
    n, depth, m = sizes
    for more, said in ((0, None), (2, rf"at \d+, an axis of size {depth}")):
        product = tn.op("reads", type=lambda a, b: TensorType(a.dtype, (a.shape[0], b.shape[1])), ref=np.matmul,
                        compute=lambda s, i, a, b, more=more: s.reduce("add", (a.shape[1] + more,), lambda k: a(
                            (i[0], k[0])) * b((k[0], i[1]))), replace=True)
        call = tn.jit(lambda a, b, product=product: product(a, b))
        if said is None:
            np.testing.assert_allclose(call(tn.ones((n, depth)), tn.ones((depth, m))).numpy(), np.full((n, m), depth))
        else:
            with pytest.raises(BoundsError, match=said):
                call(tn.ones((n, depth)), tn.ones((depth, m)))


@pytest.mark.parametrize("dtype", [tn.int64, tn.int32, tn.uint8])
def test_positions_of_data_are_looked_at(dtype):
    pick = tn.op("reads", type=lambda x, k: TensorType(x.dtype, k.shape), ref=lambda x, k: x[k],
                 compute=lambda s, i, x, k: x((k(i),)), replace=True)
    call = tn.jit(lambda x, k: pick(x, k))
    x = tn.arange(5) * 1.0
    assert call(x, tn.tensor([4, 0], dtype=dtype)).tolist() == [4.0, 0.0]
    with pytest.raises(BoundsError, match="input 0 at 9, an axis of size 5"):
        call(x, tn.tensor([1, 9], dtype=dtype))


def test_reads_that_the_loops_prove_cost_nothing():
    op = made(lambda s, i, x: s.when(i[0] + 1 < 3, lambda: x((i[0] + 1, i[1])), 0.0) + x((2 - i[0], 3 - i[1])))
    function = tn.jit(lambda x: op(x) * 2)
    shifted = np.zeros((3, 4), np.float32)
    shifted[:2] = ROWS.numpy()[1:]
    np.testing.assert_array_equal(function(ROWS).numpy(), 2 * (shifted + ROWS.numpy()[::-1, ::-1]))
    from tenon.graph.ir import Graph
    from tenon.loops.lower import lower
    graph = function.graph(ROWS)
    assert isinstance(graph, Graph) and not lower(graph, "kernel").checks


def test_an_element_is_of_the_type_that_was_told():
    counted = made(lambda s, i, x: s.cast(x(i), tn.int64), ref=lambda x: x + 1)
    assert tn.jit(lambda x: counted(x) * 2)(tn.ones(3)).tolist() == [4.0, 4.0, 4.0]     # the reference's, by eager code


@pytest.mark.parametrize("index", [(0,), (0, 1.5), (0, None), 0])
def test_what_is_no_index_is_refused(index):
    op = made(lambda s, i, x: x(index), ref=lambda x: x * 3)
    assert tn.jit(lambda x: op(x))(ROWS).tolist() == (ROWS * 3).tolist()

"""Every way of writing loops anew goes through the same elements: random maps of indices against brute enumeration.

An expression of indices, constants, sums, products with constants, and divisions by constants is a quasi-affine map.
What simplifies one, bounds it, or cuts and merges its loops is compared with all of its values.
"""

import itertools

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenon.loops.affine import affine, bounds, from_affine, is_multiple, is_natural
from tenon.loops.collapse_loops import Merging, with_flat_loops, with_flat_reductions
from tenon.loops.expressions import Binary, Buffer, Call, Const, Expr, Index, Load, Reduce, Select, size
from tenon.loops.index_set_splitting import in_intervals
from tenon.loops.loop_context import LoopContext
from tenon.loops.simplify_expressions import simplify
from tenon.loops.split_div_mod_loops import with_split_loops, with_split_reductions
from tenon.loops.store_target import StoreTarget
from tenon.types import TensorType, int64

EXTENTS = 2, 3, 4, 5, 6, 8, 9, 12, 16, 16, 36
X = Buffer("x", TensorType(int64, (1 << 20,)), "input")
OUT = Buffer("out", TensorType(int64, (1 << 20,)), "output")
NUMPY = {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder, "<": np.less,
         "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "&": np.logical_and}
many = settings(max_examples=150, suppress_health_check=list(HealthCheck))


def values(x, grid):
    """What an expression is at all places of a grid; an element of memory is another number at every offset."""
    match x:
        case Const(value=value):
            return np.int64(value)
        case Index():
            return grid[x]
        case Binary(op=op, left=left, right=right):
            return NUMPY[op](values(left, grid), values(right, grid))
        case Call(name="neg", args=(inner,)):
            return -values(inner, grid)
        case Select(condition=condition, then=then, otherwise=otherwise):
            return np.where(values(condition, grid), values(then, grid), values(otherwise, grid))
        case Load(offset=offset, mask=mask):
            element = values(offset, grid) * 7919 + 13
            return element if mask is None else np.where(values(mask, grid), element, 0)
        case Reduce(kind="add", indices=indices, body=body):
            places = itertools.product(*(range(index.extent) for index in indices))
            return sum(values(body, {**grid, **dict(zip(indices, map(np.int64, place), strict=True))})
                       for place in places)
    raise AssertionError(x)


def grid_of(indices):
    axes = np.meshgrid(*(np.arange(index.extent) for index in indices), indexing="ij")
    return dict(zip(indices, axes, strict=True))


def stored(targets):
    """offset -> what is stored there; every element once."""
    found = {}
    for target in targets:
        grid = grid_of(target.indices)
        shape = tuple(index.extent for index in target.indices)
        places, elements = (np.broadcast_to(values(x, grid), shape).ravel() for x in (target.offset, target.value))
        for place, element in zip(places.tolist(), elements.tolist(), strict=True):
            assert place not in found, f"{place} is stored twice by {target.indices}: {target.offset}"
            found[place] = element
    return found


@st.composite
def maps(draw, indices, depth=3, natural=False):
    """A quasi-affine map of the indices."""
    def within(x):
        """Not below 0, as the places are that views divide."""
        return Binary("%", x, size(draw(st.sampled_from((4, 6, 16))))) if natural and not is_natural(simplify(x)) else x
    kind = draw(st.sampled_from(("index", "sum", "sum", "scaled", "//", "%", "moved"))) if depth else "index"
    if kind == "index":
        return draw(st.sampled_from(indices))
    x = draw(maps(indices, depth - 1, natural))
    if kind == "sum":
        return x + draw(maps(indices, depth - 1, natural))
    if kind == "moved":
        return within(x + size(draw(st.integers(-9, 9))))
    if kind == "scaled":
        return within(x * size(draw(st.sampled_from((2, 3, 4, 6, 8, 12, *(() if natural else (-1, -2)))))))
    return Binary(kind, x, size(draw(st.sampled_from((2, 3, 4, 6, 8, 12)))))


@st.composite
def shuffles(draw, indices):
    """A position as a chain of views leaves it: the digits of the indices in mixed radix, some dropped or moved."""
    total: Expr = size(draw(st.integers(0, 5)))
    for index in indices:
        weight, radix = 1, draw(st.sampled_from((2, 2, 3, 4)))
        while index.extent % (weight * radix) == 0:
            digit = Binary("%", Binary("//", index, size(weight)), size(radix))
            total = total + digit * size(draw(st.sampled_from((0, 1, radix, 8))))
            weight *= radix
    return total


@st.composite
def loops(draw, most=3, letter="i"):
    return tuple(Index(f"{letter}{k}", draw(st.sampled_from(EXTENTS))) for k in range(draw(st.integers(1, most))))


def row_major(indices):
    total: Expr = size(0)
    for index in indices:
        total = total * size(index.extent) + index
    return simplify(total)


@st.composite
def targets_of(draw):
    """A target that stores every element of an array once, of what it reads at some places, some of it masked."""
    indices, views = draw(loops()), draw(st.booleans())
    value: Expr = size(0)
    for _ in range(draw(st.integers(1, 2))):
        at = simplify(draw(shuffles(indices) if views else maps(indices, natural=True)))
        mask = simplify(Binary(draw(st.sampled_from(("<", ">="))), draw(maps(indices, 1)), size(draw(st.integers(0, 9)))))
        value = value + Load(X, at, mask if draw(st.booleans()) and not isinstance(mask, Const) else None)
    return StoreTarget(OUT, indices, row_major(draw(st.permutations(indices))), simplify(value))


@given(st.data())
@many
def test_the_simplest_form_of_a_map_has_its_values(data):
    indices = data.draw(loops())
    x, grid = data.draw(maps(indices)), grid_of(indices)
    expected = values(x, grid)
    for same in (simplify(x), from_affine(affine(x)), simplify(from_affine(affine(simplify(x))))):
        np.testing.assert_array_equal(np.broadcast_to(values(same, grid), expected.shape), expected, err_msg=f"{x}\n{same}")


@given(st.data())
@many
def test_bounds_hold_everywhere_and_what_is_natural_is_never_negative(data):
    indices = data.draw(loops())
    x = simplify(data.draw(maps(indices)))
    found = values(x, grid_of(indices))
    low, high = bounds(x)
    assert low is None or low <= found.min(), f"{x} >= {low}"
    assert high is None or high >= found.max(), f"{x} <= {high}"
    assert not is_natural(x) or found.min() >= 0, x
    for n in (2, 3, 4, 16):
        assert not is_multiple(x, n) or not (found % n).any(), f"{x}: {n}"


@given(st.data())
@many
def test_comparisons_that_are_decided_are_so_everywhere(data):
    indices = data.draw(loops())
    x = Binary(data.draw(st.sampled_from(("<", "<=", ">", ">=", "=="))), data.draw(maps(indices)),
               data.draw(maps(indices) | st.integers(-20, 20).map(size)))
    grid = grid_of(indices)
    expected = values(x, grid)
    np.testing.assert_array_equal(np.broadcast_to(values(simplify(x), grid), expected.shape), expected, err_msg=str(x))


@given(targets_of())
@many
def test_loops_that_are_cut_store_the_same_elements_once(target):
    assert stored(with_split_loops([target], LoopContext())) == stored([target])


@given(targets_of())
@many
def test_loops_that_are_merged_store_the_same_elements_once(target):
    expected = stored([target])
    assert stored(with_flat_loops([target])) == expected
    assert stored(with_flat_loops(with_split_loops([target], LoopContext()))) == expected


@given(targets_of())
@many
def test_intervals_of_loops_store_the_same_elements_once(target):
    assert stored(in_intervals(with_split_loops([target], LoopContext()), LoopContext())) == stored([target])


@given(st.data())
@many
def test_what_is_merged_depends_on_the_flat_position_alone(data):
    outer, inner = Index("i", data.draw(st.sampled_from(EXTENTS))), Index("j", data.draw(st.sampled_from(EXTENTS)))
    x = simplify(data.draw(maps((outer, inner))))
    merging = Merging(outer, inner)
    found = merging(x)
    if found is not None:
        grid = grid_of((outer, inner))
        expected = np.broadcast_to(values(x, grid), (outer.extent, inner.extent)).ravel()
        flat = {merging.flat: np.arange(outer.extent * inner.extent)}
        np.testing.assert_array_equal(np.broadcast_to(values(found, flat), expected.shape), expected, err_msg=str(x))


@given(st.data())
@many
def test_reductions_whose_loops_are_cut_or_merged_add_up_the_same(data):
    indices, inside = data.draw(loops(1)), data.draw(loops(2, "k"))
    both = (*indices, *inside)
    body = Load(X, simplify(data.draw(maps(both, natural=True) | shuffles(both))), None)
    total = Reduce("add", inside, body, tuple(size(index.extent) for index in inside))
    target = StoreTarget(OUT, indices, row_major(indices), total)
    expected = stored([target])
    for same in (with_split_reductions(target), with_flat_reductions(target),
                 with_split_reductions(with_flat_reductions(target)), with_flat_reductions(with_split_reductions(target))):
        assert stored([same]) == expected, same

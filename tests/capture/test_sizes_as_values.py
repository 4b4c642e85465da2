"""A symbolic size is an int to the program, in rewritten code as in the user's own: a key, a kind, text, a number."""

import collections
import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import pytest

import tenon as tn

SIZES = (4, 3, 2, 9, 3)
MEMO: dict[Any, Any] = {}


@dataclasses.dataclass(frozen=True)
class Point:
    n: int


def memoized(n: int) -> Any:
    if n not in MEMO:
        MEMO[n] = n + 1
    MEMO[n, 1] = MEMO.pop((n, 1), 0) + 1
    return MEMO[n], dict(MEMO)


def grouped(n: int) -> Any:
    found: Any = collections.defaultdict(list)
    found[n].append(1)
    found.setdefault(n + 1, []).append(2)
    del found[n + 1]
    return dict(found)


def matched(n: int) -> str:
    match n:
        case 3:
            return "three"
        case int(k) if k > 8:
            return str(k)
        case _:
            return "other"


def told(n: int) -> Any:
    try:
        raise KeyError(n)
    except KeyError as error:
        return str(error), repr(error), f"{error}", error.args


READS: dict[str, Callable[[int], Any]] = {
    "kind": lambda n: (isinstance(n, int), isinstance(n, (float, int)), isinstance(n, numbers.Integral)),
    "in a set": lambda n: (n in {3, 4}, n in frozenset([3]), n not in {3: 1}, n in {3: 1}.keys() | {9}),
    "in a sequence": lambda n: (n in (3, 4), n in [3], n in range(3, 5), n in {1: 3}.values()),
    "in a tuple that is a key": lambda n: ((n, 1) in {(3, 1): 0}, {(3, 1): 5}.get((n, 1)), Point(n) in {Point(3)}),
    "a key": lambda n: ({2: 1, 3: 2, 4: 3, 9: 5}[n], {3: 1}.get(n), {n: 1}, {3: 1}.get(n, "no")),
    "memo": memoized, "groups": grouped, "match": matched, "error": told,
    "text": lambda n: (repr(Point(n)), str([Point(n)]), f"{Point(n)}", f"{n:03d}", str({"n": Point(n)})),
    "equal to a float": lambda n: (n == 3.0, n != 3.0, n == 3.5, n == float("nan"), n == float("inf")),
    "slice": lambda n: (slice(n), [slice(1, n, 2)], {"s": slice(None, n)}),
    "value of a tensor": lambda n: [tn.full((2,), n, dtype=dtype) for dtype in (None, tn.float32, tn.bool)],
}


def same(want: Any, got: Any) -> bool:
    if isinstance(want, tn.Tensor):
        return want.type == got.type and want.tolist() == got.tolist()
    if isinstance(want, (tuple, list)):
        return len(want) == len(got) and all(map(same, want, got))
    return type(want) is type(got) and repr(want) == repr(got)


@pytest.mark.parametrize("rewritten", [False, True], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("name", READS)
def test_as_eagerly(name: str, rewritten: bool) -> None:
    read = READS[name]

    def plain(x: Any) -> Any:
        return x.sum(), read(x.shape[0])

    def beside_data(x: Any) -> Any:
        if x.sum() > 1e9:
            x = x + 1
        return x.sum(), read(x.shape[0])

    function = beside_data if rewritten else plain
    jitted = tn.jit(function)
    for size in SIZES:
        MEMO.clear()
        want = function(tn.ones(size))
        MEMO.clear()
        assert same(want, jitted(tn.ones(size))), size
        assert all(type(k) in (int, tuple) for k in MEMO)
    assert "bug" not in str(tn.explain(jitted))


def test_a_slice_that_is_stored() -> None:
    held: dict[str, Any] = {}

    @tn.jit
    def store(x: Any) -> Any:
        held["s"] = slice(len(x))
        return x

    for size in SIZES:
        store(tn.ones(size))
        assert held["s"] == slice(size)


def test_an_instance_check_needs_no_capture_of_its_own() -> None:
    @tn.jit(fullgraph=True)
    def checked(x: Any) -> Any:
        if x.sum() > 1e9:
            x = x + 1
        return x.sum() if isinstance(x.shape[0], int) else x

    for size in SIZES:
        assert checked(tn.ones(size)).shape == ()
    assert len(next(iter(checked.records.values())).captures) == 2

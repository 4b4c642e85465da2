"""The fast path of calls whose arguments are nested: it reads the leaves of calls of one structure, and of no other."""

import collections
import dataclasses

import tenon as tn
from tenon.capture.nest_reader import nest_reader
from tenon.capture.pytree import unfold

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class State:
    n: int
    x: object


@dataclasses.dataclass(slots=True)
class Slotted:
    n: int


class Both(Slotted):
    def __init__(self, n):
        self.n, self.more = n, n


def reader(*args, apart=frozenset(), **keywords):
    leaves, structure, _ = unfold((args, keywords))
    return nest_reader(structure, leaves, apart)


def test_it_reads_what_unfold_reads():
    args, keywords = (1, [2, (3.0, {"a": 4, "c": 6})], Pair(7, State(8, [9]))), {"k": {"b": (10,)}, "m": 11}
    assert list(reader(*args, **keywords)(args, keywords)) == unfold((args, keywords))[0]
    assert reader()((), {}) == ()


def test_calls_of_another_structure_are_told():
    read = reader([1], {"a": State(2, 3)}, k=4)
    assert read(([1], {"a": State(2, 3)}), {"k": 4}) == (1, 2, 3, 4)
    inner = [1]
    other = State(2, 3)
    other.more = 1
    for args, keywords in ((([1],), {"k": 4}), (((1,), {"a": State(2, 3)}), {"k": 4}), (([1, 2], {"a": State(2, 3)}), {"k": 4}),
                           (([1], {"b": State(2, 3)}), {"k": 4}), (([1], {"a": other}), {"k": 4}), (([1], {"a": 2}), {"k": 4}),
                           (([1], 5), {"k": 4}), (([1], ["a"]), {"k": 4}), (([1], ("a",)), {"k": 4}),
                           (([1], {"a": State(2, inner)}), {"k": 4}), (([1], {"a": State(2, 3)}), {"m": 4}),
                           (([1.0], {"a": State(2, 3)}), {"k": 4}), (([1], {"a": State(2, 3)}), {"k": [4]})):
        assert read(args, keywords) is None, (args, keywords)


def test_containers_that_are_one_or_apart():
    one = [1]
    assert reader([1], [1])((one, one), {}) is None and reader([1], [1])((one, [1]), {}) == (1, 1)
    assert reader(one, one) is None
    assert reader([1], k=[2], apart=frozenset((id(one),)))((one,), {"k": [2]}) is None


def test_what_is_not_as_simple_is_left_to_unfold():
    assert reader(Slotted(1))((Slotted(5),), {}) == (5,) and reader(Both(1)) is None and reader({1.0: 2}) is None


def test_a_jitted_step_takes_and_gives_a_state():
    @tn.jit
    def step(state, batch):
        return dataclasses.replace(state, n=state.n + 1, x=state.x * 2 + batch["y"]), Pair(state.n, batch["y"])
    state = State(0, tn.ones(2))
    for k in range(8):
        state, pair = step(state, {"y": tn.ones(2) * k})
        assert type(pair) is Pair and pair.left == k and state.n == k + 1
    assert step._fast_calls and state.x.tolist() == [503.0] * 2

"""Objects, sets and counters that a function makes and leaves: one graph, and made anew in every call."""

from __future__ import annotations

import types
import weakref
from collections import Counter
from typing import Any, ClassVar

import pytest

import tenon as tn
from tenon import nn

CALLS = [(1.0, 1), (2.0, 2), (-1.0, 3), (1.0, 1), (-3.0, 2)] * 3


class Output:
    """What a model returns."""

    def __init__(self, logits: Any, step: int):
        self.logits, self.step, self.total = logits, step, logits.sum()


class Derived(Output):
    scale = 3


class Slots:
    __slots__ = ("empty", "listed", "x")

    def __init__(self, x: Any):
        self.x, self.listed = x, [x, 1]


class Holder:
    def __init__(self) -> None:
        self.state = Output(tn.zeros(2), 0)
        self.seen: set[int] = set()
        self.counts: Counter[str] = Counter()


def returned(h: Holder, x: Any, n: int) -> Any:
    return Output(x * 2, n)


def of_several_classes(h: Holder, x: Any, n: int) -> Any:
    return Slots(x), types.SimpleNamespace(x=x, n=n), Derived(x, n)


def in_two_places(h: Holder, x: Any, n: int) -> Any:
    made = Output(x, n)
    return made, [made], {"inside": made}, made.logits


def kept_as_state(h: Holder, x: Any, n: int) -> Any:
    h.state = Output(h.state.logits + x, h.state.step + 1)
    return h.state.total


def by_the_data(h: Holder, x: Any, n: int) -> Any:
    return Output(x, n) if x.sum() > 0 else Derived(-x, n + 1)


def of_two_kinds(h: Holder, x: Any, n: int) -> Any:
    return Output(x, n) if x.sum() > 0 else Slots(x)


def with_an_attribute_by_the_data(h: Holder, x: Any, n: int) -> Any:
    made = Output(x, n)
    if x.sum() > 0:
        made.more = x       # type: ignore[attr-defined]
    return made


def in_several_places_of_a_branch(h: Holder, x: Any, n: int) -> Any:
    made, listed = None, None
    if x.sum() > 0:
        made = Output(x, n)
        listed = [made]
    return made, listed


def sets(h: Holder, x: Any, n: int) -> Any:
    found = {"a", "b"}
    return found, [found], set(), {1, 2}, x * n


def counters(h: Holder, x: Any, n: int) -> Any:
    return Counter("abca"), x * n


def kept_collections(h: Holder, x: Any, n: int) -> Any:
    h.counts = Counter({"n": n})
    h.seen = {0, 1}
    return x * n


PROGRAMS = [returned, of_several_classes, in_two_places, kept_as_state, by_the_data, of_two_kinds,
            with_an_attribute_by_the_data, in_several_places_of_a_branch, sets, counters, kept_collections]


def described(x: Any, seen: dict[int, int]) -> Any:
    """A nest of objects in words, what stands in two places included."""
    if isinstance(x, (int, str, float, type(None))):
        return x
    if id(x) in seen:
        return "the same", seen[id(x)]
    seen[id(x)] = len(seen)
    if isinstance(x, tn.Tensor):
        return str(x)
    if isinstance(x, set):
        return sorted(x, key=str)
    if isinstance(x, dict):
        return type(x).__name__, [(key, described(value, seen)) for key, value in x.items()]
    if isinstance(x, (list, tuple)):
        return [described(part, seen) for part in x]
    names = vars(x) if hasattr(x, "__dict__") else [name for name in x.__slots__ if hasattr(x, name)]
    return type(x).__name__, [(name, described(getattr(x, name), seen)) for name in names]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_an_object_that_is_left_is_made_in_every_call(program: Any) -> None:
    jitted = tn.jit(program, fullgraph=True)
    one, other = Holder(), Holder()
    kept = []
    for value, n in CALLS:
        expected, found = program(one, tn.ones(2) * value, n), jitted(other, tn.ones(2) * value, n)
        seen: list[dict[int, int]] = [{}, {}]
        assert described(found, seen[0]) == described(expected, seen[1])
        assert described(other, seen[0]) == described(one, seen[1])
        kept.append(found)      # of which none is another call's
    assert len(set(map(id, kept))) == len(kept)
    assert sum(len(record.captures) for record in jitted.records.values()) <= 3


def test_an_object_of_a_branch_is_one_in_the_state_too() -> None:
    def kept(h: Any, x: Any) -> Any:
        if x.sum() > 0:
            made = h.state = h.last = Output(x, 1)
            return made
        return None
    h, jitted = Holder(), tn.jit(kept)
    for value in (1.0, -1.0, 2.0, 3.0):
        made = jitted(h, tn.ones(2) * value)
        assert made is None or (made is h.state and made is h.last and made.step == 1)


def test_an_object_that_contains_itself_in_a_branch_is_left_to_python() -> None:
    def looped(x: Any) -> Any:
        made = None
        if x.sum() > 0:
            made = Output(x, 1)
            made.itself = made      # type: ignore[attr-defined]
        return made
    jitted = tn.jit(looped)
    assert jitted(-tn.ones(2)) is None
    for k in range(3):
        found = jitted(tn.ones(2) * (k + 1))
        assert found.itself is found and found.logits.tolist() == [k + 1, k + 1]
    assert "bug" not in str(tn.explain(jitted))


def test_the_class_of_an_object_is_changed() -> None:
    class Plain:
        rate = 1

    class Fast(Plain):
        rate = 2

    def step(o: Any, x: Any) -> Any:
        o.__class__ = Fast if type(o) is Plain else Plain
        return x * o.rate
    one, other, jitted = Plain(), Plain(), tn.jit(step)
    for _ in range(5):
        assert jitted(other, tn.ones(1)).item() == step(one, tn.ones(1)).item()
        assert type(one) is type(other)

    def by_the_data(o: Any, x: Any) -> Any:
        o.__class__ = Fast if x.sum() > 0 else Plain
        return o.rate
    jitted = tn.jit(by_the_data)
    for value in (1.0, -1.0, 1.0):
        assert jitted(other, tn.tensor([value])) == by_the_data(one, tn.tensor([value]))


def test_layers_that_learn_their_sizes_in_the_first_call() -> None:
    outputs = []
    for jit in (lambda f: f, tn.jit):
        tn.manual_seed(0)
        model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(1))
        run = jit(lambda x, model=model: model(x))
        outputs.append([run(tn.ones(2, 4) * k).tolist() for k in range(3)])
        assert [type(layer) for layer in model] == [nn.Linear, nn.ReLU, nn.Linear]
    assert outputs[0] == outputs[1]


def test_a_registry_that_refers_weakly_to_what_is_made() -> None:
    class Registered:
        alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

        def __init__(self, x: Any):
            self.x = x
            Registered.alive.add(self)
    jitted = tn.jit(lambda x: Registered(x * 2))
    for k in range(1, 4):
        made = jitted(tn.ones(1) * k)
        assert list(Registered.alive) == [made] and made.x.item() == 2 * k


class Key:
    """Equal to others of its name."""

    def __init__(self, name: int, x: Any):
        self.name, self.x = name, x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def test_a_key_that_holds_what_is_computed() -> None:
    table: dict[Any, int] = {}

    @tn.jit
    def stored(x: Any, n: int) -> Any:
        table.clear()
        table[Key(n, x * 2)] = n
        return x

    @tn.jit
    def returned(x: Any) -> Any:
        key = Key(1, x * 2)
        return key, {key: x}, {(1, key): x}

    @tn.jit
    def of_an_argument(x: Any) -> Any:
        table.clear()
        table[(1, x)] = 1
        return x + 1
    for k in range(1, 4):
        stored(tn.ones(1) * k, k)
        assert [(key.name, key.x.item()) for key in table] == [(k, 2 * k)]
        key, found, nested = returned(tn.ones(1) * k)
        assert list(found) == [key] and next(iter(found)) is key and next(iter(nested))[1] is key and key.x.item() == 2 * k
        given = tn.ones(1) * k
        of_an_argument(given)
        assert next(iter(table))[1] is given

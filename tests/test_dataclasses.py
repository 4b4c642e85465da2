"""Tenon's dataclasses do what Python's do, which are the oracle here."""

import copy
import dataclasses
import inspect
import pickle
from types import SimpleNamespace
from typing import ClassVar

import pytest

from tenon import records as ours

BOTH = pytest.mark.parametrize("of", (dataclasses, ours), ids=("python", "tenon"))


def classes(of):
    """One class of every sort, made by Python's decorator or by ours."""
    @of.dataclass
    class Plain:
        a: int
        b: str = "b"
        c: list = of.field(default_factory=list)
        kind: ClassVar[int] = 3

    @of.dataclass(frozen=True)
    class Frozen:
        a: object
        b: int = 2
        made: dict = of.field(init=False, repr=False, default_factory=dict)

    @of.dataclass(frozen=True)
    class One:
        a: object

    @of.dataclass(frozen=True)
    class Empty:
        """No fields."""

    @of.dataclass(frozen=True, eq=False)
    class Below(Frozen):
        d: float = 0.5
        b: int = 7

    @of.dataclass(eq=False, repr=False)
    class Quiet:
        a: int

        def __post_init__(self):
            self.double = 2 * self.a

    @of.dataclass(eq=False, slots=True)
    class Slots:
        a: int
        b: tuple = ()

    @of.dataclass
    class Own:
        a: int
        later: int = of.field(init=False)

        def __eq__(self, other):
            return self.a % 10 == other.a % 10

        def __hash__(self):
            return self.a % 10

        def __repr__(self):
            return "own"
    return SimpleNamespace(**{cls.__name__: cls for cls in (Plain, Frozen, One, Empty, Below, Quiet, Slots, Own)})


def error_of(f, *args, **keywords):
    with pytest.raises(Exception) as caught:
        f(*args, **keywords)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("name, args, keywords", [
    ("Plain", (1,), {}), ("Plain", (1, "x"), {"c": [2]}), ("Plain", (), {"b": 1, "a": 0}), ("Frozen", (1,), {}),
    ("Frozen", ((1, 2), 3), {}), ("One", (1,), {}), ("Empty", (), {}), ("Below", (1,), {}), ("Below", (1, 2, 3), {}),
    ("Slots", (1,), {}), ("Slots", (1, (2,)), {}), ("Own", (13,), {})])
def test_objects_hold_and_show_the_same(name, args, keywords):
    theirs, own = (getattr(classes(of), name)(*args, **keywords) for of in (dataclasses, ours))
    names = [x.name for x in dataclasses.fields(theirs)]
    assert [x.name for x in ours.fields(own)] == names
    assert [getattr(own, x, None) for x in names] == [getattr(theirs, x, None) for x in names]
    assert type(own).__match_args__ == type(theirs).__match_args__
    if name not in ("Slots", "Own", "Empty"):
        assert repr(own) == repr(theirs)
        assert list(vars(own)) == list(vars(theirs))


@pytest.mark.parametrize("name, args, keywords", [
    ("Plain", (), {}), ("Plain", (1, 2, 3, 4), {}), ("Plain", (1,), {"d": 2}), ("Plain", (1,), {"a": 2}),
    ("Frozen", (1,), {"made": {}}), ("Empty", (1,), {}), ("One", (), {"b": 1})])
def test_wrong_arguments_are_the_same_errors(name, args, keywords):
    theirs, own = (error_of(getattr(classes(of), name), *args, **keywords) for of in (dataclasses, ours))
    assert own == theirs


@BOTH
def test_equality_is_that_of_fields_within_a_class(of):
    c = classes(of)
    assert c.Plain(1) == c.Plain(1) != c.Plain(2)
    assert c.Frozen(1) == c.Frozen(1) != c.Frozen(1, 3)
    assert c.One(1) == c.One(1.0) and c.One((1,)) != c.One(1) and c.Empty() == c.Empty()
    assert c.One(1) != c.Frozen(1) and c.One(1).__eq__(1) is NotImplemented
    assert c.Quiet(1) != c.Quiet(1) and c.Slots(1) != c.Slots(1) and c.Below(1) != c.Frozen(1)
    assert c.Own(1) == c.Own(11)


def test_a_field_equals_itself_even_if_it_is_no_number():
    c, nan = classes(ours), float("nan")        # as Python's did before 3.13
    assert c.One(nan) == c.One(nan) != c.One(float("nan")) and c.Plain(nan) == c.Plain(nan)


def test_hashes_are_those_of_python():
    theirs, own = classes(dataclasses), classes(ours)
    assert hash(own.One(1)) == hash(theirs.One(1)) and hash(own.Empty()) == hash(theirs.Empty())
    assert hash(own.Own(12)) == hash(theirs.Own(12)) == 2
    assert hash(own.Quiet(1)) != hash(own.Quiet(1)) or own.Quiet(1) is not own.Quiet(1)
    assert error_of(hash, own.Plain(1)) == error_of(hash, theirs.Plain(1))
    assert error_of(hash, own.Frozen([])) == error_of(hash, theirs.Frozen([]))


@BOTH
def test_what_is_frozen_never_changes(of):
    x = classes(of).Frozen(1)
    assert error_of(setattr, x, "a", 2) == (dataclasses.FrozenInstanceError, "cannot assign to field 'a'")
    assert error_of(delattr, x, "a") == (dataclasses.FrozenInstanceError, "cannot delete field 'a'")
    assert x.a == 1


@BOTH
def test_every_object_has_a_default_of_its_own(of):
    c = classes(of)
    first, second = c.Plain(1), c.Plain(1)
    first.c.append(1)
    assert second.c == [] and c.Frozen(1).made is not c.Frozen(1).made
    assert not hasattr(c.Plain, "c") and c.Plain.b == "b" and c.Plain.kind == 3


@BOTH
def test_what_follows_init(of):
    c = classes(of)
    assert c.Quiet(4).double == 8 and not hasattr(c.Own(1), "later")
    assert object.__repr__(x := c.Quiet(1)) == repr(x)


@BOTH
def test_places_in_the_stead_of_a_dictionary(of):
    x = classes(of).Slots(1)
    assert not hasattr(x, "__dict__") and x.b == ()
    x.b = (1,)
    assert x.b == (1,) and error_of(setattr, x, "other", 1)[0] is AttributeError


@BOTH
def test_copies(of):
    c = classes(of)
    x = c.Frozen([1], 5)
    assert of.replace(x, b=6).b == 6 and of.replace(x, b=6).a is x.a and x.b == 5
    assert copy.copy(x) == x and copy.deepcopy(x) == x and copy.deepcopy(x).a is not x.a
    assert of.astuple(c.Plain(1)) == (1, "b", [])
    assert error_of(of.replace, x, wrong=1)[0] is TypeError


@BOTH
def test_an_object_within_itself_is_shown_once(of):
    x = classes(of).Plain(1)
    x.c.append(x)
    assert repr(x).endswith("Plain(a=1, b='b', c=[...])")


def test_init_is_written_once_for_a_class_and_its_heirs():
    c = classes(ours)

    class Heir(c.Plain):
        pass
    before = c.Plain.__init__
    assert Heir(1) == Heir(1, "b", [])
    written = c.Plain.__init__
    assert written is not before and Heir.__init__ is written
    assert c.Plain(2).a == 2 and c.Plain.__init__ is written
    assert str(inspect.signature(written)) == "(self, a, b='b', c=_MISSING)".replace("_MISSING", repr(ours.MISSING))


@dataclasses.dataclass(frozen=True)
class Theirs:
    a: int


@ours.dataclass(frozen=True)
class Ours:
    a: int
    b: tuple = ()


def test_pickles():
    assert pickle.loads(pickle.dumps(Ours(1, (2,)))) == Ours(1, (2,))


def test_what_is_one():
    assert ours.is_dataclass(Ours) and ours.is_dataclass(Ours(1)) and ours.is_dataclass(Theirs(1))
    assert not ours.is_dataclass(int) and not ours.is_dataclass(1)

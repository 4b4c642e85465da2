"""What surrounds a function: iterators, weak references, hooks of classes, library objects, modules, the interpreter."""

import collections
import copy
import dataclasses
import functools
import itertools
import sys
import types
import weakref

from capture.corpus import T, program, session


class Table(collections.UserDict):
    """A dictionary of the user's own, whose content a library's code reads."""


class Countdown:
    """An iterator written in Python, whose position is an attribute."""

    def __init__(self):
        self.left = 6

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left % 3 == 2:
            raise StopIteration
        return self.left


class Noted:
    """Notes what is set and deleted."""

    def __init__(self):
        object.__setattr__(self, "log", [])

    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        self.log.append(f"no {name}")
        object.__delattr__(self, name)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A record that is changed all the same, as `__post_init__` does."""

    value: object
    turns: int = 0


class Doubling:
    """A descriptor that keeps its value under its own name, and doubles what it is given."""

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return instance.__dict__[self.name]

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value * 2.0


class Base:
    """Changes its argument by two ways to write one method."""

    def __call__(self, x):
        return x + 1.0


class Derived(Base):
    """Calls its base in the arms of an expression."""

    def __call__(self, x):
        return super().__call__(x) * 2.0 if T.sum(x) > 0 else super().__call__(-x)


@session(not_one_graph="an iterator is moved")
def iterator_moved_by_a_loop(jit):
    numbers = itertools.count()

    @jit
    def f(x):
        return [x * k for k, _ in zip(numbers, range(2), strict=False)]

    for _ in range(3):
        yield f(T.tensor([1.0, 2.0]))


@session
def iterator_written_in_python(jit):
    numbers = Countdown()

    @jit
    def f(x):
        for k in numbers:
            x = x * k
        return x

    for _ in range(3):
        yield f(T.tensor([1.0, 2.0])), numbers.left


@session
def table_of_a_library_class(jit):
    table, rows = Table(scale=2.0), collections.UserList([1.0])

    @jit
    def f(x):
        table["calls"] = table.get("calls", 0) + 1
        rows.append(x * table["scale"])
        return rows[-1] * table["calls"]

    for _ in range(3):
        yield f(T.tensor([1.0, 2.0])), table["calls"], len(rows)
    table["scale"] = 3.0
    yield f(T.tensor([1.0, 2.0])), table["calls"], len(rows)


@session(not_one_graph="what a weak reference refers to may be gone")
def weak_reference_to_what_goes(jit):
    class Scale:
        value = 2.0

    one, table = Scale(), weakref.WeakValueDictionary()
    reference, table["one"] = weakref.ref(one), one

    @jit
    def f(x):
        return x * reference().value if reference() is not None else x * len(table) - 1.0

    yield f(T.tensor([1.0, 2.0]))
    one.value = 4.0
    yield f(T.tensor([1.0, 2.0]))
    del one
    yield f(T.tensor([1.0, 2.0]))


@session
def weak_reference_to_a_parent(jit):
    class Node:
        def __init__(self, scale, parent=None):
            self.scale, self.parent = scale, parent and weakref.ref(parent)

    root = Node(2.0)
    leaf = Node(3.0, root)

    @jit
    def f(x):
        return x * leaf.scale * leaf.parent().scale + root.scale

    yield f(T.tensor([1.0, 2.0]))
    root.scale = 5.0
    yield f(T.tensor([1.0, 2.0]))


@session
def attributes_set_through_a_hook(jit):
    noted = Noted()

    @jit
    def f(x):
        noted.value = x
        if T.sum(x) > 0:
            noted.factor = 1.0
        else:
            noted.factor = 2.0
        y = noted.value * noted.factor
        del noted.factor
        return y

    for values in ([1.0, 2.0], [-1.0, -2.0], [3.0, 4.0]):
        yield f(T.tensor(values)), list(noted.log), noted.value


@session
def frozen_record_changed_by_force(jit):
    record = Frozen(2.0)

    @jit
    def f(x):
        object.__setattr__(record, "turns", record.turns + 1)
        return x * record.turns

    for _ in range(3):
        yield f(T.tensor([1.0, 2.0])), record.turns


@session
def descriptor_beside_its_value(jit):
    class Model:
        rate = Doubling()

    model = Model()

    @jit
    def f(x):
        model.rate = x
        return model.rate + 1.0

    for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        yield f(T.tensor(values)), model.rate


@program
def attribute_of_a_local_class_in_a_branch(x):
    class Counted:
        made = 0

        def __init__(self):
            Counted.made += 1

    Counted()
    if T.sum(x) > 0:
        Counted()
    return Counted.made


@program
def base_called_in_the_arms_of_an_expression(x):
    return Derived()(x)


@program
def variable_bound_in_the_second_part_of_a_condition(x):
    steps = 0
    while (total := T.sum(x)) > 0.5 and (steps := steps + 1) < 9:
        x = x * 0.5
    return total, steps, x


@session
def kind_registered_between_calls(jit):
    @functools.singledispatch
    def factor(value):
        return 0.0

    @factor.register
    def _(value: int):
        return value * 2.0

    f = jit(lambda x, value: x * factor(value))
    yield f(T.tensor([1.0, 2.0]), 3), f(T.tensor([1.0, 2.0]), None)
    factor.register(type(None), lambda value: 11.0)
    yield f(T.tensor([1.0, 2.0]), 3), f(T.tensor([1.0, 2.0]), None)


@session
def module_that_makes_attributes_up(jit):
    module, table = types.ModuleType("made_up"), {"scale": 2.0}
    module.__getattr__ = lambda name: table[name]
    f = jit(lambda x: x * module.scale)
    yield f(T.tensor([1.0, 2.0]))
    table["scale"] = 3.0
    yield f(T.tensor([1.0, 2.0]))
    module.scale = 10.0
    yield f(T.tensor([1.0, 2.0]))


@session(not_one_graph="a setting of the interpreter is read")
def setting_of_the_interpreter(jit):
    f = jit(lambda x: x * sys.getrecursionlimit())
    before = sys.getrecursionlimit()
    yield f(T.tensor([1.0, 2.0])) * 0.0
    sys.setrecursionlimit(before + 8)
    try:
        yield f(T.tensor([1.0, 2.0])) - T.tensor([1.0, 2.0]) * before
    finally:
        sys.setrecursionlimit(before)


@session
def gradient_of_a_loop(jit):
    def energy(v):
        while T.sum(v * v) < 30.0:
            v = v * 1.5 + 1.0
        return T.sum(v)

    f = jit(T.grad(energy))
    for values in ([1.0, 2.0], [-3.0, 4.0], [9.0, 9.0]):
        yield f(T.tensor(values))


@session
def copies_of_tensors(jit):
    weight = T.tensor([1.0, 2.0])

    @jit
    def f(x):
        table = {"rows": [x, {"weight": weight}]}
        other, same = copy.deepcopy(table), copy.copy(table)
        other["rows"][1]["weight"] = other["rows"][1]["weight"] * 2.0
        same["rows"].append(copy.copy(x) + 1.0)
        return table, other, same["rows"] is table["rows"]

    for values in ([1.0, 2.0], [3.0, 4.0]):
        yield f(T.tensor(values)), weight

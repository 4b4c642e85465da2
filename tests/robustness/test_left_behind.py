"""What a function leaves behind is the same object where eager code leaves the same object, in the same order."""

import contextvars
import os
import secrets
import uuid
import warnings
from collections import OrderedDict

import pytest

import tenon as tn

X = tn.tensor([1.0, 2.0])


class Box:
    pass


def global_list_returned(jit):
    log = []
    f = jit(lambda x: log)
    for _ in range(3):
        f(X).append(1)
        yield len(log)


def argument_list_returned(jit):
    f = jit(lambda items: items)
    items = [X]
    for _ in range(2):
        f(items).append(X)
        yield len(items)


def one_tensor_twice(jit):
    f = jit(lambda x: (lambda y: (y, [y]))(x * 2))
    for _ in range(2):
        a, (b,) = f(X)
        yield a is b


def state_returned(jit):
    box = Box()
    box.h = X * 0

    @jit
    def f(x):
        box.h = box.h + x
        return box.h
    for _ in range(3):
        yield f(X) is box.h, box.h.tolist()


def gradient_returned(jit):
    p = tn.tensor([1.0, 2.0], requires_grad=True)

    @jit
    def f(x):
        p.grad = None
        (p * x).sum().backward()
        return p.grad
    for k in range(3):
        yield f(X * k) is p.grad, p.grad.tolist()


def known_list_within_a_new_dictionary(jit):
    box = Box()
    box.items = [1]

    @jit
    def f(x):
        box.new = {"items": box.items, "x": x * 2}
        return x
    for _ in range(3):
        f(X)
        box.new["items"].append(2)
        yield list(box.items)


def known_list_under_a_new_name(jit):
    box = Box()
    box.items = [1]

    @jit
    def f(x):
        box.new = box.items
        box.new.append(7)
        return x * len(box.items)
    for _ in range(3):
        yield f(X).tolist(), list(box.items), box.new is box.items


def new_list_in_two_places(jit):
    log = []

    @jit
    def f(x):
        made = [x * 2]
        log.append(made)
        log.append(made)
        return made
    for _ in range(3):
        yield f(X) is log[-1], log[-1] is log[-2]


def moved_to_the_end(jit):
    table = OrderedDict(a=1, b=2, c=3)

    @jit
    def f(x):
        table.move_to_end("a")
        return x
    for _ in range(3):
        f(X)
        yield list(table)
        table.move_to_end("b")


def taken_out_and_put_back(jit):
    table = {"a": 1, "b": 2, "c": 3}

    @jit
    def f(x):
        table["z"] = x * 2
        table["b"] = table.pop("b")
        return x
    for _ in range(3):
        f(X)
        yield list(table)
        table.pop("z")


def least_recently_used(jit):
    cache = OrderedDict()

    @jit
    def f(x, k):
        if k in cache:
            cache.move_to_end(k)
        else:
            if len(cache) >= 2:
                cache.popitem(last=False)
            cache[k] = x * k
        return cache[k]
    for k in (1, 2, 1, 3, 2, 1, 1):
        yield f(X, k).tolist(), list(cache)


def attribute_of_the_function_itself(jit):
    def f(x):
        f.calls = getattr(f, "calls", 0) + 1
        return x * f.calls
    g = jit(f)
    for _ in range(3):
        yield g(X).tolist()


def context_variable(jit):
    variable = contextvars.ContextVar("variable", default=1)

    @jit
    def f(x):
        variable.set(variable.get() + 1)
        return x * variable.get()
    for _ in range(3):
        yield f(X).tolist(), variable.get()


def slots(jit):
    class Cell:
        __slots__ = ("count", "last")
    cell = Cell()
    cell.count = 0

    @jit
    def f(x):
        cell.count += 1
        cell.last = x * cell.count
        return cell.last
    for _ in range(3):
        yield f(X) is cell.last, cell.last.tolist(), cell.count


def slices_as_arguments(jit):
    f = jit(lambda x, key: x[key])
    for key in (slice(None, 1), slice(1, None), slice(None, 1), 0, [1, 0]):
        yield f(X, key).tolist()


PROGRAMS = [slots, slices_as_arguments, global_list_returned, argument_list_returned, one_tensor_twice, state_returned, gradient_returned,
            known_list_within_a_new_dictionary, known_list_under_a_new_name, new_list_in_two_places, moved_to_the_end,
            taken_out_and_put_back, least_recently_used, attribute_of_the_function_itself, context_variable]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_objects_are_those_of_eager_code(program):
    assert list(program(tn.jit)) == list(program(lambda f: f))


@pytest.mark.parametrize("draw", [lambda: uuid.uuid4().hex, lambda: os.urandom(4), lambda: secrets.token_hex(4)])
def test_random_numbers_of_the_operating_system_are_drawn_in_every_call(draw):
    f = tn.jit(lambda x: (x, draw()))
    assert len({f(X)[1] for _ in range(4)}) == 4


def test_warnings_are_given_in_every_call():
    @tn.jit
    def f(x):
        warnings.warn("careful", stacklevel=1)
        return x
    for _ in range(3):
        with pytest.warns(UserWarning, match="careful"):
            f(X)


def test_files_are_looked_for_in_every_call(tmp_path):
    f = tn.jit(lambda x: x * (len(os.listdir(tmp_path)) + 10 * os.path.exists(tmp_path / "a")))
    assert f(X).tolist() == [0.0, 0.0]
    (tmp_path / "a").touch()
    assert f(X).tolist() == [11.0, 22.0]

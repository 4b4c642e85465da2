"""A tensor that a branch or a loop chose may be another one that the program still has: writing to it writes to both."""

import pytest

import tenon as tn


def argument_or_new(x):
    y = x if x.sum() > 0 else x * 2
    y[0] = 50.0
    return y


def two_names(x):
    a = b = x * 2
    if x.sum() > 0:
        a = a + 1
    a[0] = 50.0
    return a, b


def item_of_a_list(x):
    items = [x * 1, x * 2]
    y = items[0] if x.sum() > 0 else items[1]
    y[0] = 50.0
    return items


def after_a_loop(x):
    y = x
    while y.sum() > 3:
        y = y - 1
    y[0] = 50.0
    return x, y


def assigned(x):
    y = x * 1
    if x.sum() > 0:
        y = x
    y.assign(y * 2)
    return x, y


def found(x):
    y = x * 1
    for v in x:
        if v > 0:
            y = x
            break
    y[1] = 9.0
    return y


def asked_for_identity(x):
    y = x if x.sum() > 0 else -x
    return (y is x) * 1.0 + y


PROGRAMS = [argument_or_new, two_names, item_of_a_list, after_a_loop, assigned, found, asked_for_identity]


def plain(value):
    return [plain(x) for x in value] if isinstance(value, (list, tuple)) else value.tolist()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_what_is_written_to_one_is_written_to_the_other(program):
    jitted = tn.jit(program)
    for values in ([1.0, 2.0], [-1.0, -2.0], [5.0, -3.0], [1.0, 2.0], [-4.0, 1.0]):
        x, y = tn.tensor(values), tn.tensor(values)
        assert (plain(jitted(x)), plain(x)) == (plain(program(y)), plain(y))


def test_a_new_tensor_of_either_branch_is_written_to_within_the_graph():
    @tn.jit(fullgraph=True)
    def f(x):
        y = x * 2 if x.sum() > 0 else x * 3
        y[0] = 1.0
        return y
    assert f(tn.tensor([1.0, 2.0])).tolist() == [1.0, 4.0] and f(tn.tensor([-1.0, -2.0])).tolist() == [1.0, -6.0]


def by_index(x):
    y = [x, x * 2][int(x.sum() > 0)]
    y += 1.0
    return x * 1, y


def by_key(x):
    y = {True: x, False: x * 2}[bool(x.sum() > 0)]
    y += 1.0
    return x * 1, y


def by_a_loop(x):
    y = x * 2
    for s in [x, x * 3]:
        if s.sum() > 0:
            y = s
            break
    y += 1.0
    return x * 1, y


def by_a_filter(x):
    y = x * 2
    z = next(filter(lambda t: t.sum() > 0, [x, y, tn.ones(2)]))
    z += 1.0
    return x * 1, y, z


def by_rank(x):
    y = max([x, x * 2], key=lambda t: float(t.sum()))
    y *= y.mean()
    return x * 1, y


def swapped(x):
    y = x * 2
    p, q = (x, y) if x.sum() > 0 else (y, x)
    p += 1.0
    return x * 1, y, p, q


@pytest.mark.parametrize("f", [by_index, by_key, by_a_loop, by_a_filter, by_rank, swapped], ids=lambda f: f.__name__)
def test_what_is_written_in_place_afterwards(f):
    jitted = tn.jit(f)
    for data in ([1.0, 2.0], [-1.0, 0.5], [-3.0, -4.0], [1.0, 2.0]):
        one, other = tn.tensor(data), tn.tensor(data)
        expected, found = f(one), jitted(other)
        assert [t.tolist() for t in found] == [t.tolist() for t in expected]
        assert other.tolist() == one.tolist()

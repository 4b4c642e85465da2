"""Containers whose elements, keys or existence the data decide: what leaves the call, what stays one, what is refused."""

import importlib.util
import random
import sys

import numpy as np
import pytest

import tenon as tn
from capture.both import check, outcome, same, vector
from tenon.errors import CaptureError

DATA = ([1.0, -2.0, 3.0], [-1.0, -2.0, 0.5], [4.0, 3.0, 2.0], [-1.0, -2.0, -3.0])


def test_a_list_left_in_two_places_is_one_where_the_data_say_so():
    @tn.jit(fullgraph=True)
    def f(x):
        made = [x * 2]
        return made, made if x.sum() > 0 else None
    for values in DATA * 2:
        made, again = f(vector(*values))
        assert again is (made if sum(values) > 0 else None)


def test_names_of_one_list_stay_one():
    @tn.jit(fullgraph=True)
    def f(x):
        a, b = [x], [x * 2]
        c = a if x[0] > 0 else b
        c.append(x)
        return a, b, c
    for values in DATA * 2:
        a, b, c = f(vector(*values))
        assert c is (a if values[0] > 0 else b) and len(a) + len(b) == 3 and len(c) == 2


def test_lists_from_outside_are_prolonged_in_every_call():
    class Log:
        def __init__(self):
            self.rows, self.best = ["start"], None

        def __call__(self, x):
            rows = self.rows
            while x.sum() > 1:
                rows.append(x.sum())
                x = x / 2
            if x[0] > 0:
                self.best = rows
            return len(rows) - 1
    check(lambda log, x: log(x), DATA, make=Log)


def test_more_elements_than_there_is_room_for():
    def f(x):
        found, k = [], 0
        while k < x.sum():
            found.append(k)
            k += 1
        return found
    check(f, ([1.0, 2.0], [200.0, 300.0], [3.0, 0.0]))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_gradients_of_what_a_loop_left(requires_grad):
    def f(x):
        parts = []
        while x.sum() > 1:
            parts.append(x * x)
            x = x / 2
        return tn.stack(parts), parts
    jitted = tn.jit(f, fullgraph=True)
    for values in ([1.0, 2.0], [3.0, 8.0], [0.5, 2.0]) * 2:
        gradients = []
        for function in (f, jitted):
            x = tn.tensor(values, requires_grad=requires_grad)
            rows, parts = function(x)
            total = rows.sum() * 2 + sum(p.sum() for p in parts)
            if requires_grad:
                total.backward()
            gradients.append((total.detach(), x.grad if requires_grad else None))
        same(*gradients, str(values))


def test_methods_that_rewriting_does_not_reach_are_not_shown_such_lists():
    class Bag:
        def __init__(self, items):
            self.items = items

        def __len__(self):
            return len(self.items)

    def f(x):
        items = [x]
        if x.sum() > 0:
            items.append(x)
        return len(Bag(items)) * x
    check(f, DATA, fullgraph=False)


def test_functions_of_libraries_are_not_shown_such_lists():
    def f(x):
        items = [1]
        if x.sum() > 0:
            items.append(1)
        return x * sum(1 for _ in map(id, items))
    check(f, DATA, fullgraph=False)
    with pytest.raises(CaptureError):
        tn.jit(f, fullgraph=True)(vector(1.0, 2.0))


def test_comprehensions_over_such_containers():
    def f(x):
        kept, table, left = [x], {}, []
        if x.sum() > 0:
            kept.append(x * 2)
            table["a"] = x
        table["b"] = x * 3
        while x.sum() > 1:
            left.append((x, 2.0))
            x = x / 2
        return [k.sum() for k in kept], [k for k in kept if k[0] > 1], [k + k for k in table], [a * b for a, b in left], \
            len([1 for k in kept for _ in range(2)])
    check(f, DATA)


def test_a_users_truth_value_is_asked_once():
    class Asked:
        def __init__(self, x):
            self.x, self.times = x, 0

        def __bool__(self):
            self.times += 1
            return bool(self.x.sum() > 0)

    def f(x):
        one, two = Asked(x), Asked(-x)
        either = one if x[0] > 0 else two
        first = 1.0 if either else 2.0
        return first, one.times, two.times
    check(f, DATA)


# ---------------------------------------------------------------- programs at random

LISTS = "ab"
STATEMENTS = """
{L}.append({v})
{L}.insert(0, {v})
{L}.extend([{v}, {v}])
{L}.extend(list({M}))
{L} = {M} + [{v}]
{L} = {M}
{L} = {M}[:]
{L} = {M}[1:]
{L} = {M}[::-1]
if {L}: t = t + {L}.pop()
if {L}: del {L}[0]
if len({L}) > 1: {L}[1] = {v}
if len({L}) > 1: t = {L}[0] - {L}[-1]
for w in {L}: t = t * 0.5 + w
for k, w in enumerate({L}): t = t + k * w
n = n + len({L})
n = n + ({L} is {M}) + ("p" in d)
d["{k}"] = {v}
t = t + d.get("{k}", 0.5)
d.pop("{k}", None)
({L} if {c} else {M}).append({v})
{L} = [{v}, {v}] if {c} else {L}
o.items.append({v})
o.items = {L}
o.extra = {v}
t = t + getattr(o, "extra", 1.0)
""".strip().splitlines()


def program(seed: int) -> str:
    """A function of lists, a dictionary and an object, on which conditions on tensors decide."""
    draw = random.Random(seed)

    def filled(text: str) -> str:
        values = [f"x[{draw.randrange(3)}]", f"x[{draw.randrange(3)}] * 2.0", "t", "t + 1.0"]
        condition = f"x[{draw.randrange(3)}] > {draw.choice([0.0, 0.7])}"
        return text.format(L=draw.choice(LISTS), M=draw.choice(LISTS), v=draw.choice(values), k=draw.choice("pq"), c=condition)

    lines = ["a, b, d, n, t, o = [x[0]], [], {}, 0, x[1] * 1.0, Holder()", "o.items = a"]
    for _ in range(draw.randrange(4, 8)):
        if draw.random() < 0.5:
            lines += [filled("if {c}:"), *(f"    {filled(draw.choice(STATEMENTS))}" for _ in range(2))]
            lines += ["else:", f"    {filled(draw.choice(STATEMENTS))}"]
        else:
            lines.append(filled(draw.choice(STATEMENTS)))
    lines.append("return a, b, d, n, t, o.items, a is b, o.items is a")
    return "class Holder:\n    pass\n\n\ndef f(x):\n    " + "\n    ".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed, tmp_path):
    path = tmp_path / f"program_{seed}.py"
    path.write_text(program(seed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    jitted = tn.jit(module.f)
    rows = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
    for k, row in enumerate([*rows, *rows]):
        want, got = (outcome(lambda f=f, row=row: f(tn.asarray(row))) for f in (module.f, jitted))
        same(want, got, f"call {k} of\n{path.read_text()}")
    del sys.modules[path.stem]

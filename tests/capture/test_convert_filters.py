"""Filters on tensors: comprehensions, generators, `filter`, and what looks at one element after the other."""

import itertools

import tenon as tn
from capture.both import check

LOG = []


def test_comprehensions():
    check(lambda x: sum([v for v in x if v > 0]))
    check(lambda x: [v * 2 for v in x if v > 0])
    check(lambda x: [(k, v * 2) for k, v in enumerate(x) if v > 0 if k != 1])
    check(lambda x: len([v for v in x if v.ndim == 0 and v > 0]))


def test_a_filtered_list_and_its_truth():
    def f(x):
        kept = [v for v in x if v > 0]
        return sum(kept) if kept else x.sum()
    check(f)


def test_a_variable_bound_in_a_condition():
    def f(x):
        return [y for v in x if (y := v * 2) > 0], y
    check(f)


def test_generators():
    check(lambda x: sum(v for v in x if v > 0 and v < 2.5))
    check(lambda x: tuple(v for v in x if v.shape == ()))
    check(lambda x: max((v for v in x if v < 2), default=tn.tensor(7.0)))
    check(lambda x: max(v for v in x if v < 2))
    check(lambda x: len(list(filter(lambda v: v > 0, x))))
    check(lambda x: len(list(filter(None, [x.sum(), 1, 0, x.max()]))))


def test_any_and_all_look_no_further():
    check(lambda x: any(v > 2 for v in x))
    check(lambda x: any(v > 2 for v in x if v < 3.5))
    check(lambda x: all(v > -1 for v in x if v < 3.5))
    check(lambda x: (any(a > b for a, b in zip(x, x * 2, strict=True)), all(a > 0 for a in map(tn.exp, x))))
    check(lambda x: any([x.sum() > 1, x[0] / 0 > 1]))

    def positive(v):
        LOG.append(v.ndim)
        return v > 0

    def counted(x):
        before = len(LOG)
        return any(positive(v) for v in x), len(LOG) - before
    check(counted, fullgraph=False)


def test_the_next_one():
    check(lambda x: next((v for v in x if v < 0), x))
    check(lambda x: next((v for v in x if v < 0), None))
    check(lambda x: next(v for v in x if v < 0))


def test_a_generator_that_is_used_again():
    def named(x):
        it = (v for v in x if v > 0)
        return any(v > 2 for v in it), sum(it)

    def around_a_named_one(x):
        it = iter([x[0], x[1], x[2]])
        return any(v > 2 for v in it), len(list(it))

    def endless(x):
        return next(v for v in (x * k for k in itertools.count()) if v.ndim == 1)
    check(named, fullgraph=False)
    check(around_a_named_one, fullgraph=False)
    check(endless)


class Vector:
    def __init__(self, data):
        self.data, self.asked = data, 0

    def __bool__(self):
        self.asked += 1
        return bool(self.data.sum() > 0)


def test_the_truth_of_an_object():
    def f(x):
        v, n = Vector(x), 0
        while v:
            v.data = v.data - 1.0
            n += 1
        w = Vector(x)
        chosen = x * 2 if w else x
        return chosen, not w, v.asked, w.asked, n, bool(w), [1 for _ in range(2) if w]
    check(f)
    check(lambda x: 1.0 if Vector(x) and 3.0 else 2.0)
    check(lambda x: (Vector(x) and 3.0) == 3.0)

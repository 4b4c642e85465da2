"""Generators and context managers, inside a program."""

import contextlib
import itertools

from capture.corpus import T, program, session

EVENTS = []


def halves(x, times):
    for _ in range(times):
        x = x / 2.0
        yield x


def until_small(x):
    while T.max(T.abs(x)) > 1.0:
        yield x
        x = x / 2.0


@contextlib.contextmanager
def noted(name):
    EVENTS.append(f"enter {name}")
    try:
        yield name
    finally:
        EVENTS.append(f"leave {name}")


class Scope:
    """A context manager that counts how deep it is."""

    depth = 0

    def __enter__(self):
        Scope.depth += 1
        return self

    def __exit__(self, *error):
        Scope.depth -= 1
        return False


class Forgiving:
    """A context manager that swallows a ValueError."""

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        return kind is ValueError


@program
def generator_over_halves(x):
    total = x
    for h in halves(x, 3):
        total = total + h if T.sum(h) > 0 else total
    return total


@program
def generator_with_a_tensor_condition(x):
    total = x * 0.0
    for value in until_small(x):
        total = total + value
    return total


@program
def generator_expression(x, y):
    return sum(T.sum(row) for row in y) * x


@program
def generator_expression_with_a_filter(x, y):
    return x + sum(T.sum(row) for row in y if T.max(row) > 1.0)


@program
def next_with_a_default(x, y):
    return next((row for row in y if T.sum(row) > 3.0), x)


@program
def generator_broken_off(x):
    for k, h in enumerate(halves(x, 100)):
        if k == 3:
            break
    return h


@program
def yield_from(x):
    def twice(v):
        yield from halves(v, 2)
        yield from halves(-v, 1)

    return T.stack(list(twice(x)))


@program
def generator_that_receives(x):
    def running_sum():
        total = T.sum(x) * 0.0
        while True:
            value = yield total
            total = total + value

    adder = running_sum()
    next(adder)
    adder.send(x[0])
    return adder.send(x[1])


@program
def itertools_over_tensors(x, y):
    total = x
    for a, b in itertools.pairwise(y):
        total = total + a * b if T.sum(a) > 0 else total - b
    return total


@program
def islice_of_a_count(x):
    return sum(x * k for k in itertools.islice(itertools.count(2), 3))


@program
def context_manager_around_a_branch(x):
    with noted("outer"):
        y = x * 2.0 if T.sum(x) > 0 else x
    return y


@program
def nested_context_managers(x):
    with noted("a"), noted("b") as name:
        y = x + len(name)
    return y


@program
def return_from_inside_a_context(x):
    with Scope():
        if T.sum(x) > 0:
            return x * Scope.depth
    return x * (Scope.depth + 5)


@program
def context_left_by_an_exception(x):
    with Scope():
        if T.sum(x) < 0:
            raise ValueError("negative")
    return x * 2.0


@program
def context_that_swallows_an_exception(x):
    y = x
    with Forgiving():
        y = x * 2.0
        if T.sum(x) < 0:
            raise ValueError("negative")
        y = x * 3.0
    return y


@program
def exit_stack(x):
    with contextlib.ExitStack() as stack:
        for name in "ab":
            stack.enter_context(noted(name))
        y = x + 1.0 if T.sum(x) > 0 else x
    return y


@program
def null_context(x, scope=None):
    with scope or contextlib.nullcontext():
        return x * 2.0 if T.sum(x) > 0 else x


@session
def a_generator_of_the_caller(jit):
    @jit
    def f(x, scale):
        return x * scale if T.sum(x) > 0 else x

    def scales():
        yield 1.0
        yield 2.0
        yield 3.0

    x = T.tensor([1.0, 2.0])
    for scale in scales():
        yield f(x, scale)


@session
def generator_over_an_attribute(jit):
    class Net:
        def __init__(self):
            self.weights = [1.0, 2.0]

        def layers(self):
            for w in self.weights:
                yield lambda v, w=w: v * w

    net = Net()

    @jit
    def f(x):
        for layer in net.layers():
            x = layer(x)
        return x

    x = T.tensor([1.0, 2.0])
    yield f(x)
    net.weights.append(5.0)
    yield f(x)

"""Closures and state: functions that remember, and what they remember."""

import functools

from capture.corpus import T, program, session


@program
def function_made_inside(x):
    scale = T.sum(x)

    def scaled(v):
        return v * scale

    return scaled(x) if scale > 0 else scaled(-x)


@program
def function_that_makes_functions(x):
    def power(n):
        def raised(v):
            return v ** n
        return raised

    square, cube = power(2), power(3)
    return square(x) if T.sum(x) > 0 else cube(x)


@program
def composed_functions(x):
    def compose(*functions):
        return lambda v: functools.reduce(lambda value, f: f(value), functions, v)

    return compose(T.tanh, T.exp, lambda v: v + T.sum(x))(x)


@program
def partial_application(x):
    def affine(v, a, b):
        return v * a + b

    f = functools.partial(affine, b=1.0)
    return f(x, 2.0) if T.sum(x) > 0 else f(x, a=3.0)


@program
def recursion_on_a_python_number(x):
    def repeat(v, n):
        return v if n == 0 else repeat(T.tanh(v), n - 1)

    return repeat(x, 4)


@program
def branch_inside_a_closure(x):
    limit = T.max(x)

    def clip(v):
        if v > limit * 0.5:
            return limit * 0.5
        return v

    return T.stack([clip(x[k]) for k in range(4)])


@program
def mapped_lambda(x, y):
    rows = list(map(lambda row: row * 2.0 if T.sum(row) > 0 else row, y))
    return T.stack(rows) + x


@program
def filtered_by_a_tensor(x, y):
    rows = list(filter(lambda row: T.sum(row) > 0, y))
    return x + len(rows)


@program
def reduced_with_a_branch(x, y):
    return functools.reduce(lambda a, b: a if T.sum(a) > T.sum(b) else b, y, x)


@session
def counter_in_a_cell(jit):
    def make():
        count = 0

        @jit
        def f(x):
            nonlocal count
            count += 1
            return x * count
        return f, lambda: count

    f, count = make()
    for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        yield f(T.tensor(values)), count()


@session
def running_mean_in_a_cell(jit):
    mean = T.tensor([0.0, 0.0])

    @jit
    def f(x):
        nonlocal mean
        mean = mean * 0.9 + x * 0.1
        return x - mean

    for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        yield f(T.tensor(values)), mean


@session
def cell_changed_from_outside(jit):
    scale = 2.0

    @jit
    def f(x):
        return x * scale

    x = T.tensor([1.0, 2.0])
    yield f(x)
    scale = 3.0
    yield f(x)
    scale = T.tensor([4.0, 5.0])
    yield f(x)


@session
def list_in_a_cell(jit):
    log = []

    @jit
    def f(x):
        log.append(len(log))
        return x + len(log)

    x = T.tensor([1.0, 2.0])
    for _ in range(3):
        yield f(x), list(log)


@session
def two_closures_of_one_function(jit):
    def make(scale):
        @jit
        def f(x):
            return x * scale if T.sum(x) > 0 else x
        return f

    double, triple = make(2.0), make(3.0)
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        x = T.tensor(values)
        yield double(x), triple(x)


@session
def state_that_the_caller_passes_on(jit):
    @jit
    def step(state, x):
        total, count = state
        if T.sum(x) > 0:
            return (total + x, count + 1)
        return (total, count)

    state = (T.tensor([0.0, 0.0]), 0)
    for values in ([1.0, 2.0], [-3.0, 1.0], [5.0, 6.0]):
        state = step(state, T.tensor(values))
        yield state


@session
def memoised_helper(jit):
    @functools.lru_cache
    def factor(n):
        return 2.0 ** n

    @jit
    def f(x, n):
        return x * factor(n)

    x = T.tensor([1.0, 2.0])
    for n in (1, 2, 1):
        yield f(x, n), factor.cache_info().currsize


@session
def attribute_of_a_function(jit):
    def helper(x):
        helper.calls += 1
        return x * helper.scale

    helper.calls, helper.scale = 0, 2.0

    @jit
    def f(x):
        return helper(x)

    x = T.tensor([1.0, 2.0])
    yield f(x), helper.calls
    helper.scale = 5.0
    yield f(x), helper.calls


@session
def decorated_function(jit):
    def traced(function):
        @functools.wraps(function)
        def wrapper(*args, **keywords):
            traced.calls += 1
            return function(*args, **keywords) + 1.0
        return wrapper

    traced.calls = 0

    @jit
    @traced
    def f(x, scale=2.0):
        return x * scale if T.sum(x) > 0 else x

    for values in ([1.0, 2.0], [-1.0, -2.0]):
        yield f(T.tensor(values)), f(T.tensor(values), scale=4.0), traced.calls

"""Scope and binding: which variable a name means, and whether it has a value."""

from capture.corpus import T, attempt, program, session

COUNT = 0


@program
def bound_in_one_branch_and_used_there(x):
    if T.sum(x) > 0:
        extra = x * 2.0
        x = x + extra
    return x


@program
def bound_in_both_branches(x):
    if T.sum(x) > 0:
        scale = 2.0
    else:
        scale = x[0]
    return x * scale


@program
def unbound_after_a_branch(x):
    if T.sum(x) > 0:
        scale = 3.0
    return x * scale        # UnboundLocalError where the sum is negative


@program
def none_before_a_loop(x, y):
    last = None
    for row in y:
        if T.sum(row) > 0:
            last = row
    return x if last is None else x + last


@program
def none_until_found(x, y):
    best = None
    for row in y:
        if best is None or T.sum(row) > T.sum(best):
            best = row
    return best * T.sum(x)


@program
def number_that_becomes_a_tensor(x):
    total = 0
    for k in range(4):
        if x[k] > 0:
            total = total + x[k]
    return total * x


@program
def loop_variable_after_the_loop(x, y):
    for k in range(3):
        if T.sum(y[k]) > 2.0:
            break
    return x * k


@program
def shadowed_by_a_comprehension(x):
    k = 10.0
    parts = [x * k for k in range(3)]
    return parts[2] + k


@program
def deleted_name(x):
    scale = T.sum(x)
    if scale > 0:
        x = x * 2.0
    del scale
    try:
        return x * scale
    except NameError as error:
        return x, str(error)


@program
def swap(x):
    a, b = x[:2], x[2:]
    if T.sum(a) < T.sum(b):
        a, b = b, a
    return T.concat([a, b])


@program
def starred_unpacking(x):
    first, *rest = [x[k] for k in range(4)]
    if first > 0:
        rest = [r + first for r in rest]
    return T.stack(rest)


@program
def augmented_assignment(x):
    total = x
    for k in range(3):
        if T.sum(total) < 20.0:
            total += x * k
        else:
            total -= 1.0
    return total


@program
def global_counter(x):
    global COUNT
    COUNT += 1
    if T.sum(x) > 0:
        COUNT += 10
    return x * COUNT


@program
def nested_function_with_nonlocal(x):
    total = T.sum(x) * 0.0

    def add(v):
        nonlocal total
        if v > 0:
            total = total + v

    for k in range(4):
        add(x[k])
    return total


@program
def class_scope_inside(x):
    class Settings:
        scale = 2.0
        double = scale * 2

    return x * Settings.double if T.sum(x) > 0 else x * Settings.scale


@program
def lambda_reads_a_later_value(x):
    scale = 1.0
    f = lambda v: v * scale
    scale = 5.0
    return f(x) if T.sum(x) > 0 else f(-x)


@program
def default_argument_is_bound_early(x):
    fs = [lambda v, k=k: v + k for k in range(3)]
    return fs[0](x) if x[0] > 0 else fs[2](x)


@session
def name_error_for_a_missing_global(jit):
    @jit
    def f(x):
        if T.sum(x) > 0:
            return x
        return x * no_such_name     # noqa: F821
    for values in ([1.0, 2.0], [-1.0, -2.0], [3.0, 4.0]):
        yield attempt(f, T.tensor(values))


@session
def free_variable_bound_later(jit):
    @jit
    def f(x):
        return helper(x) if T.sum(x) > 0 else x

    def helper(x):
        return x * 7.0

    yield f(T.tensor([1.0, 2.0])), f(T.tensor([-1.0, -2.0]))

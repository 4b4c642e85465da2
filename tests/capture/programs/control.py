"""Data-dependent control flow: branches and loops on the value of a tensor."""

from capture.corpus import T, V, program, scalar


@program
def branch(x):
    if T.sum(x) > 1.0:
        x = x + 1.0
    else:
        x = x - 2.0
    return x


@program
def branch_without_else(x):
    if T.max(x) > 2.0:
        x = x / T.max(x)
    return x


@program
def three_way(x):
    total = T.sum(x)
    if total > 5.0:
        return x * 3.0
    elif total > 0.0:
        return x * 2.0
    else:
        return x


@program
def sign_by_early_return(x):
    s = T.sum(x)
    if s > 4.0:
        return s * 0.0 + 1.0
    if s < -4.0:
        return s * 0.0 - 1.0
    return s * 0.0


@program
def conditional_expression(x):
    return x * 2.0 if T.sum(x) > 0 else -x


@program
def conditional_expression_inside_a_call(x):
    return T.tanh(x if x[0] > x[1] else T.exp(-T.abs(x)))


@program
def logical_and_of_tensors(x):
    if T.sum(x) > 0 and T.max(x) > 3.5:
        return x + 10.0
    return x


@program
def logical_or_with_a_flag(x, verbose=False):
    if verbose or T.min(x) < -3.0:
        return x - 10.0
    return x


@program
def negated_condition(x):
    if not T.sum(x) > 0:
        x = -x
    return x


@program
def chained_comparison(x):
    if 0.0 < T.sum(x) < 5.0:
        return x * 10.0
    return x


@program
def and_gives_a_value(x):
    scale = T.sum(x) > 0 and 3.0
    return x * scale


@program
def halve_until_small(x):
    while T.max(T.abs(x)) > 0.5:
        x = x / 2.0
    return x


@program
def count_the_steps(x):
    steps = 0
    while T.sum(T.abs(x)) > 1.0:
        x = x * 0.5
        steps += 1
    return x, steps


@program
def loop_that_may_run_zero_times(x):
    while T.sum(x) < 0:
        x = x + 1.0
    return x


@program
def loop_with_break(x):
    for _ in range(10):
        x = x * 0.7
        if T.max(T.abs(x)) < 0.6:
            break
    return x


@program
def loop_with_continue(x, y):
    for row in y:
        if T.sum(row) < 0:
            continue
        x = x + row
    return x


@program
def loop_with_return(x, y):
    for row in y:
        x = x + row
        if T.sum(x) > 4.0:
            return x * 100.0
    return x


@program
def while_true_with_break(x):
    while True:
        x = x * 0.5
        if T.sum(T.abs(x)) < 1.0:
            break
    return x


@program
def for_else(x, y):
    for row in y:
        if T.max(row) > 1.5:
            x = x + row
            break
    else:
        x = x - 100.0
    return x


@program
def while_else(x):
    k = 0
    while k < 4:
        if T.sum(x) > 3.0:
            break
        x = x + 0.5
        k += 1
    else:
        x = x * 0.0
    return x


@program([V(1, 2), scalar(3)], [V(1, 2), scalar(0)], [V(1, 2), scalar(5)])
def range_of_a_tensor(x, n):
    for _ in range(int(n)):
        x = x * 1.5
    return x


@program([V(1, 2, 3), scalar(2)], [V(1, 2, 3), scalar(0)], [V(5, 6, 7), scalar(1)])
def index_by_a_tensor(x, i):
    return x[T.cast(i, "int64")] * 2.0


@program
def branch_in_a_loop(x, y):
    for row in y:
        if T.sum(row) > 0:
            x = x + row
        else:
            x = x * 0.5
    return x


@program
def loop_in_a_branch(x):
    if T.sum(x) > 0:
        while T.sum(x) < 8.0:
            x = x + 1.0
    else:
        x = T.abs(x)
    return x


@program
def loop_in_a_loop(x):
    i = T.sum(x) * 0.0
    while i < 3.0:
        j = i
        while j < 3.0:
            x = x + j
            j = j + 1.0
        i = i + 1.0
    return x


@program
def branches_after_each_other(x):
    if x[0] > 0:
        x = x + 1.0
    if x[1] > 0:
        x = x * 2.0
    if T.sum(x) > 10.0:
        x = x - 5.0
    return x


@program
def break_out_of_two_loops(x, y):
    found = False
    for row in y:
        for k in range(4):
            if row[k] > 1.5:
                found = True
                break
            x = x + row[k]
        if found:
            break
    return x, found


@program
def largest_by_scanning(x):
    best, at = x[0], 0
    for k in range(1, 4):
        if x[k] > best:
            best, at = x[k], k
    return best, at


@program
def bubble_sort(x):
    items = [x[k] for k in range(4)]
    for end in range(3, 0, -1):
        for k in range(end):
            if items[k] > items[k + 1]:
                items[k], items[k + 1] = items[k + 1], items[k]
    return T.stack(items)


@program
def match_on_a_python_value_around_a_tensor_branch(x, mode="half"):
    match mode:
        case "half":
            x = x / 2.0
        case _:
            x = x * 2.0
    return x if T.sum(x) > 0 else -x


@program
def collatz(x):
    n = T.floor(T.abs(T.sum(x))) + 6.0
    steps = 0
    while n > 1.0:
        half = n / 2.0
        if T.floor(half) == half:
            n = half
        else:
            n = 3.0 * n + 1.0
        steps = steps + 1
    return steps


@program
def walrus_in_the_condition(x):
    while (norm := T.sum(x * x)) > 1.0:
        x = x * 0.6
    return x, norm


@program
def branch_chooses_the_size(x):
    if T.sum(x) > 0:
        return x[:2]
    return x


@program
def branch_chooses_a_function(x):
    act = T.tanh if T.sum(x) > 0 else T.exp
    return act(x * 0.1)


@program
def both_branches_return_several(x):
    if T.sum(x) > 0:
        return x, T.sum(x)
    else:
        return -x, T.max(x)


@program
def branch_on_any_and_all(x):
    if T.any(x > 3.5):
        x = x * 0.1
    if T.all(x < 4.0):
        x = x + 1.0
    return x


@program
def branch_on_nan(x):
    z = x / (x - 0.5)
    if T.any(T.isnan(z)) or T.max(z) > 1e3:
        return x * 0.0
    return z


@program
def enumerate_with_a_branch(x, y):
    for k, row in enumerate(y):
        if T.sum(row) > k:
            x = x + row * k
    return x


@program
def zip_with_a_branch(x, y):
    total = T.sum(x) * 0.0
    for a, row in zip(x, y):
        if a > 0:
            total = total + T.sum(row)
    return total

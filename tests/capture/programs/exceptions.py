"""Exceptions: raised, caught, cleaned up after, under conditions of Python and of tensors."""

import contextlib

from capture.corpus import T, V, attempt, program, session

LOG = []


class TooLarge(Exception):
    """An exception of the user's own."""

    def __init__(self, limit):
        super().__init__(f"larger than {limit}")
        self.limit = limit


@program
def raise_under_a_tensor_condition(x):
    if T.sum(x) < 0:
        raise ValueError("the sum is negative")
    return T.sqrt(T.sum(x))


@program
def assert_about_a_tensor(x):
    assert T.min(x) > -3.0, "too small"
    return x * 2.0


@program
def own_exception_class(x):
    if T.max(x) > 3.5:
        raise TooLarge(3.5)
    return x + 1.0


@program([V(1, 2), "up"], [V(1, 2), "down"], [V(1, 2), "sideways"])
def raise_for_a_python_argument(x, direction):
    if direction not in ("up", "down"):
        raise ValueError(f"no such direction: {direction}")
    return x if direction == "up" else -x


@program
def shape_error_of_the_library_is_an_error_again(x):
    if x.shape[0] != 4:
        raise ValueError("four elements are needed")
    return x * 3.0


@program
def caught_python_error(x):
    table = {"scale": 2.0}
    try:
        scale = table["missing"]
    except KeyError:
        scale = table["scale"]
    return x * scale if T.sum(x) > 0 else x


@program
def caught_error_of_a_tensor_condition(x):
    try:
        if T.sum(x) < 0:
            raise ValueError("negative")
        y = x * 2.0
    except ValueError:
        y = x * 0.0
    return y


@program
def branch_inside_try(x):
    try:
        if T.sum(x) > 0:
            y = x * 2.0
        else:
            y = x * 3.0
    except Exception:
        y = x * 0.0
    return y


@program
def bare_except_around_a_branch(x):
    y = x * 0.0
    try:
        y = x + 1.0 if T.sum(x) > 0 else x - 1.0
    except:     # noqa: E722
        pass
    return y


@program
def suppressed_errors_around_a_branch(x):
    y = x * 0.0
    with contextlib.suppress(Exception):
        y = x + 1.0 if T.sum(x) > 0 else x - 1.0
    return y


@program
def number_of_a_tensor_or_a_default(x):
    try:
        scale = float(T.max(x))
    except Exception:
        scale = -1.0
    return x * scale


@program
def print_inside_a_bare_except(x):
    try:
        print("inside")
    except:     # noqa: E722
        LOG.append("failed")
    print("after")
    return x * (2.0 + len(LOG))


@program(not_one_graph="it prints, and is not rewritten")
def return_in_finally(x):
    try:
        print("inside")
    finally:
        return x * 3.0


@program
def print_while_an_error_is_handled(x, scale=None):
    try:
        y = x * scale["missing"]
    except TypeError:
        print("no scale")
        y = x
    return y


@program
def finally_runs(x):
    try:
        y = x * 2.0 if T.sum(x) > 0 else x
    finally:
        LOG.append("done")
    return y


@program
def finally_after_a_raise(x):
    LOG.append("begin")
    try:
        if T.sum(x) < 0:
            raise ValueError("negative")
        return x * 2.0
    finally:
        LOG.append("end")


@program
def else_of_try(x):
    try:
        y = x / 2.0
    except ZeroDivisionError:
        y = x
    else:
        y = y + 1.0 if T.sum(y) > 0 else y
    return y


@program
def raise_in_a_loop(x, y):
    for k, row in enumerate(y):
        if T.min(row) < -2.5:
            raise RuntimeError(f"row {k} is bad")
        x = x + row
    return x


@program
def state_before_a_raise(x):
    LOG.append("started")
    if T.sum(x) > 5.0:
        raise TooLarge(5)
    LOG.append("finished")
    return x


@program([V(1, 2), True], [V(1, 2), False], [V(3, 4), True])
def state_before_a_raise_for_a_python_argument(x, bad):
    LOG.append(x * 2.0)
    if bad:
        raise RuntimeError("bad")
    return x * len(LOG)


@program
def error_replaced_by_another(x):
    try:
        if T.sum(x) < 0:
            raise KeyError("inner")
        return x
    except KeyError as error:
        raise ValueError("outer") from error


@program
def division_of_python_numbers(x, zero=0):
    if T.sum(x) > 0:
        return x
    return x * (1 / zero)


INDICES = [[V(1, 2, 3), V(k, dtype="int64")] for k in ([0, 1], [0, 5], [2, 2], [-9, 0])]


@program(*INDICES)
def index_out_of_range(x, i):
    LOG.append("before")
    y = T.take(x, i)
    LOG.append("after")
    return y * 2.0


@program(*INDICES)
def index_out_of_range_is_caught(x, i):
    try:
        return T.take(x, i)
    except IndexError:
        return x[:2] * 0.0


@program(*INDICES)
def index_out_of_range_that_nobody_reads(x, i):
    T.take(x, i)
    return x * 2.0


@program(*INDICES)
def index_out_of_range_among_what_is_cut_off(x, i):
    return T.take(x, i)[:1] + 1.0


@program(*INDICES)
def index_looked_up_to_see_whether_it_exists(x, i):
    try:
        T.take(x, i)
        known = 1.0
    except IndexError:
        known = 0.0
    return x * known


@session
def state_that_a_failing_call_changes_or_not(jit):
    class Memory:
        pass

    memory = Memory()
    memory.sums, memory.count = T.tensor([0.0, 0.0, 0.0]), 0

    @jit
    def f(x, i):
        memory.count += 1
        memory.sums = memory.sums + x
        y = T.take(x, i)
        memory.sums = memory.sums * 2.0
        return y

    x = T.tensor([1.0, 2.0, 3.0])
    for k in (0, 1, 2, 1, 0, 7, 1, 2, 9, 0):
        yield attempt(f, x, T.tensor([k], "int64")), memory.sums, memory.count


@session
def missing_key_and_attribute(jit):
    class Options:
        scale = 2.0

    options, table = Options(), {}

    @jit
    def f(x):
        return x * options.scale * table["factor"]

    x = T.tensor([1.0, 2.0])
    yield attempt(f, x)
    table["factor"] = 3.0
    yield attempt(f, x)
    del Options.scale
    yield attempt(f, x)
    options.scale = 5.0
    yield attempt(f, x)


@session
def retry_until_it_works(jit):
    tries = []

    def unreliable(x):
        tries.append(len(tries))
        if len(tries) % 3:
            raise ConnectionError("try again")
        return x * 2.0

    @jit
    def f(x):
        for _ in range(5):
            try:
                return unreliable(x)
            except ConnectionError:
                continue
        return x

    for values in ([1.0, 2.0], [3.0, 4.0]):
        yield attempt(f, T.tensor(values)), list(tries)


@session
def attribute_kept_after_an_error(jit):
    class Model:
        def __init__(self):
            self.calls = 0

        def __call__(self, x):
            self.calls += 1
            if T.sum(x) < 0:
                raise ValueError("negative")
            return x * self.calls

    model = Model()
    f = jit(lambda x: model(x))
    for values in ([1.0, 2.0], [-1.0, -2.0], [3.0, 4.0]):
        yield attempt(f, T.tensor(values)), model.calls

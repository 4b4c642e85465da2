"""A Python number that changes from call to call is an input of the graph: few captures, the bits of eager code."""

import math
import threading
from collections import Counter, OrderedDict, deque

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim

X = np.array([1.5, -2.25, 3.0], np.float32)
NUMBERS = (0.5, -0.5, 1e-3, 3.0, -0.0, 0.0, 1e30, 1e300, math.inf, -7.25, 0.1, 1 / 3)
INTEGERS = (1, 2, -3, 0, 7, 100, 2**31, -2**40, 5, 12, 3, 4)


def captures(function):
    return sum(len(record.captures) for record in function.records.values())


def has_no_graph_breaks(function):
    return all(record.eager is None and record.full is None for record in function.records.values())


def exact(x):
    """What tells two results apart: type, bits, element type."""
    if isinstance(x, tn.Tensor):
        return x.dtype, x.shape, x.numpy().tobytes()
    if isinstance(x, (tuple, list)):
        return type(x), tuple(map(exact, x))
    if isinstance(x, dict):
        return dict, tuple((k, exact(v)) for k, v in x.items())
    return type(x), repr(x)


def outcome(call):
    try:
        return exact(call())
    except Exception as error:
        return type(error), str(error).partition("\n")[0]


def check(function, arguments, most=3):
    """The jitted function on each number, twice over, gives what it gives eagerly, with a few captures."""
    jitted = tn.jit(function)
    for k, number in enumerate([*arguments, *arguments]):
        given = number if isinstance(number, tuple) else (number,)
        want = outcome(lambda given=given: function(tn.asarray(X), *given))
        got = outcome(lambda given=given: jitted(tn.asarray(X), *given))
        assert got == want, f"call {k} with {number!r}"
    assert captures(jitted) <= most
    return jitted


# ---------------------------------------------------------------- arguments

@pytest.mark.parametrize("function", [
    lambda x, a: x * a,
    lambda x, a: a - x,
    lambda x, a: x + a * 2 - 1,
    lambda x, a: (x * (1 - a), a),
    lambda x, a: (x + 1, a * a, -a, abs(a)),
    lambda x, a: tn.where(x > a, x, a),
    lambda x, a: x.astype("float64") * a,
    lambda x, a: x.clip(-1, 1) * (a + 0.1) / 3,
    lambda x, a: {"loss": x.sum() * a, "rate": a},
    lambda x, a: tn.full((2,), a),
    lambda x, a: tn.tensor(a, dtype="float64") + x,
    lambda x, a: tn.tensor([1.0, 2.0]) * a,
], ids=range(12))
@pytest.mark.parametrize("numbers", [NUMBERS, INTEGERS], ids=["float", "int"])
def test_arithmetic_with_a_number_among_the_arguments(function, numbers):
    assert has_no_graph_breaks(check(function, numbers))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "complex64"])
def test_a_number_takes_the_type_of_the_tensor_it_meets(dtype):
    check(lambda x, a: x.round().astype(dtype) * a, (3.5, -0.1, 1 / 3, 1e-3) if dtype != "int32" else (3, -2, 7, 5))


def test_a_number_that_changes_its_type_keeps_it():
    function = check(lambda x, a: (x * a, a + 1), (1, 2, 3, 2.5, 4.5, True, False, 6, 7.5), most=8)
    assert has_no_graph_breaks(function)


def test_numbers_in_nested_arguments():
    check(lambda x, a: (x * a["rate"], x + a["more"][0], a["more"]),
          [{"rate": k / 7, "more": [k, "s"]} for k in range(1, 12)])


def test_integers_are_exact_beyond_64_bits():
    check(lambda x, a: (x + 1, a * a * a, a % 7, a // 3, a << 2), [10**k for k in range(3, 40)])
    check(lambda x, a: x.astype("int64") + a, [2**62, 2**62 + 1, 3, -2**63, 5, 2**70], most=4)


def test_python_s_own_errors_and_kinds():
    check(lambda x, a: (x, 1 / a), [1.0, 2.0, 0.0, 4.0, -3.0], most=4)
    check(lambda x, a: (x, a ** 0.5), [4.0, 9.0, -4.0, 2.0, -1.0], most=5)
    check(lambda x, a: (x, 2 ** a), [1, 2, -1, 3, -2, 70], most=5)
    check(lambda x, a: (x, a << 1), [1, 2, 3, 4])
    check(lambda x, a: (x, divmod(a, 3), round(a / 7, 2), round(a / 2), a // 2, a % 5), [1, 2, -3, 4, 9])


@pytest.mark.parametrize("function", [math.cos, math.exp, math.sqrt, math.log1p, math.floor, math.ceil, math.trunc,
                                      math.radians, int, float, round, abs], ids=lambda f: f.__name__)
def test_functions_of_numbers(function):
    numbers = [k / 3 for k in range(1, 20)]
    assert has_no_graph_breaks(check(lambda x, a: (x * function(a), function(a)), numbers))


def test_several_arguments_of_a_function_of_numbers():
    check(lambda x, a: x * math.pow(a, 2) + math.atan2(a, 3) + math.fmod(a, 2), NUMBERS[:8], most=4)


def test_the_extremes_and_sums_of_numbers():
    check(lambda x, a: x * min(a, 1.0) + max(0.0, a) + sum([a, a, 1]), [k / 4 for k in range(-3, 9)], most=5)


# ---------------------------------------------------------------- where the number itself is asked for

def test_a_condition_on_a_number_is_what_is_guarded():
    def function(x, step):
        return x * 2 if step % 10 == 0 else x + step
    assert captures(check(function, range(1, 60))) == 3


def test_a_number_that_becomes_a_size_an_axis_or_an_index():
    check(lambda x, n: tn.zeros(n) + n, (3, 4, 2, 3, 5), most=5)
    check(lambda x, n: x.reshape(3, 1).sum(axis=n), (0, 1, 0, 1), most=3)
    check(lambda x, n: x[n], (0, 1, 2, -1), most=5)
    check(lambda x, n: x[:n], (1, 2, 3), most=5)
    check(lambda x, n: [x * k for k in range(n)], (1, 2, 3), most=5)
    check(lambda x, n: x * [10, 20, 30][n], (0, 1, 2), most=5)


def test_a_number_that_becomes_text_or_a_key():
    check(lambda x, n: (x, f"step {n}", str(n), f"{n:03d}"), (1, 2, 3), most=5)
    check(lambda x, n: (x, {n: "here"}), (1, 2, 3), most=5)
    check(lambda x, n: x * {1: 2.0, 2: 3.0}.get(n, 0.5), (1, 2, 3), most=5)
    check(lambda x, n: x * len({n, 1}), (1, 2, 3), most=5)


def test_a_number_is_what_python_says_it_is():
    def function(x, a):
        kinds = isinstance(a, int), isinstance(a, float), isinstance(a, (int, float)), type(a) is float, a is None
        return x * a, kinds, a == "a", a != None, a in (1, 2)      # noqa: E711
    check(function, (1.0, 2.5, 3.5, 4.0), most=4)
    check(function, (1, 2, 3, 4), most=5)


def test_a_number_beside_what_is_no_number_of_python():
    from fractions import Fraction
    check(lambda x, a: (x, a + Fraction(1, 3), np.float64(2.0) * a, np.ones(2) * a, a * 2j), (1, 2, 3), most=4)


def test_a_bool_stays_a_bool():
    check(lambda x, a: (x * a, a, a and 1, not a), (True, False, True, False), most=2)


def test_nan_is_a_number_like_others():
    check(lambda x, a: x * a, (1.0, 2.0, math.nan, 3.0, math.nan), most=2)


# ---------------------------------------------------------------- state

class Box:
    pass


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 0


class Counted:
    n = 0


def attribute():
    box = Box()
    box.n = 0

    def step(x):
        box.n += 1
        return x * box.n
    return step, lambda: box.n


def slot():
    box = Slotted()

    def step(x):
        box.n += 1
        return x * box.n
    return step, lambda: box.n


def of_a_class():
    class Own(Counted):
        n = 0

    def step(x):
        Own.n += 1
        return x * Own.n
    return step, lambda: Own.n


def of_a_module():
    layer = nn.Linear(3, 3)
    layer.n = 0

    def step(x):
        layer.n += 1
        return x * layer.n
    return step, lambda: layer.n


def cell():
    n = 0

    def step(x):
        nonlocal n
        n += 1
        return x * n
    return step, lambda: n


def item_of_a_list():
    counts = [5, 0, "s"]

    def step(x):
        counts[1] += 1
        return x * counts[1]
    return step, lambda: list(counts)


def item_of_a_queue():
    counts = deque([0, 1])

    def step(x):
        counts[0] += 1
        return x * counts[0]
    return step, lambda: list(counts)


def item_of_a_dictionary():
    counts = {"n": 0, "fixed": 3, 4: "four"}

    def step(x):
        counts["n"] += 1
        return x * counts["n"] + counts["fixed"]
    return step, lambda: dict(counts)


def average():
    box = Box()
    box.total, box.count = 0.0, 0

    def step(x):
        box.total += x.sum().item()
        box.count += 1
        return x * (box.total / box.count)
    return step, lambda: (box.total, box.count)


def moving_average():
    box = Box()
    box.mean = None

    def step(x):
        loss = float(x.sum())
        box.mean = loss if box.mean is None else 0.9 * box.mean + 0.1 * loss
        return x - box.mean
    return step, lambda: box.mean


def corrected_for_its_start():
    box = Box()
    box.t, box.m = 0, tn.zeros(3)

    def step(x):
        box.t += 1
        box.m = (box.m + x) * 0.5
        return box.m / (1 - 0.5 ** box.t)
    return step, lambda: (box.t, box.m)


def length_of_a_history():
    box = Box()
    box.history = []

    def step(x):
        box.history.append(x.sum().item())
        return x * len(box.history), len(box.history) % 7 == 0
    return step, lambda: list(box.history)


def log_under_a_condition():
    box = Box()
    box.n, box.log = 0, []

    def step(x):
        box.n += 1
        if box.n % 5 == 0:
            box.log.append(box.n)
        return x * box.n
    return step, lambda: list(box.log)


def tuple_of_a_tensor_and_a_number():
    box = Box()
    box.state = tn.zeros(3), 0, "name", (1.5, None)

    def step(x):
        box.before = box.state
        h, n, name, (rate, nothing) = box.state
        box.state = h + x, n + 1, name, (rate * 0.5, nothing)
        return h * len(name), n * rate
    return step, lambda: (box.state, box.before)


STATES = [attribute, slot, of_a_class, of_a_module, cell, item_of_a_list, item_of_a_queue, item_of_a_dictionary,
          average, moving_average, corrected_for_its_start, length_of_a_history, log_under_a_condition,
          tuple_of_a_tensor_and_a_number]


@pytest.mark.parametrize("program", STATES, ids=lambda f: f.__name__)
def test_state_that_counts(program):
    (eager, of_eager), (function, of_jitted) = program(), program()
    jitted = tn.jit(function)
    for k in range(40):
        x = tn.asarray(X * (k % 5 + 1))
        want, got = eager(x), jitted(x)
        assert exact(got) == exact(want), f"call {k}"
        assert exact(of_jitted()) == exact(of_eager()), f"call {k}"
    assert captures(jitted) <= 3 and has_no_graph_breaks(jitted)


TOTAL = 0


def test_a_global_that_counts():
    @tn.jit
    def step(x):
        global TOTAL
        TOTAL += 1
        return x * TOTAL
    for k in range(TOTAL + 1, TOTAL + 40):
        assert exact(step(tn.asarray(X))) == exact(tn.asarray(X) * k)
        assert k == TOTAL
    assert captures(step) == 2


def test_what_the_user_sets_between_calls_is_seen():
    box = Box()
    box.rate = 0.5
    step = tn.jit(lambda x: x * box.rate)
    for value in (0.5, 0.25, 3, 0.125, True, 2.5, -0.0, 1e10):
        box.rate = value
        assert exact(step(tn.asarray(X))) == exact(tn.asarray(X) * value)
    del box.rate
    with pytest.raises(AttributeError):
        step(tn.asarray(X))
    box.rate = 4.0
    assert exact(step(tn.asarray(X))) == exact(tn.asarray(X) * 4.0)


def test_one_number_in_two_places_is_two_numbers():
    a, b = Box(), Box()
    a.n = b.n = 1.5
    step = tn.jit(lambda x: (x * a.n, x + b.n))
    for k in range(12):
        a.n, b.n = k * 0.1, (7.0 if k % 3 else k * 0.1)
        assert exact(step(tn.asarray(X))) == exact((tn.asarray(X) * a.n, tn.asarray(X) + b.n))
    assert captures(step) <= 3


def test_a_number_under_a_condition_on_a_tensor():
    def program():
        box = Box()
        box.n, box.rate = 0, 0.5

        def step(x, a):
            if x.sum() > 2:
                box.n += 1
                box.rate = box.rate * a
            return x * box.rate, x + box.n
        return box, step
    (eager_box, eager), (box, function) = program(), program()
    jitted = tn.jit(function)
    for k in range(30):
        x, a = tn.asarray(X * (1 if k % 3 else -1)), 1 + k / 100
        assert exact(jitted(x, a)) == exact(eager(x, a)), k
        assert vars(box) == vars(eager_box), k
        assert type(box.n) is int and type(box.rate) is float
    assert captures(jitted) <= 3 and has_no_graph_breaks(jitted)


def counted_in_a_list(box, x):
    if x.sum() > 2:
        box.list[0] += 1
        return x * 0
    return x * box.list[0]


def kept_in_a_list(box, x):
    value = x.sum().item()
    if value < box.list[1]:
        box.list[:] = [0, value]
    else:
        box.list[0] += 1
    return value


def tensors_of_a_list(box, x):
    if x.sum() > 2:
        box.tensors[0] = x
    else:
        box.tensors[1] = box.tensors[0] + 1
    return x * 2


def items_of_two_lists(box, x):
    if x.sum() > 2:
        box.both[0][1] += 1
    else:
        box.both[1][0] -= 1
    return x + box.both[0][1]


def two_lists_that_get_longer(box, x):
    if x.sum() > 2:
        box.list.append(x.sum().item())
        box.queue.append(3)
    else:
        box.both.append(x)
        box.queue.append(x.mean())
    return x * 2


def what_is_taken_again(box, x):
    if x.sum() > 2:
        box.list.append(7.0)
        box.list.pop()
    return x * box.list[-1]


@pytest.mark.parametrize("step", [counted_in_a_list, kept_in_a_list, tensors_of_a_list, items_of_two_lists,
                                  two_lists_that_get_longer, what_is_taken_again], ids=lambda f: f.__name__)
def test_items_of_a_list_under_a_condition_on_a_tensor(step):
    boxes = Box(), Box()
    for box in boxes:
        box.list, box.both, box.queue = [0, 9.0], [[0, 0], [0, 0]], deque([5], maxlen=2)
        box.tensors = [tn.asarray(X), tn.asarray(X)]
    jitted = tn.jit(step)
    for k in range(20):
        x = X * (1 if k % 3 else -1) * k
        assert exact(jitted(boxes[0], tn.asarray(x))) == exact(step(boxes[1], tn.asarray(x))), k
        assert exact([*vars(boxes[0]).values()][:2]) == exact([*vars(boxes[1]).values()][:2]), k
        assert exact([*boxes[0].queue, *boxes[0].tensors]) == exact([*boxes[1].queue, *boxes[1].tensors]), k
    assert captures(jitted) <= 3 and has_no_graph_breaks(jitted)


def test_what_else_a_tuple_holds_is_guarded():
    box, options = Box(), Box()
    options.scale = 2.0
    box.state = (tn.zeros(3), options, "ab")

    @tn.jit
    def step(x):
        h, own, text = box.state
        box.state = (h + 1, own, text)
        return h * own.scale * len(text)
    for k in range(12):
        options.scale = 2.0 if k < 6 else 5.0
        if k == 9:
            other = Box()
            other.scale = 7.0
            box.state = (box.state[0], other, "abc")
        want = box.state[0] * box.state[1].scale * len(box.state[2])
        assert exact(step(tn.asarray(X))) == exact(want), k
    box.state = [tn.zeros(3), options, "ab"]
    assert step(tn.asarray(X)).tolist() == [0.0] * 3
    box.state = (tn.zeros(3), options)
    with pytest.raises(ValueError, match="unpack"):
        step(tn.asarray(X))


def test_the_length_of_a_list_that_others_change():
    history = [1]

    @tn.jit
    def step(x):
        history.append(0)
        return x * len(history)
    for k in range(12):
        if k % 4 == 3:
            history.clear()
        assert exact(step(tn.asarray(X))) == exact(tn.asarray(X) * len(history))
    assert captures(step) == 2


def test_threads_do_not_see_each_other_s_numbers():
    step = tn.jit(lambda x, a: (x * a, a))
    for k in range(8):
        step(tn.asarray(X), k * 0.5)
    wrong = []

    def work(number):
        for k in range(300):
            a = number + k / 1000
            if exact(step(tn.asarray(X), a)) != exact((tn.asarray(X) * a, a)):
                wrong.append(a)
    threads = [threading.Thread(target=work, args=(n,)) for n in (1.0, 2.0, 3.0)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---------------------------------------------------------------- training

def scheduled(schedule):
    weight = nn.Parameter(tn.asarray(X))
    opt = optim.SGD([weight], lr=0.1)
    rates = schedule(opt)

    def step(x):
        loss = (weight * x).square().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        rates.step()
        return loss.detach()
    return step, lambda: (weight.detach(), opt.lr, rates.last_epoch, rates.get_last_lr())


SCHEDULES = {
    "exponential": lambda opt: optim.ExponentialLR(opt, 0.97),
    "cosine": lambda opt: optim.CosineAnnealingLR(opt, 50),
    "steps": lambda opt: optim.StepLR(opt, 4, 0.9),
    "function": lambda opt: optim.LambdaLR(opt, lambda e: 0.5 * (1 + math.cos(math.pi * e / 40))),
    "warm-up": lambda opt: optim.LinearLR(opt),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_inside_the_step(name):
    (eager, of_eager), (function, of_jitted) = scheduled(SCHEDULES[name]), scheduled(SCHEDULES[name])
    jitted = tn.jit(function)
    for k in range(30):
        x = tn.asarray(X / (k + 1))
        np.testing.assert_allclose(jitted(x).numpy(), eager(x).numpy(), rtol=1e-6)
        (w, rate, *rest), (w_, rate_, *rest_) = of_eager(), of_jitted()
        np.testing.assert_allclose(w_.numpy(), w.numpy(), rtol=1e-6)
        assert exact(rate_) == exact(rate) and exact(rest_) == exact(rest), k
    assert captures(jitted) <= 3 and has_no_graph_breaks(jitted)


def test_a_rate_that_is_passed_to_a_step_of_one_s_own():
    weight = nn.Parameter(tn.asarray(X))

    @tn.jit
    def step(x, rate):
        loss = (weight * x).sum()
        loss.backward()
        with tn.no_grad():
            weight.assign(weight - rate * weight.grad)
        weight.grad = None
        return loss.detach()
    expected = X.copy()
    for k in range(30):
        step(tn.ones(3), 0.1 / (k + 1))
        expected = expected - np.float32(0.1 / (k + 1)) * np.ones(3, np.float32)
        np.testing.assert_array_equal(weight.detach().numpy(), expected)
    assert captures(step) == 2


# ---------------------------------------------------------------- as an index

@pytest.mark.parametrize("function", [
    lambda x, n: x[n], lambda x, n: x[n, :, n - 4], lambda x, n: x[:, n % 3] * 2, lambda x, n: x[..., n % 2, None],
    lambda x, n: x.at[n].set(7.0) if hasattr(x, "at") else x, lambda x, n: tn.grad(lambda z: (z[n] ** 2).sum())(x),
], ids=range(6))
def test_an_index_into_a_tensor_is_part_of_the_graph(function):
    x = tn.arange(24.0).reshape(4, 3, 2)
    jitted = tn.jit(function)
    for n in (2, 3, 0, 1, -1, -4, -2, 3, 1, 4, -5, 2):
        assert outcome(lambda n=n: jitted(x, n)) == outcome(lambda n=n: function(x, n)), n
    assert captures(jitted) <= 3 and has_no_graph_breaks(jitted)


def test_a_ring_buffer_is_one_graph():
    class Ring:
        def __init__(self):
            self.rows, self.at = tn.zeros(5, 2), 0

        def add(self, x):
            self.rows[self.at] = x
            self.at = (self.at + 1) % 5
            return self.rows.sum(axis=0)
    eager, ring = Ring(), Ring()
    add = tn.jit(ring.add)
    for k in range(12):
        x = tn.tensor([float(k), 1.0])
        assert exact(add(x)) == exact(eager.add(x)) and exact(ring.rows) == exact(eager.rows) and ring.at == eager.at
    assert captures(add.__func__) <= 2


# ---------------------------------------------------------------- numbers for which Python raises

@pytest.mark.parametrize("function, numbers", [
    (lambda d: 1 // d, (1, 0, 2, 3, 0)), (lambda d: 5 % d, (1, 2, 0, 3)), (lambda d: 2.0 / d, (1.0, 0.0, 2.0, -4.0)),
    (lambda d: int(d), (1.0, math.nan, 2.0, math.inf, 5.0)), (lambda d: math.sqrt(d), (1.0, -1.0, 4.0, 9.0)),
    (lambda d: 1 << d, (1, -1, 4, -4, 2)), (lambda d: 2.0**d, (1.0, 1e4, 2.0)), (lambda d: divmod(7, d)[1], (1, 0, 4)),
    (lambda d: round(d), (1.0, math.nan, 2.0)), (lambda d: tn.ones(1, dtype=tn.uint8) * d, (1, 256, 2, -3, 3)),
], ids=range(10))
def test_an_error_that_is_caught_is_that_of_its_number(function, numbers):
    def caught(x, d):
        try:
            return x * function(d)
        except (ArithmeticError, ValueError, tn.errors.TenonError):
            return -x
    check(caught, numbers, most=len(numbers) + 1)


@pytest.mark.parametrize("function", [round, math.ceil, math.isqrt, lambda d: 1 // d, lambda d: math.log(d)])
def test_an_error_is_raised_where_nobody_reads_the_number(function):
    def unread(x, d):
        function(d)
        return x + 1
    check(unread, (1, 2, 3, 0, -4, 5, 6.5, 7.5, math.nan, 8.5), most=9)


def test_a_size_that_is_divided_by_a_difference_of_sizes():
    for function in (lambda n: 7 // (n - 3), lambda n: n // (n - 3), lambda n: (n - 3) // (n - 3), lambda n: n % (n - 3),
                     lambda n: 0 // (n - 3), lambda n: (n - 3) % (n - 3), lambda n: (2 * n - 6) // (n - 3)):
        jitted = tn.jit(lambda x, function=function: x * function(x.shape[0]))
        for size in (2, 5, 3, 4, 3, 7):
            x = tn.ones(size)
            assert outcome(lambda x=x, f=function: x * f(x.shape[0])) == outcome(lambda x=x, f=jitted: f(x)), size


def test_sizes_are_returned_beside_numbers_that_change():
    def sizes(x, a):
        y = x - a
        return x.shape, x.shape[0] * 2, y.sum()
    jitted = tn.jit(sizes)
    for size, a in ((5, 1.0), (7, 2.0), (7, 2.0), (7, 3.0), (4, 3.0), (4, 5.0)):
        x = tn.ones(size)
        assert exact(jitted(x, a=a)) == exact(sizes(x, a))


@pytest.mark.parametrize("of", [
    lambda x, n, f: tn.tensor([x.sum(), n, f]), lambda x, n, f: tn.tensor([[x.sum(), n], [x[0], f]]),
    lambda x, n, f: tn.tensor([x, x * n]), lambda x, n, f: tn.tensor([x.argmax(), n, 3]),
    lambda x, n, f: tn.tensor([x.sum() > 3, True]), lambda x, n, f: tn.tensor([x.sum(), f], dtype=tn.int32),
    lambda x, n, f: tn.tensor([f, x.sum().item()], dtype=tn.float64)])
def test_a_tensor_is_made_of_numbers_and_tensors(of):
    jitted = tn.jit(of)
    for n in range(5):
        x = tn.arange(6.0, requires_grad=True) * n
        assert repr(jitted(x, n, n * 0.1)) == repr(of(x, n, n * 0.1))
    assert len(jitted.records) == 1 and len(next(iter(jitted.records.values())).captures) == 2


@pytest.mark.parametrize("make", [Counter, lambda: OrderedDict(n=0), lambda: {"n": 0}])
def test_a_count_in_an_argument(make):
    """The length of what is held by a weak reference was asked of the reference, so that no capture ever held."""
    def step(x, counts):
        counts["n"] += 1
        return x * counts["n"]
    jitted, counts = tn.jit(step), make()
    for k in range(6):
        assert jitted(tn.ones(2), counts).tolist() == [k + 1.0] * 2
    assert counts["n"] == 6 and sum(len(record.captures) for record in jitted.records.values()) == 2


COUNTED = [
    lambda x, kept: kept["n"], lambda x, kept: x.sum() / kept["n"], lambda x, kept: kept["sum"] / kept["n"],
    lambda x, kept: math.exp(kept["sum"] / max(kept["n"], 1)), lambda x, kept: f"{kept['sum'] / kept['n']:.3f}",
    lambda x, kept: (x.size, x[1:].numel(), len(x)), lambda x, kept: x * (1 / len(x)),
    lambda x, kept: x.shape[0] / x.shape[1] * x, lambda x, kept: x @ x.T / math.sqrt(x.shape[0]),
    lambda x, kept: x[:int(x.shape[0] / 2)] * 0.5 ** x.shape[0], lambda x, kept: print(x.numel(), x[1:].size),
]


@pytest.mark.parametrize("of", COUNTED)
@pytest.mark.parametrize("count", [len, tn.Tensor.numel, lambda x: x[1:].size, lambda x: x.shape[0]])
def test_counts_of_elements_that_add_up(of, count, capsys):
    """A count that a number of elements is added to was another capture for each, and 1 / len(x) for each size."""
    def step(x, kept):
        kept["n"] += count(x)
        kept["sum"] += x.sum().item()
        return of(x, kept)
    jitted, kept, other = tn.jit(step), {"n": 1, "sum": 0.5}, {"n": 1, "sum": 0.5}
    for n in (4, 5, 3, 9, 2, 6):
        x = tn.arange(3.0 * n).reshape(n, 3) / 64
        wanted, said = step(x, other), capsys.readouterr().out
        found = jitted(x, kept)
        assert type(found) is type(wanted) and repr(found) == repr(wanted) and kept == other
        assert capsys.readouterr().out == said
    assert captures(jitted) <= 4 and has_no_graph_breaks(jitted), tn.explain(jitted)


def test_what_no_size_in_the_graph_can_do_needs_its_number():
    jitted = tn.jit(lambda x: x * 2 ** x.shape[0] + len([0] * x.shape[0] ** 2))
    for n in (4, 5, 3):
        assert jitted(tn.ones(n)).tolist() == [2.0 ** n + n * n] * n
    assert has_no_graph_breaks(jitted)


# ---------------------------------------------------------------- written to tensors, and parameters of distributions

def an_element(x, a):
    x[0] = a
    return x


def several_elements(x, a):
    x.fill_(a)
    x[1:] = a * 0.5
    x[x > 1] = a
    return x


def a_row_of_a_view(x, a):
    rows = x.reshape(1, 3)[0]
    rows[1:] = a
    return rows


@pytest.mark.parametrize("function", [an_element, several_elements, a_row_of_a_view,
                                      lambda x, a: tn.put(x, tn.tensor([1]), a),
                                      lambda x, a: x.index_fill(0, tn.tensor([1, 2]), a)],
                         ids=["element", "elements", "view", "put", "fill"])
@pytest.mark.parametrize("numbers", [NUMBERS, INTEGERS], ids=["float", "int"])
def test_a_number_that_is_written_to_a_tensor(function, numbers):
    assert has_no_graph_breaks(check(function, numbers, most=4))


def test_a_parameter_of_a_distribution():
    from tenon.distributions import Normal, Uniform, kl_divergence
    numbers = [k / 4 for k in range(1, 9)]
    for function in (lambda x, a: Normal(a, 1.0).log_prob(x), lambda x, a: Normal(x, a).entropy(),
                     lambda x, a: kl_divergence(Normal(x, a), Normal(0, 2 * a)), lambda x, a: Uniform(0, a).mean):
        assert has_no_graph_breaks(check(function, numbers))
    check(lambda x, a: Normal(x, a).log_prob(x), [1.0, 0.5, -1.0, 2.0, 0.0, -3.0, 0.25])


# ---------------------------------------------------------------- in text

def test_a_counter_in_text():
    class Layer(nn.Linear):
        calls = 0

        def __call__(self, x):
            Layer.calls += 1
            return super().__call__(x)

        def extra(self):
            return f"calls={self.calls}", str(self.calls), repr(self.calls + 1), format(self.calls, "03d")
    layer = Layer(3, 2)
    jitted = tn.jit(lambda x: (layer(x), layer.extra()))
    for k in range(1, 20):
        assert jitted(tn.asarray(X))[1] == (f"calls={k}", str(k), str(k + 1), f"{k:03d}")
    assert captures(jitted) <= 3 and has_no_graph_breaks(jitted)


KINDS_BY_TYPE = {int: "whole", float: "real"}


@pytest.mark.parametrize("ask", [
    lambda a: type(a).__name__, lambda a: KINDS_BY_TYPE.get(type(a)), lambda a: type(a) in KINDS_BY_TYPE,
    lambda a: [type(a)], lambda a: str(type(a + 1)), lambda a: type(a) is float, lambda a: list(map(type, [a])),
    lambda a: hasattr(type(a), "hex"), lambda a: type(a).__mro__[0], lambda a: type(Box()).__name__])
@pytest.mark.parametrize("values", [(0.5, 1.5, 2.5, 3.5), (1, 2, 3, 4)])
def test_the_type_of_a_number_that_changes_is_pythons(ask, values):
    jitted = tn.jit(lambda x, a: (ask(a), x * a), fullgraph=True)
    for a in values:
        found, scaled = jitted(tn.ones(1), a)
        assert found == ask(a)
        assert scaled.tolist() == [a]
    assert sum(len(record.captures) for record in jitted.records.values()) == 2


@pytest.mark.parametrize("ask", [lambda n: type(n).__name__, lambda n: KINDS_BY_TYPE.get(type(n)),
                                 lambda n: str(type(n * 2)), lambda n: type(n / 2).__name__])
def test_the_type_of_a_size_that_changes_is_pythons(ask):
    jitted = tn.jit(lambda x: (ask(x.shape[0]), x * 2), fullgraph=True)
    for n in range(2, 6):
        assert jitted(tn.ones(n))[0] == ask(n)
    assert sum(len(record.captures) for record in jitted.records.values()) == 2


@pytest.mark.parametrize("other", [np.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0], {"no": "number"}])
def test_a_number_that_changes_may_become_anything(other):
    scale = {"of": 2.0}
    jitted = tn.jit(lambda x: x * scale["of"] if type(scale["of"]) is float else other)
    assert [jitted(tn.ones(1)).item(), scale.update(of=3.0), jitted(tn.ones(1)).item()] == [2.0, None, 3.0]
    scale["of"] = other
    assert jitted(tn.ones(1)) is other

"""Eager calls by machine code: what those in Python give, with every reference given back."""

import gc
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import tenon as tn
from tenon.cpython.eager.ufunc_loops import inner_loop
from tenon.eager import backward_arrays, native_fast_path, recipes
from tenon.eager.ufunc_fast_path import PRODUCT, SHORTS
from tenon.errors import GradientError, TenonError
from tenon.graph.kernels import UserKernel, add_kernel, forget_kernel

pytestmark = pytest.mark.usefixtures("machine_code")
F32 = np.dtype(np.float32)
DIFFERENTIABLE = [short for short in SHORTS if short.op.vjp is not None and short.results[F32] == F32]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, np.inf, -np.inf, np.nan, 3e38, 2.0]


def is_native(call):
    return type(call) is type(len)


def values(dtype, *shape):
    size = int(np.prod(shape))
    return np.resize(np.array(SPECIAL, dtype), size).reshape(shape)


def seen(call, *tensors):
    """What a call gives: type, bits and gradients, or the error."""
    for x in tensors:
        x.grad = None
    try:
        with np.errstate(all="raise"):
            out = call(*tensors)
        if out.requires_grad:
            out.backward(tn.ones_like(out))
    except TenonError as error:
        return str(error).splitlines()[0]
    found = [out.numpy(), *[None if x.grad is None else x.grad.numpy() for x in tensors]]
    return type(out), out.requires_grad, [x if x is None else (x.dtype, x.shape, x.tobytes()) for x in found]


def test_most_elementwise_operators_have_machine_code():
    missing = {short.op.name for short in SHORTS if not is_native(short.op.quick)}
    assert len(missing) < len(SHORTS) / 5 and not missing & {"add", "multiply", "exp", "less", "negative"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("short", SHORTS, ids=lambda short: short.op.name)
def test_an_operator_has_the_bits_that_it_has_in_python(short, dtype):
    op = short.op
    if not is_native(op.quick):
        pytest.skip("in Python only")
    shapes = [((), ()), ((11,), (11,)), ((3, 5), ()), ((), (2, 1)), ((0, 3), (0, 3)), ((2, 3), (3,)), ((70, 70), (70, 70))]
    for pair in shapes:
        for gradient in (False, True):
            given = [tn.tensor(np.roll(values(dtype, *shape), k), requires_grad=gradient)
                     for k, shape in enumerate(pair[:op.arity])]
            assert seen(op.quick, *given) == seen(short.call, *given)


@pytest.mark.parametrize("short", [short for short in SHORTS if short.op.arity == 2], ids=lambda short: short.op.name)
def test_the_sign_of_no_number_is_that_which_numpy_gives(short):
    # The loops of fmin and fmax take their way by the strides, which are 0 where there are no axes.
    nan = np.array(np.nan, np.float32)
    for x, y in ((nan, -nan), (-nan, nan), (-nan, -nan)):
        for shape in (lambda v: v, lambda v: v.reshape(1), lambda v: np.repeat(v, 6)[::3][:1], lambda v: np.repeat(v, 3)):
            given = [tn.Tensor(shape(np.asarray(v))) for v in (x, y)]
            assert seen(short.op.quick, *given) == seen(short.call, *given)


@pytest.mark.parametrize("call", [
    lambda x: x + 2, lambda x: 2.0 * x, lambda x: x / 0, lambda x: 1 - x, lambda x: x ** 2, lambda x: x * 0.0,
    lambda x: x * -0.0, lambda x: x + True, lambda x: x * 1j, lambda x: x + np.float32(1), lambda x: x < 1,
    lambda x: x[::2] + x[1::2], lambda x: x.reshape(2, 2).T * x.reshape(2, 2), lambda x: x + x[:3], lambda x: -x,
    lambda x: tn.add(y=x, x=2), lambda x: tn.add(x, x, x), lambda x: tn.exp(x, y=3), lambda x: tn.add(x),
    lambda x: tn.add(1, 2), lambda x: x == x, lambda x: tn.sum(x, axis=0), lambda x: tn.clip(x, -1, 1),
    lambda x: 2 ** 70 * x, lambda x: tn.maximum(x, tn.ones(4, dtype="int64"))])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "bfloat16", "complex64"])
def test_whatever_is_called_gives_what_it_gives_in_python(call, dtype):
    x = tn.tensor([1, 2, 3, 0]).astype(dtype).detach()
    x.requires_grad_(x.dtype.is_differentiable)
    found = [seen(call, x), seen(call, x)]
    native_fast_path.give_python(SHORTS, PRODUCT)
    try:
        expected = seen(call, x)
    finally:
        native_fast_path.give_native(SHORTS, PRODUCT)
    assert found == [expected] * 2


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bfloat16"])
@pytest.mark.parametrize("shapes", [((4, 4), (4, 4)), ((1, 7), (7, 1)), ((3, 5), (5, 2)), ((2, 3), (2, 3)), ((3,), (3,)),
                                    ((0, 3), (3, 2)), ((3, 0), (0, 2)), ((2, 3, 4), (4, 5)), ((60, 70), (70, 80))])
def test_a_product_has_the_bits_that_it_has_in_python(shapes, dtype):
    random = np.random.default_rng(0)
    x, y = (tn.tensor(random.standard_normal(shape) * 3).astype(dtype).detach() for shape in shapes)
    for given in ((x, y), (x.mT if x.ndim > 1 else x, y)):
        for flag in (False, x.dtype.is_differentiable):
            for tensor in given:
                tensor.requires_grad_(flag)
            assert seen(lambda x, y: x @ y, *given) == seen(PRODUCT.call, *given)


def test_a_product_is_cast_where_that_is_asked_for():
    x = tn.ones((3, 3))
    with tn.autocast():
        assert (x @ x).dtype is tn.bfloat16
    assert (x @ x).dtype is tn.float32 and (x @ np.ones((3, 1), np.float32)).tolist() == [[3.0]] * 3


def test_recipes_call_machine_code_and_give_what_numpy_gives():
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((3, 5)).astype(np.float32) for _ in range(2))
    given = [(a, b), (a, a[0]), (a, np.float32(2)), (a.T, b.T), (a, b.astype(np.float64)), (a, np.array(0.5, np.float32)),
             (a, 2.0), (a[:0], b[:0])]
    called = recipes.natives[np.add]
    assert is_native(called) and called is not np.add
    for pair in given:
        found, expected = called(*pair), np.add(*pair)
        assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    out = np.empty_like(a)
    assert called(a, b, out) is out and out.tobytes() == (a + b).tobytes()
    with pytest.raises(ValueError, match="broadcast"):
        called(a, b[:2])
    assert not np.isfinite(recipes.natives[np.log](np.array([0.0, np.nan], np.float32))).any()


def test_recipes_that_were_written_before_call_it_too():
    x = tn.tensor(np.linspace(-2, 2, 12).astype(np.float32).reshape(3, 4), requires_grad=True)
    natives, (fuser,) = recipes.natives.copy(), recipes.fusers
    recipes.natives.clear()
    recipes.fusers.clear()

    def step():
        x.grad = None
        y = (tn.softmax(tn.silu(x), axis=1) * tn.logsumexp(x, axis=0)).sum()
        y.backward()
        return y.numpy().tobytes(), x.grad.numpy().tobytes()
    expected = [step() for _ in range(6)][-1]
    recipes.use_natives(natives, fuser)
    assert [step() for _ in range(3)] == [expected] * 3


def test_nothing_is_recorded_where_nobody_asks():
    x = tn.ones(3, requires_grad=True)
    with tn.no_grad():
        assert not (x + x).requires_grad
        with tn.enable_grad():
            assert (x + x).requires_grad
    assert not (x < x).requires_grad and not (tn.ones(3) * 2).requires_grad


def test_captures_and_batches_go_the_way_of_python():
    x = tn.tensor([1.0, 2.0, 3.0])
    f = lambda x: tn.exp(x * 2.0) - x + 1.0
    expected = f(x).numpy()
    np.testing.assert_allclose(tn.jit(f)(x).numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(tn.vmap(f)(x).numpy(), expected)


def test_a_kernel_of_the_user_is_asked():
    kernel = UserKernel(tn.add, "cpu", lambda x, y: x + y + 1, lambda x, y: True)
    add_kernel(kernel)
    try:
        assert (tn.ones(2) + tn.ones(2)).tolist() == [3.0, 3.0]
    finally:
        forget_kernel(kernel)
    assert (tn.ones(2) + tn.ones(2)).tolist() == [2.0, 2.0]


def test_the_tape_keeps_the_state_that_a_call_saw():
    x, y = tn.tensor([2.0], requires_grad=True), tn.nn.Parameter(tn.tensor([5.0]))
    z = x * y
    with tn.no_grad():
        x.assign(tn.tensor([7.0]))
    z.sum().backward()
    assert type(z) is tn.Tensor and (x.grad.tolist(), y.grad.tolist()) == ([5.0], [2.0])


def test_an_error_names_the_line_of_the_user():
    with pytest.raises(TenonError) as raised:
        tn.ones(3) + tn.ones(4)     # this line
    assert "this line" in str(raised.value)


def test_every_reference_is_given_back():
    x, y, p = tn.ones(10), tn.ones(10), tn.ones(10, requires_grad=True)
    held = [x, y, p, x.own, p.own, x.payload, None, True, False, x.payload.dtype, tn.Tensor, type(x.own), tn.add, 0,
            2.5, np.dtype(bool), native_fast_path.NO_ATTRS, native_fast_path.TapeNode, native_fast_path.Saved, np.ndarray]
    number, m = 2.5, tn.ones((3, 3), requires_grad=True)

    def run():
        for k in range(1000):
            x + y, x * number, number - x, p + y, p * (k % 10), p * p, tn.exp(p), -x, x < y, tn.add(x, 1.5), tn.sum(x, axis=0), m @ m
    run()
    gc.collect()
    before = [sys.getrefcount(o) for o in held]
    run()
    gc.collect()
    after = [sys.getrefcount(o) for o in held]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), list(zip(before, after, strict=True))


def growth(run, few, many):
    """The bytes that are held after many calls, beyond those after a few."""
    run(few)
    tracemalloc.start()
    try:
        run(few)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        run(many)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_a_million_calls_leave_nothing():
    x, p = tn.ones(10), tn.ones(10, requires_grad=True)

    def run(count):
        for _ in range(count // 4):
            x + x, p * x, x * 2.0, tn.exp(p)
    assert growth(run, 1000, 1_000_000) < 20_000


# ---------------------------------------------------------------- backward

def gradients(program, *tensors):
    """The gradients of tensors, the second time that they are asked for, and by Python."""
    found = []
    before = vars(backward_arrays.ways).copy()
    for way in (before, before, vars(backward_arrays.BackwardEngine())):
        for x in tensors:
            x.grad = None
        vars(backward_arrays.ways).update(way)
        try:
            program(*tensors)
        finally:
            vars(backward_arrays.ways).update(before)
        found.append([None if x.grad is None else x.grad.numpy().tobytes() for x in tensors])
    return found[1:]


PROGRAMS = {
    "chain": lambda x, y: (x * y + x).sum().backward(),
    "a tensor twice": lambda x, y: (x * x + x * x).sum().backward(),
    "an end twice": lambda x, y: [z := x * y, (z + z * z).sum().backward()],
    "numbers": lambda x, y: (2.0 * x / 3 - 1 + x * 0.5 + 7 / y).sum().backward(),
    "zero, which has no program": lambda x, y: (x * 0.0 + y * -0.0).sum().backward(),
    "many numbers": lambda x, y: sum(x * (0.1 * k) for k in range(40)).sum().backward(),
    "unary": lambda x, y: tn.exp(-tn.tanh(x) * tn.sqrt(y)).sum().backward(),
    "what has several uses": lambda x, y: tn.divide(tn.power(x, y), tn.hypot(x, y)).sum().backward(),
    "broadcast": lambda x, y: (x.reshape(-1, 1) * y[:1] + x[:1]).sum().backward(),
    "seed": lambda x, y: (x * y).backward(tn.ones((11,))),
    "a seed that lies elsewhere": lambda x, y: (x * y).backward(tn.tensor(np.arange(22, dtype=x.dtype.numpy))[::2]),
    "views": lambda x, y: (x[::2] * y[1::2].mean() + x[::2]).sum().backward(),
    "no axes": lambda x, y: (x.sum() * y.sum() + x.sum()).backward(),
    "a composite between": lambda x, y: (tn.softmax(x * y, axis=0) * y + tn.where(x < y, x, y * 2.0)).sum().backward(),
    "to be differentiated again": lambda x, y: (x * y * x).sum().backward(create_graph=True),
    "twice": lambda x, y: [z := (x * y).sum(), z.backward(retain_graph=True), z.backward()],
    "many elements": lambda x, y: (tn.concatenate([x] * 500) * tn.concatenate([y] * 500) * 2.0).sum().backward(),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_a_gradient_has_the_bits_that_it_has_in_python(name, dtype, wanted):
    random = np.random.default_rng(0)
    x, y = (tn.tensor(random.uniform(0.5, 2, 11).astype(dtype), requires_grad=flag) for flag in wanted)
    try:
        found, expected = gradients(PROGRAMS[name], x, y)
    except TenonError:
        assert not (x.requires_grad and y.requires_grad)        # nothing that the program reads has a gradient
        return
    assert found == expected and any(found)


@pytest.mark.parametrize("short", DIFFERENTIABLE, ids=lambda short: short.op.name)
def test_an_operator_has_the_gradient_that_it_has_in_python(short):
    op = short.op
    given = [tn.tensor(np.roll(values(np.float32, 11), k), requires_grad=True) for k in range(op.arity)]

    def program(*given):
        op(*given).backward(tn.tensor(np.linspace(-2, 2, 11).astype(np.float32)))
    found, expected = gradients(program, *given)
    assert found == expected


def test_no_elements_have_a_gradient_of_none():
    x = tn.ones((0, 3), requires_grad=True)
    (x * x + x).sum().backward()
    assert x.grad.shape == (0, 3)


def test_a_gradient_does_not_change_what_others_hold():
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    seed = tn.tensor([1.0, 1.0])
    (x + x + x).backward(seed)
    first = x.grad
    (x * 2.0 + x).backward(seed)
    assert (seed.tolist(), first.tolist(), x.grad.tolist()) == ([1.0] * 2, [3.0] * 2, [6.0] * 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_on_the_way_comes_out(error):
    def rule(kept, g):
        raise error("here")
    f = tn.custom_vjp(lambda x: x * 2.0)
    f.defvjp(lambda x: (x * 2.0, None), rule)
    x = tn.ones(3, requires_grad=True)
    with pytest.raises(error, match="here"):
        (f(x * 3.0) + x).sum().backward()


def test_a_tape_that_was_released_is_not_gone_through_again():
    x = tn.ones(3, requires_grad=True)
    z = (x * x).sum()
    y = z * 2.0
    z.backward()
    with pytest.raises(GradientError, match="a second time"):
        y.backward()
    kept = (tn.softmax(x, axis=0) * x).sum()
    kept.backward(retain_graph=True)
    kept.backward()
    with pytest.raises(GradientError, match="a second time"):
        kept.backward()


def test_a_tape_is_in_the_order_in_which_it_was_made():
    x = tn.ones(3, requires_grad=True)
    y = x * 2.0
    z = (tn.exp(y) + y) * (x + y) - tn.softmax(y, axis=0)
    tape = z.node.tape()
    numbers = [node.number for node in tape]
    assert numbers == sorted(set(numbers)) and tape[-1] is z.node and len(tape) == 7 and y.node in tape


def test_many_gradients_leave_nothing():
    x, y = tn.ones(10, requires_grad=True), tn.ones(10)

    def run(count):
        for _ in range(count):
            x.grad = None
            ((x * y + x) * 2.0 - tn.exp(x) / x).sum().backward()
    assert growth(run, 100, 10_000) < 20_000


def test_threads_do_not_meet():
    wrong = []

    def work(k):
        x = tn.full((10,), float(k), requires_grad=k % 2 == 0)
        found = [(x * 2.0 + x).tolist() == [3.0 * k] * 10 and (x + n).tolist()[0] == k + n for n in range(3000)]
        wrong.append(not all(found))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 4


def test_few_calls_load_no_compiler_and_many_do():
    program = f"""
import sys, threading
import tenon as tn
x = tn.ones(3)
for _ in range(100):
    x = x + 0.5
assert not any(name.startswith("llvmlite") for name in sys.modules), "loaded"
for _ in range({native_fast_path.MIN_CALLS}):
    x + x
for thread in threading.enumerate():
    if thread.name == "tenon-compile":
        thread.join()
assert type(tn.add.quick) is type(len), tn.add.quick
assert (x + x).tolist() == [102.0] * 3
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_function_that_was_held_before_asks_for_machine_code_once():
    program = """
import threading
import tenon as tn
begun, start = [], threading.Thread.start
threading.Thread.start = lambda thread: (begun.append(thread.name), start(thread))
add, x = tn.Tensor.__add__, tn.ones(3)
for _ in range(5100):
    y = add(x, x)
print(begun.count("tenon-compile"), y.numpy().sum())
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1", "6.0"]


def test_a_ufunc_that_is_not_as_numpy_makes_them_has_no_loop():
    assert inner_loop(np.frompyfunc(lambda x: x, 1, 1), "ff") is None
    assert inner_loop(np.add, "fff") is not None and inner_loop(np.add, "ffd") is None


def test_calls_stay_in_python_where_no_thread_can_be_started(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        patch.setattr(native_fast_path, "MIN_CALLS", 0)
        native_fast_path.give(SHORTS, PRODUCT)        # the first call asks for machine code
        assert tn.tensor([1.0, 2.0]).exp().shape == (2,)
    assert not is_native(tn.exp.quick)

"""Eager calls: what is remembered between calls changes no result and no message; heavy calls run machine code."""

import math
import warnings
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest

import tenon as tn
from tenon.eager import compiled_ops, tier_up
from tenon.eager.call_table import cached_calls
from tenon.errors import TenonError
from tenon.graph.interpret import interpret
from tenon.graph.kernels import KERNELS
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.normalization import batch_norm_train
from tenon.types import TensorType, as_dtype


def twice(call):
    """The result of the second call, which finds what the first left."""
    call()
    return call()


def test_a_remembered_call_gives_the_same_result():
    x = tn.tensor([1.0, 2.0])
    np.testing.assert_array_equal(twice(lambda: x + x).numpy(), [2.0, 4.0])
    np.testing.assert_array_equal(twice(lambda: x * 2).numpy(), [2.0, 4.0])
    assert twice(lambda: x.sum()).shape == ()


def test_numbers_of_another_kind_are_another_call():
    x = tn.tensor([1, 2])
    assert [twice(lambda n=n: x * n).dtype for n in (2, 2.0, True, 2j)] == [tn.int64, tn.float32, tn.int64, tn.complex64]


@pytest.mark.parametrize("native", [False, True])
def test_a_pair_is_no_argument_with_its_name(native, request):
    request.getfixturevalue("machine_code") if native else None
    x = tn.ones(2, 3)
    for _ in range(5):
        tn.sum(x, axis=0)
    with pytest.raises(TenonError):
        tn.sum(x, ("axis", 0))


def test_equal_attributes_of_other_types_are_another_call():
    x = tn.ones((2, 3))
    twice(lambda: x.sum(axis=1))
    with pytest.raises(TenonError):
        x.sum(axis=True)
    assert math.copysign(1, tn.full((), 0.0).item()) == 1 and math.copysign(1, tn.full((), -0.0).item()) == -1


@pytest.mark.parametrize("wrong", [lambda: tn.ones(2) + tn.ones(3), lambda: tn.ones((2, 3)) @ tn.ones((2, 3)),
                                   lambda: tn.tensor([1], dtype="uint8") + 300, lambda: -tn.tensor([True])])
def test_errors_are_the_same_again(wrong):
    messages = []
    for _ in range(3):
        with pytest.raises(TenonError) as caught:
            wrong()
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


def test_a_number_that_does_not_fit_after_one_that_did():
    x = tn.tensor([1], dtype="uint8")
    twice(lambda: x + 3)
    with pytest.raises(TenonError, match="does not fit"):
        x + 300


def test_a_kernel_registered_later_is_used():
    x = tn.ones(3)
    twice(lambda: tn.exp(x))
    kernel = tn.kernel(tn.exp)(lambda a: np.full_like(a, 7.0))
    try:
        np.testing.assert_array_equal(tn.exp(x).numpy(), [7.0] * 3)
    finally:
        from tenon.graph.kernels import KERNELS, forget_kernel
        forget_kernel(KERNELS[tn.exp, "cpu"][0])
    assert kernel is not None
    assert tn.exp(x).numpy()[0] == pytest.approx(math.e)


def test_recorded_calls_keep_what_they_saw():
    x = tn.tensor([2.0], requires_grad=True)
    for _ in range(2):
        y = x * 3.0
        z = y * y
        y += 1.0
        x.grad = None
        z.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [36.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("call", [lambda x: x * 1e300, lambda x: -1e300 + x, lambda x: tn.where(x == 1, x, -1e300),
                                  lambda x: tn.jit(lambda x: x * 1e300)(x), lambda x: tn.full_like(x, 1e300)])
def test_a_number_beyond_a_type_is_infinite_and_nobody_is_told(call, dtype):
    x = tn.tensor([2, -2], dtype=dtype)
    with np.errstate(all="raise"):
        found = [call(x).numpy() for _ in range(2)]
    assert all(np.isinf(y).all() for y in found)


def test_overflow_is_silent_in_every_thread():
    failures = []

    def run():
        try:
            assert np.isinf(twice(lambda: tn.exp(tn.tensor([1e10]))).numpy()).all()
        except Exception as error:      # a warning is an error in the tests
            failures.append(error)
    threads = [Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


# ---------------------------------------------------------------- heavy calls

def arrays_of(*shapes):
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


LARGE = {
    "conv": (lambda x, w: tn.nn.functional.conv2d(x, w, padding=1), (8, 16, 16, 16), (16, 16, 3, 3)),
    "max_pool": (lambda x, w: tn.nn.functional.max_pool2d(x, 2) * w, (8, 16, 48, 48), (1,)),
    "layer_norm": (lambda x, w: tn.nn.functional.layer_norm(x, 512, w), (256, 512), (512,)),
    "gelu": (lambda x, w: tn.gelu(x.T) * w, (31, 331), (1,)),
    "erfinv": (lambda x, w: tn.erf(x * w) + tn.erfinv(x.sigmoid()), (64, 333), (333,)),
    "index_add": (lambda x, u: tn.index_add(x, tn.arange(1000) % 37, u, axis=1), (300, 64), (300, 1000)),
    "attention": (lambda q, k: tn.scaled_dot_product_attention(q, k, k), (4, 128, 64), (4, 128, 64)),
}


def without_machine_code(monkeypatch):
    """References from now on, also where what is remembered would take machine code sooner or later."""
    for module in (compiled_ops, tier_up):
        monkeypatch.setattr(module, "config", lambda: SimpleNamespace(backend="reference"))
    cached_calls.clear()


@pytest.mark.parametrize("name", LARGE)
def test_a_heavy_call_agrees_with_the_reference(name, monkeypatch):
    function, *shapes = LARGE[name]

    def results():
        xs = [tn.tensor(a, requires_grad=True) for a in arrays_of(*shapes)]
        y = function(*xs)
        (y * y).sum().backward()
        with tn.no_grad():
            return [y, function(*xs), *(x.grad for x in xs)]
    compiled = []
    make = compiled_ops._program
    monkeypatch.setattr(compiled_ops, "_program", lambda *key: compiled.append(key[0].name) or make(*key))
    found = twice(results)
    assert compiled
    compiled.clear()
    without_machine_code(monkeypatch)
    for one, expected in zip(found, results(), strict=True):
        largest = np.abs(expected.numpy()).max()        # what sums are rounded to, where their terms cancel
        np.testing.assert_allclose(one.numpy(), expected.numpy(), rtol=2e-4, atol=max(2e-3, 2e-6 * largest))
    assert not compiled


def test_a_long_permutation_is_machine_code_with_the_numbers_of_the_reference(monkeypatch):
    def order():
        return tn.randperm(20_011, generator=tn.random.Generator(seed=3)).numpy()
    found = twice(order)
    without_machine_code(monkeypatch)
    np.testing.assert_array_equal(found, order())


def test_a_function_of_elements_is_one_program_for_all_shapes(monkeypatch):
    compiled_ops._program.cache_clear()
    for shape in ((100, 101), (10_007,), (3, 43, 97)):
        x = tn.tensor(arrays_of(shape)[0])
        np.testing.assert_array_equal(tn.erf(x).numpy(), twice(lambda x=x: tn.erf(x)).numpy())
    assert compiled_ops._program.cache_info().currsize == 1


# of images and of filters, and the step: what is one is another program
CONVOLUTIONS = {
    "a tap": [((4, 64, 8, 8), (96, 64, 1, 1), 1), ((2, 48, 16, 31), (72, 48, 1, 1), 1), ((9, 2, 3, 40), (700, 2, 1, 1), 1)],
    "windows": [((4, 16, 12, 8), (32, 16, 3, 3), 1), ((2, 24, 16, 31), (8, 24, 3, 3), 1), ((6, 2, 9, 40), (70, 2, 3, 3), 1)],
    "one image": [((1, 32, 12, 20), (64, 32, 3, 3), 1), ((1, 24, 31, 5), (52, 24, 3, 3), 1)],
    "steps": [((4, 32, 17, 17), (16, 32, 3, 3), 2), ((2, 64, 17, 17), (24, 64, 3, 3), 2)],
    "double": [((4, 64, 8, 8), (96, 64, 1, 1), 1), ((2, 48, 16, 31), (72, 48, 1, 1), 1)],
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_other_sizes_are_one_program(name):
    compiled_ops._program.cache_clear()
    for images, filters, step in CONVOLUTIONS[name]:
        x, w = (tn.tensor(a.astype(np.float64 if name == "double" else np.float32), requires_grad=True)
                for a in arrays_of(images, filters))
        attrs = {"stride": (step, step), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}

        def results(x=x, w=w, step=step):
            x.grad = w.grad = None
            y = tn.nn.functional.conv2d(x, w, stride=step, padding=1)
            (y * y).sum().backward()
            return y, x.grad, w.grad
        y, *gradients = twice(results)
        expected = conv.ref(x.numpy(), w.numpy(), **attrs)
        close(y, expected)
        close(gradients[0], conv_input_grad.ref(2 * expected, w.numpy(), sizes=images[2:], **attrs))
        close(gradients[1], conv_weight_grad.ref(x.numpy(), 2 * expected, kernel=filters[2:], **attrs))
    assert compiled_ops._program.cache_info().currsize == 3


PLANES = {
    "norm": lambda x: tn.nn.functional.batch_norm(x, None, None, x.mean((0, 2, 3)), x.mean((0, 2, 3)), training=True),
    "pool": lambda x: tn.nn.functional.max_pool2d(x, 3, 1, 1),
}


@pytest.mark.parametrize("name", PLANES)
def test_planes_of_one_size_are_one_program_however_many(name, monkeypatch):
    shapes = [(8, 48, 32, 32), (3, 110, 32, 32), (90, 3, 32, 32)]

    def results():
        found = []
        for a in arrays_of(*shapes):
            x = tn.tensor(a, requires_grad=True)
            y = PLANES[name](x)
            (y * y).sum().backward()
            found += y, x.grad
        return found
    asked, make = [], compiled_ops._program
    monkeypatch.setattr(compiled_ops, "_program", lambda *key: asked.append(key) or make(*key))
    found = twice(results)
    assert len({op for op, *_ in asked}) == len(set(asked)) < len(asked)
    without_machine_code(monkeypatch)
    for one, expected in zip(found, results(), strict=True):
        close(one, expected.numpy())


def close(found, expected):
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=4e-6 * np.abs(expected).max())


def test_large_windows_and_groups_have_programs_of_their_own():
    attrs = {"stride": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1)}
    def types(*shapes):
        return [TensorType(as_dtype("f32"), shape) for shape in shapes]
    for images, filters, groups, shared in (((1, 64, 16, 16), (64, 64, 3, 3), 1, True),
                                            ((8, 64, 16, 16), (64, 64, 3, 3), 1, False),
                                            ((1, 64, 16, 16), (64, 1, 3, 3), 64, False)):
        given = types(images, filters)
        assert (conv.any_sizes(given, attrs | {"groups": groups})[0] != given) == shared


def test_norms_of_small_planes_have_programs_of_their_own():
    for shape, shared in (((256, 64, 4, 4), False), ((256, 64), False), ((256, 64, 8, 8), True)):
        types = [TensorType(as_dtype("f32"), x) for x in (shape, (64,), (64,))]
        assert (batch_norm_train.any_sizes(types, {"eps": 1e-5})[0] != types) == shared


def test_an_index_out_of_range_of_a_heavy_call_is_told():
    x, updates = tn.zeros((40, 1000)), tn.ones((300, 1000))
    for _ in range(4):
        with pytest.raises(TenonError, match="index 42 is out of range"):
            tn.index_add(x, tn.arange(300) // 7, updates)


def test_what_is_only_set_compiles_nothing(monkeypatch):
    monkeypatch.setattr(compiled_ops, "_program", None)
    x = tn.zeros((300, 1000))
    for _ in range(4):
        x[tn.arange(300)] = tn.ones((300, 1000))


def test_a_small_call_compiles_nothing(monkeypatch):
    monkeypatch.setattr(compiled_ops, "_program", None)
    x, w = map(tn.tensor, arrays_of((1, 2, 5, 5), (2, 2, 3, 3)))
    tn.nn.functional.conv2d(x, w)


def test_one_node_is_the_call():
    types = [TensorType(as_dtype("f32"), shape) for shape in ((4, 3), (3,))]
    graph = compiled_ops.one_node(tn.add, types, {})
    a, b = arrays_of((4, 3), (3,))
    np.testing.assert_array_equal(interpret(graph, [a, b])[0], a + b)


# ---------------------------------------------------------------- elementwise calls, which take a fast path

def test_numbers_that_are_equal_and_not_the_same():
    x = tn.tensor([-1.0, 1.0])
    for zero in (0.0, -0.0, 0, False):
        np.testing.assert_array_equal(np.signbit(twice(lambda z=zero: x * z).numpy()),
                                      np.signbit(np.array([-1, 1], np.float32) * zero))
    assert [twice(lambda n=n: tn.tensor([3]) + n).dtype for n in (1, 1.0, True)] == [tn.int64, tn.float32, tn.int64]


@pytest.mark.parametrize("call", [lambda x: x > 1, lambda x: 1 - x, lambda x: -x, lambda x: x / 3, lambda x: 3 / x,
                                  lambda x: x + x.reshape(3, 1), lambda x: x * tn.tensor(2), lambda x: x[0] * x[1],
                                  lambda x: x.reshape(3, 1) @ x.reshape(1, 3), lambda x: x.reshape(3, 1) @ x.reshape(3, 1),
                                  lambda x: tn.add(y=x, x=2), lambda x: x + np.float32(1), lambda x: x == x])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16", "bool", "complex64"])
def test_the_fast_path_is_the_slow_path(call, dtype, monkeypatch):
    x = tn.tensor([1, 2, 3], dtype="int64").astype(dtype)
    x.requires_grad_(x.dtype.is_differentiable)
    seen = []
    for _ in range(2):
        try:
            out = twice(lambda: call(x))
            out = [out, [] if out.node is None or not out.requires_grad else gradient(out, x)]
        except TenonError as error:
            out = str(error)
        seen.append(out)
        monkeypatch.setitem(KERNELS, "any", "kernel")       # with one, every call is made in full
    short, long = seen
    assert type(short) is type(long) and (not isinstance(short, str) or short == long)
    if not isinstance(short, str):
        assert (short[0].type, short[0].requires_grad) == (long[0].type, long[0].requires_grad)
        np.testing.assert_array_equal(short[0].numpy(), long[0].numpy())
        np.testing.assert_array_equal(*[np.asarray(x) for x in (short[1], long[1])])


def gradient(out, x):
    x.grad = None
    out.backward(tn.ones_like(out))
    return x.grad.numpy()


def test_the_tape_keeps_the_state_that_a_call_saw():
    x, y = tn.tensor([2.0], requires_grad=True), tn.tensor([5.0])
    z = x * y
    with tn.no_grad():
        x.assign(tn.tensor([7.0]))
        y += 1
    y.requires_grad_()
    z.sum().backward()
    assert x.grad.tolist() == [5.0] and y.grad is None


@pytest.mark.parametrize("number", [np.float64(0.5), np.complex128(0.5j)])
def test_scalars_of_numpy_that_are_numbers_of_python_promote_as_those_do(number):
    plain = number.item()
    for x in (tn.arange(3), tn.ones(2), tn.ones(2, dtype=tn.bfloat16)):
        for f in (lambda x, y: x * y, lambda x, y: y + x):
            for found in (f(x, number), tn.jit(f)(x, number)):
                assert found.dtype == f(x, plain).dtype


def test_to_converts_and_knows_one_device():
    x, other = tn.ones(2), tn.ones(1, dtype=tn.float64)
    assert [x.to(*given).dtype for given in ((tn.int32,), ("cpu",), ("cpu", "f16"), (other,), (None,))] == [
        tn.int32, tn.float32, tn.float16, tn.float64, tn.float32]
    assert tn.jit(lambda x: x.to("float16").cpu())(x).dtype == tn.float16
    for move in (x.to, tn.nn.Linear(2, 2).to, tn.jit(lambda device: x.to(device))):
        with pytest.raises(tn.errors.ArgumentError, match="'cuda' is no element type, and no device"):
            move("cuda")
    assert tn.nn.Linear(2, 2).to("cpu").to(dtype="float64").weight.dtype == tn.float64


@pytest.mark.parametrize(("data", "dtype"), [(1e300, "float32"), ([1e300, -1e300], "float16"), (1e300, "bfloat16"),
                                             (np.array([1e300]), "int32"), ([np.nan, -1e300], "int64"), (300.0, "uint8"),
                                             (1e300, None), ([1e300 + 1j], "complex64"), ([2 + 1j], "float32")])
def test_numbers_beyond_a_type_become_what_a_cast_makes_of_them_and_nothing_warns(data, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tn.tensor(data, dtype=dtype)
        expected = tn.tensor(np.asarray(data)).astype(dtype or "float32")
    assert found.dtype is expected.dtype and repr(found.tolist()) == repr(expected.tolist())


@pytest.mark.parametrize("function", [
    lambda x: tn.lerp(x, x * 2, 0.3), tn.normalize, lambda x: tn.cosine_similarity(x, x * x), tn.cov, tn.diff,
    lambda x: tn.triplet_margin_loss(x, x * 2, x * x), lambda x: tn.gradient(x)[0], tn.trapezoid,
    lambda x: tn.lerp(x, x, 0.3), lambda x: tn.addcmul(x, x, x, value=0.3), lambda x: tn.broadcast_tensors(x, x)[1],
    lambda x: tn.triplet_margin_loss(x, x * 2, x),
], ids=["lerp", "normalize", "cosine_similarity", "cov", "diff", "triplet_margin_loss", "gradient", "trapezoid",
        "lerp of one", "addcmul of one", "one twice", "triplet_margin_loss of two"])
def test_gradients_have_the_same_bits_once_calls_are_remembered(function):
    a = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    found = set()
    for _ in range(6):
        x = tn.tensor(a, requires_grad=True)
        h = tn.sin(x)                       # whose gradient comes from within the function, and from elsewhere
        (function(h).sum() * 1.7 + (h * h).sum()).backward()
        found.add(x.grad.numpy().tobytes())
    assert len(found) == 1

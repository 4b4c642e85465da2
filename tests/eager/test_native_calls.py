"""Calls that are remembered, made by machine code: what those in Python give, found by what makes calls equal."""

import gc
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import tenon as tn
from tenon.eager import backward_arrays, native_fast_path
from tenon.eager.call_cache import ready_calls
from tenon.eager.ufunc_fast_path import PRODUCT, SHORTS
from tenon.errors import TenonError
from tenon.graph.kernels import UserKernel, add_kernel, forget_kernel
from tenon.graph.op import OPS, Op
from tenon.ops.define import remembering

pytestmark = pytest.mark.usefixtures("machine_code")


def seen(call, *tensors):
    """What a call gives: types, bits and gradients, or the error."""
    for x in tensors:
        x.grad = None
    try:
        out = call(*tensors)
        if out.requires_grad:
            out.backward(tn.ones_like(out))
    except TenonError as error:
        return str(error).splitlines()[0]
    found = [out.numpy(), *[None if x.grad is None else x.grad.numpy() for x in tensors]]
    return type(out), out.requires_grad, [x if x is None else (x.dtype, x.shape, x.tobytes()) for x in found]


def made(call, *tensors):
    """What a call gives by machine code, once it is known; whether it was."""
    for _ in range(4):
        seen(call, *tensors)
    missed = ready_calls.key
    ready_calls.key = lambda *call: pytest.fail("made in Python")
    try:
        return seen(call, *tensors)
    finally:
        ready_calls.key = missed


CALLS = {
    "sum": lambda x, y: x.sum(), "axis": lambda x, y: x.sum(axis=1, keepdims=True), "mean": lambda x, y: tn.mean(x, axis=0),
    "max": lambda x, y: x.max(axis=1), "reshape": lambda x, y: x.reshape(4, 3), "row": lambda x, y: x[1],
    "slice": lambda x, y: x[:, 1:-1:2], "ellipsis": lambda x, y: x[..., None, 0], "places": lambda x, y: x[[2, 0]],
    "permute": lambda x, y: x.permute(1, 0), "concatenate": lambda x, y: tn.concatenate([x, y], axis=1),
    "stack": lambda x, y: tn.stack((x, y)), "where": lambda x, y: tn.where(x > y, x, 0.0), "relu": lambda x, y: tn.relu(x),
    "clip": lambda x, y: x.clip(-0.5, 0.5), "softmax": lambda x, y: tn.softmax(x, axis=-1),
    "layer_norm": lambda x, y: tn.nn.functional.layer_norm(x, (4,)), "loss": lambda x, y: tn.nn.functional.mse_loss(x, y),
    "linear": lambda x, y: tn.nn.functional.linear(x, y), "string": lambda x, y: tn.nn.functional.gelu(x, approximate="tanh"),
    "type": lambda x, y: x.astype(tn.float16), "var": lambda x, y: x.var(axis=0), "cumsum": lambda x, y: x.cumsum(0),
    "add": lambda x, y: x.add(y), "number": lambda x, y: x.maximum(0.5), "abs": lambda x, y: x.abs(),
    "einsum": lambda x, y: tn.einsum("ij,kj->ik", x, y), "twice": lambda x, y: (s := tn.softmax(x, axis=1)) * s + y[0],
    "deep": lambda x, y: tn.softmax(tn.relu(x).reshape(2, 6) + y.reshape(2, 6), axis=0)[1].sum(),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("wanted", [(False, False), (True, True), (True, False)])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_the_bits_that_it_has_in_python(name, wanted, dtype):
    random = np.random.default_rng(0)
    x, y = (tn.tensor(random.standard_normal((3, 4)).astype(dtype), requires_grad=flag) for flag in wanted)
    found = made(CALLS[name], x, y)
    assert ready_calls.known or name in ("add", "number", "abs")        # which are one ufunc
    native_fast_path.give_python(SHORTS, PRODUCT)
    vars(backward_arrays.ways).update(vars(backward_arrays.BackwardEngine()))
    assert found == seen(CALLS[name], x, y)


@pytest.mark.parametrize("dtype", ["int32", "bool", "bfloat16", "complex64"])
def test_other_elements_give_what_they_give_in_python(dtype):
    x = tn.tensor([[1, 0, 2], [0, 3, 1]]).astype(dtype)
    for call in (lambda x: x.sum(axis=1), lambda x: x[:, 1], lambda x: x.reshape(-1), lambda x: tn.concatenate([x, x])):
        found = made(call, x)
        native_fast_path.give_python(SHORTS, PRODUCT)
        assert found == seen(call, x)
        native_fast_path.give_native(SHORTS, PRODUCT)


@pytest.mark.parametrize(("call", "kind"), [(lambda x: tn.split(x, [1, 2], 0), tuple), (lambda x: tn.topk(x, 2), tuple),
                                            (lambda x: several(x, x), list), (lambda x: several(x), list)])
def test_several_results_come_as_they_come_in_python(call, kind):
    x = tn.tensor([[3.0, -2.0, 0.5], [3.0, -0.0, 2.0], [1.0, 1.0, -1.0]])
    call = (lambda made: lambda: [y.numpy().tobytes() for y in made(x)])(call)
    found = [call() for _ in range(5)][-1]
    assert ready_calls.known
    ready_calls.key = lambda *given: pytest.fail("made in Python")
    assert call() == found
    native_fast_path.give_python(SHORTS, PRODUCT)
    assert call() == found


@remembering
def several(*given):
    return [x * 2.0 for x in given]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_in_a_gradient_is_left_to_the_rule_or_comes_out(error, monkeypatch):
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    made(lambda x: tn.softmax(x, axis=0), x)
    y = tn.softmax(x, axis=0)

    def fail(*given):
        raise error("here")
    x.grad = None
    monkeypatch.setattr(y.node.rule, "late", fail)
    seed = tn.tensor([1.0, 0.0])
    if error is KeyboardInterrupt:
        with pytest.raises(error, match="here"):
            y.backward(seed)
    else:
        y.backward(seed)
        np.testing.assert_allclose(x.grad.numpy(), [0.19661194, -0.19661194], rtol=1e-5)


def test_a_tape_that_was_released_keeps_nothing_and_is_not_gone_through_again():
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    made(lambda x: tn.softmax(x, axis=0), x)
    y = tn.softmax(x, axis=0)
    z = y.sum()
    z.backward(retain_graph=True)
    z.backward()
    node = y.node
    assert (node.inputs, node.payloads, node.arrays, node.kept) == ((), (), (), ())
    with pytest.raises(TenonError, match="a second time"):
        y.backward(tn.ones(2))


# Calls that differ in nothing but this, and have other results.
PAIRS = [
    (lambda x: x.sum(axis=0), lambda x: x.sum(axis=1)), (lambda x: x.sum(axis=1), lambda x: x.sum(axis=1, keepdims=True)),
    (lambda x: x[0], lambda x: x[0:1]), (lambda x: x[1], lambda x: x[True]), (lambda x: x[None], lambda x: x[...]),
    (lambda x: x.clip(-1, 0.0), lambda x: x.clip(-1, -0.0)), (lambda x: x[:1], lambda x: x[1:]),
    (lambda x: x[::1], lambda x: x[::-1]), (lambda x: x[[0, 1]], lambda x: x[0, 1]),
    (lambda x: x.reshape(4, -1), lambda x: x.reshape(2, -1)), (lambda x: x.maximum(1.0), lambda x: x.maximum(2.0)),
    (lambda x: x.astype(tn.int32), lambda x: x.astype(tn.int64)), (lambda x: x.sum(), lambda x: x.mean()),
    (lambda x: tn.where(x > 0, x, 0), lambda x: tn.where(x > 0, x, 2 ** 40)),
    (lambda x: tn.full_like(x, 2 ** 40), lambda x: tn.full_like(x, 2 ** 41)),
]


@pytest.mark.parametrize("pair", PAIRS)
def test_calls_that_differ_are_others(pair):
    x = tn.tensor([[1.0, -2.0], [3.0, -0.0]])
    native_fast_path.give_python(SHORTS, PRODUCT)
    expected = [seen(call, x) for call in pair]
    native_fast_path.give_native(SHORTS, PRODUCT)
    for _ in range(6):
        assert [seen(call, x) for call in pair] == expected
    assert expected[0] != expected[1]


def test_a_tensor_of_another_shape_type_or_wish_is_another_call():
    def call(x):
        return x.sum(axis=0)
    for _ in range(6):
        for shape in ((2, 3), (3, 2), (6,), (0, 4)):
            for dtype in (np.float32, np.float64, np.int64):
                assert call(tn.ones(shape, dtype=dtype)).numpy().tolist() == np.ones(shape).sum(axis=0).tolist()
        p = tn.ones(3, requires_grad=True)
        assert call(p).requires_grad and not call(p.detach()).requires_grad
        with tn.no_grad():
            assert not call(p).requires_grad


def test_a_named_argument_is_no_other_one():
    @remembering
    def named(x, *words, **numbers):
        return x + len(words)
    for _ in range(6):
        assert named(tn.zeros(()), "a", 1).item() == 2 and named(tn.zeros(()), a=1).item() == 0


def test_casts_kernels_captures_and_batches_are_seen():
    x = tn.tensor([[1.0, 2.0], [3.0, 4.0]])
    made(lambda x: x.sum(axis=1), x)
    with tn.autocast():
        assert tn.nn.functional.linear(x, x).dtype is tn.bfloat16
    assert tn.jit(lambda x: x.sum(axis=1))(x).tolist() == tn.vmap(lambda x: x.sum())(x).tolist() == [3.0, 7.0]
    kernel = UserKernel(OPS["sum"], "cpu", lambda x, **_: np.array([5.0, 5.0], np.float32), lambda x, **_: True)
    add_kernel(kernel)
    try:
        assert x.sum(axis=1).tolist() == [5.0, 5.0]
    finally:
        forget_kernel(kernel)
    assert x.sum(axis=1).tolist() == [3.0, 7.0]


def test_an_error_is_that_of_the_full_call():
    x = tn.tensor([[1.0, 2.0]])
    places = tn.tensor([0])
    made(lambda x: x[places], x)
    with pytest.raises(TenonError) as raised:
        x[tn.tensor([7])]       # this line
    assert "this line" in str(raised.value)


def test_a_subclass_is_a_tensor_and_gives_one():
    p = tn.nn.Parameter(tn.ones(3))
    for _ in range(6):
        y = p.sum()
        assert type(y) is tn.Tensor and y.requires_grad
    p.grad = None
    y.backward()
    assert p.grad.tolist() == [1.0] * 3


def test_the_tape_keeps_the_state_that_a_call_saw():
    x = tn.tensor([2.0, 3.0], requires_grad=True)
    made(lambda x: tn.softmax(x, axis=0), x)
    x.grad = None
    y = tn.softmax(x, axis=0)
    with tn.no_grad():
        x.assign(tn.tensor([7.0, -7.0]))
    y.backward(tn.tensor([1.0, 0.0]))
    np.testing.assert_allclose(x.grad.numpy(), [0.19661194, -0.19661194], rtol=1e-5)


def test_every_reference_is_given_back():
    x, p, number = tn.ones((4, 4)), tn.ones((4, 4), requires_grad=True), 0.25
    held = [x, p, x.own, p.own, x.payload, x.payload.dtype, tn.Tensor, type(x.own), tn.add, number, native_fast_path.CallNode,
            native_fast_path.Saved, np.ndarray, None, True, False]

    def run(count):
        for _ in range(count):
            x.sum(axis=1), x[1], x[:, 1:], tn.concatenate([x, p], axis=1), tn.softmax(p, axis=1), p.mean(), x.clip(-1, number)
            with tn.no_grad():
                p.reshape(2, 8)
    run(1000)
    gc.collect()
    before = [sys.getrefcount(o) for o in held]
    run(1000)
    gc.collect()
    after = [sys.getrefcount(o) for o in held]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), list(zip(before, after, strict=True))
    tracemalloc.start()
    try:
        run(100)
        gc.collect()
        first = tracemalloc.get_traced_memory()[0]
        run(10_000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - first < 20_000
    finally:
        tracemalloc.stop()


def test_a_patched_operator_call_stays_patched():
    python, calls = Op.__call__, []
    native_fast_path.give_python(SHORTS, PRODUCT)

    def patched(op, *args, **attrs):
        calls.append(op.name)
        return native_fast_path._OP_CALL(op, *args, **attrs)
    Op.__call__ = patched
    try:
        native_fast_path.give_native(SHORTS, PRODUCT)
        x = tn.ones(2)
        calls.clear()
        assert tn.add(x, x).tolist() == [2.0, 2.0] and calls == ["add"]
    finally:
        Op.__call__ = python


def test_threads_do_not_meet():
    wrong = []

    def work(k):
        x = tn.full((3, 4), float(k), requires_grad=k % 2 == 0)
        wrong.append(any(x.sum(axis=1).tolist() != [4.0 * k] * 3 or x[k % 3].tolist() != [k] * 4 for _ in range(2000)))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 4


def test_the_table_does_not_grow_for_ever(monkeypatch):
    from tenon.eager import call_cache
    monkeypatch.setattr(call_cache, "MAX_CALLS", 10)
    x = tn.ones(40)
    for k in range(30):
        for _ in range(5):
            assert x[:k].shape == (k,)
    assert len(ready_calls.known) <= 10

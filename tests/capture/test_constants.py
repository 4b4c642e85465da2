"""Weights of a network in use are computed with once, and never stale."""

import ctypes
import threading

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.capture.constant_weights import MANY_CHANGES, WithConstants


def network(dtype="float32"):
    tn.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 1030),
                        nn.BatchNorm1d(1030), nn.Linear(1030, 1200))      # more than a second cache
    x = tn.rand(16, 3, 6, 6)
    net.train()(x)          # the running statistics are no round numbers
    return net.to(dtype).eval(), x.astype(dtype)


def in_use(net, **options):
    @tn.jit(**options)
    def call(x):
        with tn.no_grad():
            return net(x)
    return call


def check(call, net, x, calls=4):
    with tn.no_grad():
        expected = net(x).numpy()
    for _ in range(calls):      # the slow path, and the fast one
        np.testing.assert_allclose(call(x).numpy(), expected, rtol=1e-4, atol=1e-6 * max(10, abs(expected).max()))


def packed(call, x):
    """The shapes of what is packed once for later calls."""
    late = call.capture(x).program.late
    return [late.graph.params[k].type.shape for k in late.packs]


def test_norms_are_absorbed_and_weights_packed():
    net, x = network()
    call = in_use(net)
    check(call, net, x)
    program = call.capture(x).program
    assert isinstance(program, WithConstants) and len(program.parts.made_from) == 12 and len(program.late.packs) == 2
    assert "multiply" not in "".join(unit.loops for unit in program.late.kernels)


def scaled(net):
    with tn.no_grad():
        net[4].weight.assign(net[4].weight * 2)


def loaded(net):
    net.load_state_dict({name: np.array(x.numpy() * 1.5).astype(x.numpy().dtype) for name, x in
                         net.state_dict().items()})


def replaced(net):
    net[0].weight = nn.Parameter(net[0].weight.numpy() + 1)


def trained(net):
    step = tn.jit(lambda x: nn.cross_entropy(net(x), tn.zeros(16, dtype="int64")))
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @tn.jit
    def update(x):
        loss = step(x)
        loss.backward()
        optimizer.step(), optimizer.zero_grad()
    net.train()
    for _ in range(4):
        update(tn.rand(16, 3, 6, 6))
    net.eval()


def in_place(net):
    with tn.no_grad():
        net[5].running_mean += 1.0
        net[1].weight[2] = 5.0


@pytest.mark.parametrize("change", [scaled, loaded, replaced, trained, in_place, lambda net: net.double(),
                                    lambda net: net.requires_grad_(False), lambda net: net.train()])
def test_a_change_of_weights_is_seen_by_the_next_call(change):
    net, x = network()
    call = in_use(net)
    check(call, net, x)
    for _ in range(3):
        change(net)
        x = x.astype(net[0].weight.dtype)
        if net.training:
            net[1].momentum = net[5].momentum = 0.0
        check(call, net, x)


def test_memory_of_numpy_is_read_in_every_call():
    net, x = network()
    memory = np.ones(net[4].weight.shape, np.float32)
    with tn.no_grad():
        net[4].weight.assign(tn.asarray(memory))
    call = in_use(net)
    for factor in (1.0, 0.5, 3.0):
        memory *= factor
        check(call, net, x)
    assert packed(call, x) == [net[6].weight.shape]


def test_memory_that_is_handed_out_later_is_read_in_every_call_from_then_on():
    net, x = network()
    call = in_use(net)
    check(call, net, x)
    capsule = net[4].weight.detach().__dlpack__(max_version=(1, 0))       # somebody else knows the address now, and may write
    address, count = net[4].weight.numpy().ctypes.data, net[4].weight.size
    memory = np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)
    for factor in (1.0, 0.5, 3.0):
        memory *= factor
        check(call, net, x)
    assert packed(call, x) == [net[6].weight.shape] and capsule is not None


def test_a_tensor_that_changes_all_the_time_is_no_constant():
    scale, w = tn.ones(16), tn.rand(400, 400)
    calls = 0

    @tn.jit
    def call(x):
        with tn.no_grad():
            return x @ w * tn.exp(scale).sum()
    x = tn.rand(16, 400)
    for calls in range(2 * MANY_CHANGES):
        scale.assign(tn.full((16,), 0.01 * calls))
        np.testing.assert_allclose(call(x).numpy(), x.numpy() @ w.numpy() * 16 * np.exp(np.float32(0.01 * calls)),
                                   rtol=1e-4)
    program = call.capture(x).program
    assert program.parts.made_from == () and len(program.late.packs) == 1


def test_training_has_no_constants():
    net, x = network()

    @tn.jit
    def step(x):
        loss = net(x).sum()
        loss.backward()
        return loss
    step(x)
    assert step.capture(x).constants == ()


def test_constants_can_be_refused():
    net, x = network()
    call = in_use(net, constants=False)
    check(call, net, x)
    assert not isinstance(call.capture(x).program, WithConstants)


def test_an_array_made_in_the_function_is_a_constant():
    table = np.random.default_rng(0).random((16, 64), np.float32).tolist()

    @tn.jit
    def call(x):
        with tn.no_grad():
            return x + tn.exp(tn.tensor(table))
    x = tn.rand(16, 64)
    for _ in range(4):
        np.testing.assert_allclose(call(x).numpy(), x.numpy() + np.exp(np.array(table, np.float32)), rtol=1e-6)
    assert len(call.capture(x).program.parts.made_from) == 1


def test_what_is_assigned_is_no_constant():
    count, w = tn.zeros(1024), tn.rand(1024)

    @tn.jit
    def call(x):
        with tn.no_grad():
            count.assign(count + 1)
            return x + tn.exp(count) * tn.exp(w)
    for k in range(1, 5):
        np.testing.assert_allclose(call(0.0).numpy(), np.exp(np.float32(k)) * np.exp(w.numpy()), rtol=1e-5)
    assert [call.capture(0.0).sources[k].holder for k in call.capture(0.0).constants] == [w]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_types(dtype):
    net, x = network(dtype)
    call = in_use(net)
    with tn.no_grad():
        expected = net(x).numpy().astype(np.float64)
    for _ in range(3):
        np.testing.assert_allclose(call(x).numpy().astype(np.float64), expected, atol=1e-12 if dtype == "float64"
                                   else 0.1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_weights_are_packed_in_squares(dtype):
    x, w = (tn.asarray((np.arange(rows * 64).reshape(rows, 64) % 7 - 3) / 4).astype(dtype) for rows in (4, 16))
    call = in_use(lambda x: nn.functional.linear(x, w))     # sums of quarters, which both types hold
    assert call(x).astype("float64").tolist() == (x.astype("float64") @ w.astype("float64").T).astype(dtype).tolist()


def test_batches_of_any_size():
    net, _ = network()
    call = in_use(net)
    for n in (1, 2, 5, 17, 3, 1):
        check(call, net, tn.rand(n, 3, 6, 6))


def test_threads_see_their_own_weights_or_newer_ones():
    w = tn.zeros(64, 64)
    call = tn.jit(lambda x: x @ tn.exp(w))
    x = tn.ones(16, 64)
    call(x), call(x)
    wrong = []

    def look():
        for _ in range(200):
            low = float(np.exp(w.numpy()[0, 0]))
            out = float(call(x).numpy()[0, 0]) / 64
            high = float(np.exp(w.numpy()[0, 0]))
            if not low * 0.999 <= out <= high * 1.001:
                wrong.append((low, out, high))
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for k in range(30):
        w.assign(tn.full((64, 64), 0.1 * k))
    for thread in threads:
        thread.join()
    assert not wrong

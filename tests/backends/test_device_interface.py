"""The interface of devices: what the logical ones do, and a third backend with memory of its own, written for this test."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenon as tn
from backends.slow_device import Fault, SlowDevice, slow_backend
from tenon import nn, optim
from tenon.errors import ArgumentError, DeviceError, OutOfMemory
from tenon.extend import remove_backend
from tenon.nn import functional as F
from tenon.pipeline import compile
from tenon.program.backend_interface import Backend, DeviceRuntime
from tenon.runtime.host_device import HostDevice


@pytest.fixture
def slow() -> Iterator[list[SlowDevice]]:
    devices: list[SlowDevice] = []
    tn.register_backend(slow_backend("slow", devices))
    yield devices
    remove_backend("slow")


# ---------------------------------------------------------------- what every device does

@pytest.fixture(params=["cpu", "reference", "slow"])
def device(request: Any, slow: list[SlowDevice]) -> tuple[str, DeviceRuntime]:
    """A backend, and a device for its programs."""
    return request.param, SlowDevice(0, "slow", 1 << 20, 0.001) if request.param == "slow" else HostDevice(1, 1 << 20)


def bring(runtime: DeviceRuntime, array: np.ndarray) -> Any:
    buffer = runtime.allocate(array.shape, array.dtype)
    runtime.write(array, buffer).wait()
    return buffer


def fetch(runtime: DeviceRuntime, buffer: Any) -> np.ndarray:
    array = np.empty(buffer.shape, buffer.dtype)
    runtime.read(buffer, array).wait()
    return array


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3), np.zeros((0, 3), np.float32), np.array(7), np.array([True])])
def test_elements_go_there_and_come_back(device: tuple[str, DeviceRuntime], array: np.ndarray) -> None:
    _, runtime = device
    buffer = bring(runtime, array)
    other = runtime.allocate(array.shape, array.dtype)
    runtime.copy(buffer, other).wait()
    assert buffer.nbytes == array.nbytes and buffer.shape == array.shape
    np.testing.assert_array_equal(fetch(runtime, other), array)


def test_what_is_written_may_be_changed_at_once(device: tuple[str, DeviceRuntime]) -> None:
    _, runtime = device
    array = np.ones(1000)
    buffer = runtime.allocate(array.shape, array.dtype)
    event = runtime.write(array, buffer)
    array[:] = 5
    event.wait()
    assert fetch(runtime, buffer).tolist() == [1] * 1000


def test_memory_is_counted_limited_and_free_again(device: tuple[str, DeviceRuntime]) -> None:
    _, runtime = device
    held = [runtime.allocate((1 << 15,), np.dtype(np.float32))]
    assert runtime.in_use == 1 << 17 and runtime.limit == 1 << 20
    with pytest.raises(OutOfMemory):
        runtime.allocate((1 << 20,), np.dtype(np.float32))
    held.clear()        # a name would do, but for what shows an error with the names around it
    gc.collect()
    assert runtime.in_use == 0
    assert runtime.allocate(((1 << 20) - 64,), np.dtype(np.uint8)).nbytes == (1 << 20) - 64


def test_programs_run_in_order_beside_the_caller(device: tuple[str, DeviceRuntime]) -> None:
    backend, runtime = device
    program = compile(tn.jit(lambda x: tn.tanh(x) * 2 + 1).graph(tn.ones(3)), backend)
    x = np.float32([0, 1, 2])
    (made, there), after = runtime.launch(program, [bring(runtime, x)]), runtime.record()
    after.wait()
    assert there.done() and after.done()
    np.testing.assert_allclose(fetch(runtime, made[0]), np.tanh(x) * 2 + 1, rtol=1e-6)
    runtime.synchronize()


def test_what_fails_is_told_where_it_is_waited_for(device: tuple[str, DeviceRuntime]) -> None:
    backend, runtime = device
    program = compile(tn.jit(lambda x: x + 1).graph(tn.ones(3)), backend)
    _, there = runtime.launch(program, [bring(runtime, np.zeros((2, 2)))])
    with pytest.raises((ValueError, ArgumentError)):
        there.wait()
    assert fetch(runtime, bring(runtime, np.ones(2))).tolist() == [1, 1]        # and it goes on


# ---------------------------------------------------------------- memory of its own

def test_tensors_lie_and_are_computed_there(slow: list[SlowDevice]) -> None:
    assert [d for d in tn.devices() if d.type == "slow"] == ["slow", "slow:1"]
    x = tn.ones(2, 3, device="slow")
    y = (tn.relu(x * 2 - 1) @ x.T).sum(axis=0)
    assert y.device == "slow" and y.tolist() == [6, 6] and repr(y) == "tensor([6., 6.], device='slow')"
    there = y.to("slow:1")
    assert there.device == "slow:1" and (there + 1).tolist() == [7, 7] and there.cpu().device == "cpu"
    assert slow[0].counts["launch"] > 3 and slow[1].counts["copy"] == 1
    with pytest.raises(DeviceError):
        x + tn.ones(3)
    with pytest.raises(DeviceError):
        y + there


def test_a_hosts_pointer_never_gets_there(slow: list[SlowDevice]) -> None:
    x = tn.ones(2, device="slow")
    runtime = slow[0]
    program = compile(tn.jit(lambda x: x + 1).graph(tn.ones(2)), "slow")
    with pytest.raises(Fault, match="host pointer"):
        runtime.launch(program, [np.ones(2, np.float32)])[1].wait()
    with pytest.raises(Fault, match="read before"):
        runtime.launch(program, [runtime.allocate((2,), np.dtype(np.float32))])[1].wait()
    assert (x + 1).tolist() == [2, 2]


def test_memory_is_free_when_tensors_are_gone(slow: list[SlowDevice]) -> None:
    x = tn.ones(100, device="slow")
    for _ in range(50):
        x = x * 1.5 - 0.5
    gc.collect()
    assert slow[0].in_use == 400
    with pytest.raises(OutOfMemory, match="no 8000000 bytes"):
        tn.zeros(1000, 2000, device="slow")


class Net(nn.Module):
    def __init__(self) -> None:
        self.front, self.back = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.back(tn.relu(self.front(x.to(self.front.weight.device))).to(self.back.weight.device))


def trained(front: str, back: str, jit: bool, steps: int = 4) -> tuple[list[float], list[np.ndarray]]:
    tn.manual_seed(0)
    net = Net()
    net.front.to(front)
    net.back.to(back)
    opt = optim.Adam(net.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y.to(back))
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    run, losses = tn.jit(step, fullgraph=True) if jit else step, []
    for k in range(steps):
        rng = np.random.default_rng(k)
        losses.append(float(run(tn.tensor(rng.random((5, 6)), dtype="f32"), tn.tensor(rng.integers(0, 3, 5)))))
    assert {p.device for p in net.back.parameters()} == {back}
    return losses, [p.numpy() for p in net.parameters()]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("front", "back"), [("slow", "slow"), ("cpu", "slow"), ("slow", "slow:1"), ("slow:1", "cpu")])
def test_an_mlp_trains_there_as_anywhere(slow: list[SlowDevice], front: str, back: str, jit: bool) -> None:
    expected, parameters = trained("cpu", "cpu", jit=False)
    found, there = trained(front, back, jit)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for a, b in zip(there, parameters, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert all(device.counts["operators"] for device in slow)


def test_parameters_stay_there_between_steps(slow: list[SlowDevice]) -> None:
    """A step copies its inputs and its loss, and no parameter."""
    w = nn.Parameter(tn.ones(50, 50, device="slow"))
    opt = optim.SGD([w], lr=0.1)

    @tn.jit(fullgraph=True)
    def step(x: Any) -> Any:
        loss = (x.to("slow") @ w).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.cpu()
    for _ in range(3):
        step(tn.ones(2, 50))
    before = slow[0].counts.copy()
    step(tn.ones(2, 50))
    assert slow[0].counts["read"] == before["read"] and slow[0].counts["launch"] == before["launch"] + 1
    assert slow[0].counts["write"] - before["write"] <= 4       # what comes from the host


def test_two_threads_may_run_a_step_at_once(slow: list[SlowDevice]) -> None:
    f = tn.jit(lambda x: (x.to("slow") * 2).cpu() + 1)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda k=k: found.append((k, f(tn.full((3,), float(k))).tolist()))) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == [(k, [2.0 * k + 1] * 3) for k in range(4)]


def test_backends_with_devices_are_checked() -> None:
    with pytest.raises(ArgumentError, match="nothing that opens them"):
        tn.register_backend(Backend("bare", SlowDevice, devices=1))
    with pytest.raises(ArgumentError, match="no backend named"):
        remove_backend("bare")
    with pytest.raises(ArgumentError, match="there is no device 'slow'"):
        tn.device("slow")

"""Fast paths of programs with steps that NumPy does: linear algebra, Fourier transforms, complex numbers."""

import gc
import signal
import threading

import numpy as np
import pytest

import tenon as tn
from tenon.errors import LinearAlgebraError

RNG = np.random.default_rng(0)


def matrix(k=0):
    return tn.asarray((RNG.normal(size=(6, 6)) + (4 + k) * np.eye(6)).astype(np.float32))


def fast_path(jitted):
    """What the one capture of a function makes its calls with."""
    ((record,),) = [jitted.records.values()]
    return record.captures[-1].fast_call


FUNCTIONS = {
    "inverse": lambda a: tn.linalg.inv(a),
    "several": lambda a: (tn.linalg.svd(a)[1], tn.linalg.det(a), a + 1),
    "complex": lambda a: tn.abs(tn.fft.fft(a[0] + 1)) * tn.linalg.det(a),
    "number": lambda a: float(tn.linalg.det(a)),
    "kernels between": lambda a: tn.sin(tn.linalg.inv(tn.cos(a) + 5 * a) @ a).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_calls_that_follow_are_fast(name):
    function = FUNCTIONS[name]
    jitted = tn.jit(function)
    for k in range(8):
        a = matrix(k)
        for want, got in zip(tn.tree.leaves(function(a)), tn.tree.leaves(jitted(a)), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)
    assert fast_path(jitted) is not None


def test_a_step_that_raises():
    """The call raises what eager code does, and those after it are fast as before."""
    jitted = tn.jit(lambda a: tn.linalg.inv(a) + 1)
    a, singular = matrix(), tn.zeros((6, 6))
    for _ in range(3):
        want = jitted(a)
        with pytest.raises(LinearAlgebraError) as eager:
            tn.linalg.inv(singular)
        with pytest.raises(LinearAlgebraError) as compiled:
            jitted(singular)
        assert str(eager.value).splitlines()[0] == str(compiled.value).splitlines()[0]
        np.testing.assert_array_equal(jitted(a).numpy(), want.numpy())


def test_what_is_stored_is_of_a_whole_call():
    """A step that raises leaves the state as it was."""
    class Running:
        mean, calls = tn.zeros((6, 6)), 0
    o = Running()

    def step(a):
        o.calls += 1
        o.mean.mul_(0.5).add_(tn.linalg.inv(a))
        return o.mean.sum()
    jitted = tn.jit(step)
    want = tn.zeros((6, 6))
    for k in range(12):
        a = matrix(k) if k % 4 != 3 else tn.zeros((6, 6))
        if k % 4 != 3:
            want = want * 0.5 + tn.linalg.inv(a)
            jitted(a)
        else:
            before = o.mean.numpy().copy()
            with pytest.raises(LinearAlgebraError):
                jitted(a)
            np.testing.assert_array_equal(o.mean.numpy(), before * 0.5)     # as the statement before it leaves it
            want = want * 0.5
        np.testing.assert_allclose(o.mean.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)
    assert o.calls == 12


def test_threads_share_a_fast_path():
    """A frame that is in use sends others the slow way."""
    jitted = tn.jit(lambda a: tn.linalg.svd(a)[1] * 2)
    matrices = [tn.asarray(RNG.normal(size=(40, 40))) for _ in range(4)]
    want = [np.linalg.svd(a.numpy())[1] * 2 for a in matrices]
    jitted(matrices[0])
    wrong = []

    def work(k):
        wrong.extend(k for _ in range(60) if not np.allclose(jitted(matrices[k]).numpy(), want[k], rtol=1e-8))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_signal_that_calls_the_same_function():
    """A handler runs between the statements of a step, while its frame is in use."""
    jitted = tn.jit(lambda a: tn.linalg.eigvalsh(a @ a.T))
    a, b = (tn.asarray(RNG.normal(size=(30, 30))) for _ in range(2))
    want = [np.linalg.eigvalsh((x @ x.T).numpy()) for x in (a, b)]
    for x in (a, b, a, b):
        jitted(x)
    seen, inside = [], []

    def again(*_):
        if not inside:
            inside.append(True)
            seen.append(jitted(b).numpy())
            inside.clear()
    before = signal.signal(signal.SIGALRM, again)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(300):
            np.testing.assert_allclose(jitted(a).numpy(), want[0], rtol=1e-8, atol=1e-8)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen
    for found in seen:
        np.testing.assert_allclose(found, want[1], rtol=1e-8, atol=1e-8)


def test_an_interrupt_within_a_step():
    """KeyboardInterrupt comes out of the call, whose state is that before or after."""
    total = tn.zeros(30, dtype=tn.float64)

    def step(a):
        total.add_(tn.linalg.eigvalsh(a @ a.T))
    jitted = tn.jit(step)
    a = tn.asarray(RNG.normal(size=(30, 30)))
    one = np.linalg.eigvalsh((a @ a.T).numpy())
    for _ in range(5):
        jitted(a)
    interrupts = 0

    def interrupt(*_):
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()                # callbacks of the collector, such as hypothesis has, would swallow some
    try:
        for k in range(200):
            start = total.numpy().copy()
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + 1e-6 * (k % 100))
                jitted(a)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            found = total.numpy()
            assert np.array_equal(found, start) or np.allclose(found, start + one, rtol=1e-8, atol=1e-6)
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert interrupts


def test_a_recorded_call():
    """With its gradient outside, the forward program has steps of NumPy too."""
    jitted = tn.jit(lambda a: tn.linalg.inv(a).sum())
    for k in range(6):
        a = matrix(k).requires_grad_()
        b = a.detach().clone().requires_grad_()
        jitted(a).backward()
        tn.linalg.inv(b).sum().backward()
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert fast_path(jitted) is not None

"""The fast path of a warm call: it is taken, it sees every change, and memory that is updated in place is nobody else's."""

import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.capture.preload_fast_calls import preload, state_slots
from tenon.cpython import object_layout

jit_module = sys.modules["tenon.capture.jitted"]
pytestmark = pytest.mark.skipif(not object_layout.READABLE, reason="this Python's objects cannot be read natively")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """A fast path after every call that took the slow one."""
    monkeypatch.setattr(jit_module, "FAST_CALL_AT", range(1_000_000))


def ones(*shape, dtype=np.float32):
    return tn.asarray(np.ones(shape, dtype))


def long_calls(f, monkeypatch):
    """A list that grows with every call of `f` by the slow path."""
    seen, inner = [], f._find_and_run
    monkeypatch.setattr(f, "_find_and_run", lambda args, keywords: seen.append(1) or inner(args, keywords))
    return seen


# ---------------------------------------------------------------- it is taken

G = 2.0
HELD = [ones(3) for _ in range(3)]


class Scale(nn.Module):
    def __init__(self):
        self.inner, self.factor = nn.Linear(3, 3), 2.0

    def __call__(self, x):
        return self.inner(x) * self.factor


NET = Scale()


def closed_over(k):
    return lambda x: x * k


@pytest.mark.parametrize("function, args", [
    (lambda x: x * 2 + 1, (ones(3),)),
    (lambda x: x * G, (ones(3),)),
    (lambda x: sum(HELD, x), (ones(3),)),
    (lambda x: NET(x).detach(), (ones(2, 3),)),
    (lambda x: NET(x), (ones(2, 3),)),
    (closed_over(3.0), (ones(3),)),
    (lambda x, k, name="a": x * k if name == "a" else x, (ones(3), 2.0)),
    (lambda x: {"a": x + 1, "b": [x * 2, 3, x]}, (ones(3),)),
    (lambda pair: pair[0] + pair[1]["y"], ((ones(3), {"y": ones(3)}),)),
    (lambda x: x + 1, (np.ones(3, np.float32),)),
    (lambda x: x * x, (ones(0),)), (lambda x: x * x, (ones(),)), (lambda x: x * x, (ones(7, dtype=np.float64),)),
    (lambda x: tn.matmul(x, x), (ones(70, 70),)),
    (lambda: tn.ones(3) * G, ()),
])
def test_it_is_taken(function, args, monkeypatch):
    f = tn.jit(function)
    want = function(*[tn.asarray(x) if isinstance(x, np.ndarray) else x for x in args])
    f(*args)
    seen = long_calls(f, monkeypatch)
    for _ in range(3):
        compare(f(*args), want)
    assert not seen


def compare(got, want):
    assert type(got) is type(want)
    if isinstance(want, dict):
        assert list(got) == list(want)
        got, want = list(got.values()), list(want.values())
    if isinstance(want, list):
        for a, b in zip(got, want, strict=True):
            compare(a, b)
    elif isinstance(want, tn.Tensor):
        assert (got.type, got.requires_grad) == (want.type, want.requires_grad)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    else:
        assert got == want


def test_a_training_step_takes_it_and_its_memory_stays_where_it_is(monkeypatch):
    x = tn.asarray(np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    losses = []
    for wrap in (lambda f: f, tn.jit):
        tn.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
        opt = optim.Adam(net.parameters(), lr=0.01)

        def step(x, net=net, opt=opt):
            loss = (net(x) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        stepped = wrap(step)
        losses.append([stepped(x).item() for _ in range(3)])
        seen = long_calls(stepped, monkeypatch) if wrap is tn.jit else None
        where = [p.own.payload.ctypes.data for p in net.parameters()]
        losses[-1] += [stepped(x).item() for _ in range(20)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3, atol=1e-5)
    assert not seen
    assert where == [p.own.payload.ctypes.data for p in net.parameters()]


# ---------------------------------------------------------------- it sees every change

def test_tensors_from_outside_may_change_in_every_way():
    w = ones(3)
    f = tn.jit(lambda x: (x * w).sum() if w.grad is None else (x * w + w.grad).sum())
    x = ones(3)
    assert [f(x).item() for _ in range(3)] == [3, 3, 3]
    w.assign(w * 2)
    assert f(x).item() == 6 and f(x).item() == 6
    w.grad = ones(3)
    assert f(x).item() == 9 and f(x).item() == 9
    w.grad = None
    w.requires_grad_()
    for _ in range(3):
        y = f(x)
        assert y.requires_grad and y.item() == 6
    y.backward()
    assert w.grad.tolist() == [1, 1, 1] and f(x).item() == 9
    with tn.no_grad():
        assert not f(x).requires_grad and not f(x).requires_grad


def test_the_type_of_a_tensor_that_the_graph_does_not_read():
    net = nn.Linear(3, 3)
    f = tn.jit(lambda x: x * (2 if net.weight.dtype is tn.float32 else 3))
    assert [f(ones(1)).item() for _ in range(3)] == [2, 2, 2]
    net.double()
    assert [f(ones(1)).item() for _ in range(3)] == [3, 3, 3]


def test_an_array_from_outside_may_change_its_type_in_place():
    a = np.ones(4, np.float32)
    f = tn.jit(lambda x: x * tn.asarray(a).sum())
    assert [f(ones(1)).item() for _ in range(3)] == [4, 4, 4]
    a[:] = 2
    assert [f(ones(1)).item() for _ in range(3)] == [8, 8, 8]
    a.resize((2, 2), refcheck=False)
    assert [f(ones(1)).item() for _ in range(3)] == [8, 8, 8]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)         # NumPy 2.5 warns, and does it
        a.dtype = np.int32
    assert f(ones(1)).item() == int(a.sum())


def test_arguments_of_every_kind_after_another():
    w = ones(3)
    f = tn.jit(lambda x, y=None: x * w + (0 if y is None else y))
    a, b, p = ones(3), ones(3) * 2, nn.Parameter([1.0, 1.0, 1.0])
    calls = [lambda f: f(a), lambda f: f(a, b), lambda f: f(a, a), lambda f: f(b, a), lambda f: f(w), lambda f: f(w, w),
             lambda f: f(a, y=b), lambda f: f(y=b, x=a), lambda f: f(a, 1), lambda f: f(a, True), lambda f: f(a, 1.0),
             lambda f: f(a, -0.0), lambda f: f(a, 0.0), lambda f: f(p), lambda f: f(p, a), lambda f: f(np.ones(3)),
             lambda f: f(np.ones((2, 3), np.float32)[:, ::1]), lambda f: f(ones(2, 3)[:, ::-1]), lambda f: f(ones(3, 2).T),
             lambda f: f(tn.ones(3, dtype="int32")), lambda f: f(tn.ones(3, dtype="bfloat16")), lambda f: f(ones(1)),
             lambda f: f(ones()), lambda f: f(ones(0, 3))]
    random = np.random.default_rng(0)
    for k in random.integers(0, len(calls), 300):
        want, got = calls[k](f.function), calls[k](f)
        assert (got.type, got.requires_grad) == (want.type, want.requires_grad)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    with pytest.raises(TypeError):
        f(a, b, a)
    with pytest.raises(TypeError):
        f()


def test_objects_that_change_class_or_dictionary():
    class A:
        k = 2.0

    class B:
        k = 5.0

    a = A()
    a.own = 1.0
    f = tn.jit(lambda x: x * a.k * a.own)
    seen = [f(ones(1)).item() for _ in range(3)]
    a.__class__ = B
    seen += [f(ones(1)).item() for _ in range(3)]
    a.__dict__ = {"own": 7.0}
    seen += [f(ones(1)).item() for _ in range(3)]
    a.__dict__["own"] = 8.0
    seen += [f(ones(1)).item() for _ in range(3)]
    B.k = 1.0
    seen += [f(ones(1)).item() for _ in range(3)]
    assert seen == [2] * 3 + [5] * 3 + [35] * 3 + [40] * 3 + [8] * 3


def test_stores_that_python_makes_fast():
    """Python specialises a store that runs often; the dictionary changes all the same."""
    class A:
        pass

    a, table, scope = A(), {"k": 0.0}, {"tn": tn}
    a.k = 0.0
    exec("k = 0.0\ndef read(x): return x * k\ndef store(v):\n    global k\n    k = v", scope)
    f, g, h = tn.jit(lambda x: x * a.k), tn.jit(lambda x: x * table["k"]), tn.jit(scope["read"])

    def store(v):
        a.k = v
        table["k"] = v
        scope["store"](v)
    values = [float(v % 3) for v in range(100)]
    x = ones(1)
    for v in values:
        store(v)
        assert (f(x).item(), g(x).item(), h(x).item()) == (v, v, v)


def test_globals_that_change_all_the_time_do_not_matter(monkeypatch):
    scope = {"k": 2.0}
    exec("def f(x): return x * k", scope)
    f = tn.jit(scope["f"])
    f(ones(1))
    seen = long_calls(f, monkeypatch)
    for v in range(2000):
        scope[f"name{v}"] = v
        assert f(ones(1)).item() == 2
    assert not seen
    del scope["k"]
    with pytest.raises(NameError):
        f(ones(1))
    scope["k"] = 3.0
    assert f(ones(1)).item() == 3


# ---------------------------------------------------------------- memory that is updated in place

def stepping(size=3):
    w = ones(size)
    w.assign(w + 0)

    @tn.jit
    def step():
        w.assign(w * 2)
    for _ in range(4):
        step()
    return w, step


@pytest.mark.parametrize("size", [3, 20_000, 100_000])
def test_memory_stays_where_it_is(size):
    w, step = stepping(size)
    where = w.own.payload.ctypes.data
    for k in range(5, 9):
        step()
        assert w.own.payload.ctypes.data == where and w[0].item() == 2 ** k


@pytest.mark.parametrize("size", [3, 20_000, 100_000])
def test_what_was_given_out_keeps_its_value(size):
    w, step = stepping(size)
    for see in (lambda: w.numpy(), lambda: w.detach(), lambda: np.asarray(w), lambda: memoryview(np.asarray(w)),
                lambda: np.from_dlpack(w), lambda: w.reshape(size, 1), lambda: w[1:], lambda: tn.asarray(w, copy=True),
                lambda: tn.jit(lambda: (w,))()[0].detach(), lambda: w.own):
        seen = see()
        seen = seen.payload if not hasattr(seen, "__array__") and hasattr(seen, "payload") else seen
        before = np.array(seen)
        for _ in range(3):
            step()
        np.testing.assert_array_equal(np.array(seen), before)


def test_what_the_tape_keeps_keeps_its_value():
    w = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)

    @tn.jit
    def step():
        with tn.no_grad():
            w.assign(w * 2)
    for _ in range(4):
        step()
    y = (w * w).sum()
    before = w.numpy().copy()
    for _ in range(3):
        step()
    y.backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * before)


def test_an_array_of_the_user_is_never_written():
    array = np.ones(3, np.float32)
    w, v = tn.asarray(array), tn.asarray(array[1:])

    @tn.jit
    def step():
        w.assign(w * 2)
        v.assign(v * 3)
    for _ in range(4):
        step()
    assert array.tolist() == [1, 1, 1] and w.tolist() == [16] * 3 and v.tolist() == [81] * 2


def test_tensors_that_swap_their_values():
    a, b, c = ones(3), ones(3) * 2, ones(3) * 3

    @tn.jit
    def turn():
        old = a * 1
        a.assign(b * 1)
        b.assign(c * 1)
        c.assign(old)
    for k in range(1, 8):
        turn()
        assert [x.tolist()[0] for x in (a, b, c)] == [1 + k % 3, 1 + (k + 1) % 3, 1 + (k + 2) % 3]


def test_a_result_that_is_an_assigned_value():
    w = ones(3)

    @tn.jit
    def step():
        new = w * 2
        w.assign(new)
        return new
    kept = [step() for _ in range(6)]
    assert [x.tolist()[0] for x in kept] == [2, 4, 8, 16, 32, 64]


def test_an_error_leaves_what_eager_code_leaves():
    table = ones(4)

    @tn.jit
    def f(i):
        table.assign(table + 1)
        return table[i]
    for k in range(6):
        if k % 2:
            with pytest.raises(IndexError):
                f(tn.tensor([9]))
        else:
            f(tn.tensor([0]))
        assert table.tolist() == [2 + k] * 4


# ---------------------------------------------------------------- threads, memory

@pytest.mark.parametrize("rows", [3, 600])
def test_a_step_with_an_index_out_of_range_changes_nothing_and_tells_where(rows, monkeypatch):
    net = nn.Linear(4, 300)
    optimizer = optim.Adam(net.parameters(), lr=0.1)

    @tn.jit
    def step(x, y):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    x, labels = ones(rows, 4), np.arange(rows) % 300
    wrong = labels.copy()
    wrong[-1] = 300
    for _ in range(3):
        step(x, tn.asarray(labels))
    seen, kept = long_calls(step, monkeypatch), [np.array(p) for p in net.parameters()]
    for _ in range(2):
        with pytest.raises(IndexError, match="index 300 is out of range"):
            step(x, tn.asarray(wrong))
        assert all(np.array_equal(p, before) for p, before in zip(net.parameters(), kept, strict=True))
    assert len(seen) == 2
    first = step(x, tn.asarray(labels))
    assert step(x, tn.asarray(labels)) != first


def test_a_result_is_not_made_where_an_index_is_out_of_range(monkeypatch):
    table, f = ones(5, 2), tn.jit(lambda x, i: x[i] * 2)
    f(table, tn.asarray(np.array([0, 4])))
    seen = long_calls(f, monkeypatch)
    for index in (4, 5, -5, -6, 0):
        if -5 <= index < 5:
            assert f(table, tn.asarray(np.array([0, index]))).tolist() == [[2, 2]] * 2
        else:
            with pytest.raises(IndexError, match=f"index {index} is out of range"):
                f(table, tn.asarray(np.array([0, index])))
    assert len(seen) == 2


def test_threads_call_one_function_and_change_what_it_reads():
    w, failures = ones(64), []
    f = tn.jit(lambda x: (x * w).sum() / w.sum())
    step = tn.jit(lambda: w.assign(w * 1.25))

    def call():
        x = ones(64)
        for _ in range(300):
            y = f(x).item()
            if abs(y - 1) > 1e-5:
                failures.append(y)

    def change():
        for k in range(300):
            step() if k % 100 else w.assign(ones(64))
    threads = [threading.Thread(target=target) for target in (call, call, change)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failures


def test_results_and_arguments_are_let_go_at_once():
    """Not when Python looks for cycles: a result that waits for that is memory, and keeps a step from updating it."""
    w = ones(3)
    f = tn.jit(lambda x, n: (w.assign(x * n), {"a": x + 1}))
    gc.disable()
    try:
        for _ in range(4):
            x = ones(3)
            out = f(x, 2)
        seen = [weakref.ref(v) for v in (x, x.own.payload, out[1]["a"].own.payload, out[1]["a"])]
        del x, out
        assert [r() for r in seen] == [None] * 4
        counts = sys.getrefcount(w.own.payload), sys.getrefcount(w.own)
        assert counts == (2, 2)
    finally:
        gc.enable()


def test_nothing_is_kept_by_a_call():
    f, x = tn.jit(lambda x: x * 2), ones(3)
    for _ in range(3):
        f(x)
    gc.collect()
    array = x.own.payload
    counts = [sys.getrefcount(v) for v in (array, x, x.own)]
    objects_before, true_before = len(gc.get_objects()), sys.getrefcount(True)
    for _ in range(5000):
        f(x)
    gc.collect()
    assert len(gc.get_objects()) - objects_before < 1000 and abs(sys.getrefcount(True) - true_before) < 1000
    assert counts == [sys.getrefcount(v) for v in (array, x, x.own)]


def test_several_functions_that_share_a_dictionary():
    """What one function's look at the globals found must not hide what another one's has to find."""
    scope = {}
    exec("a, b, c = 1.0, 2.0, 3.0\ndef f(x): return x * a * g(x)\ndef g(x): return x * b * h(x)\n"
         "def h(x): return x * c", scope)
    f, x = tn.jit(scope["f"]), ones(1)
    assert [f(x).item() for _ in range(3)] == [6, 6, 6]
    for name in "abcba":
        scope["unrelated"] = name
        assert f(x).item() == f.function(x).item()
        scope[name] += 1.0
        for _ in range(3):
            assert f(x).item() == f.function(x).item()
        scope[name] = float(scope[name])        # an equal value, another object
        assert f(x).item() == f.function(x).item()


def test_dictionaries_whose_items_are_all_read():
    table = {"a": 1.0, "b": 2.0}
    f, x = tn.jit(lambda x: x * sum(k * v for k, v in enumerate(table.values(), 1))), ones(1)
    for change in (lambda: None, lambda: table.update(a=3.0), lambda: table.update(c=1.0), lambda: table.pop("a"),
                   lambda: table.update(a=3.0), lambda: table.update(b=float("2")), table.clear):
        change()
        for _ in range(3):
            assert f(x).item() == f.function(x).item()


@pytest.mark.parametrize("size", [3, 50_000])
def test_a_way_that_the_graph_does_not_hold_changes_nothing_before_the_function_runs(size):
    seen = []
    for run in (lambda f: f, tn.jit):
        w = tn.ones(size)

        def step(x, w=w):
            w.assign(w * 2)
            if x.sum() > 2 * size:
                raise ValueError("too large")
            return w.sum()
        step, values = run(step), []
        for k in range(8):
            try:
                values.append(step(tn.full((size,), 3.0 if k % 3 == 2 else 1.0)).item())
            except ValueError as error:
                values.append(str(error))
            values.append(w[0].item())
        seen.append(values)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("size", [3, 50_000])
def test_state_that_branches_and_loops_assign(size):
    seen = []
    for run in (lambda f: f, tn.jit):
        w, n = tn.ones(size), tn.tensor(0)

        def step(x, w=w, n=n):
            n.assign(n + 1)
            if x.sum() > 0:
                w.assign(w + x)
            else:
                w.assign(w * 2)
            k = n * 1
            while k > 0:
                w.assign(w + 1)
                k = k - 2
            return w.mean()
        step = run(step)
        seen.append([(step(tn.full((size,), (-1.0) ** k)).item(), w[0].item(), n.item()) for k in range(9)])
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-5)


# ---------------------------------------------------------------- work that takes long

LARGE = np.random.default_rng(0).standard_normal((2, 300, 300)).astype(np.float32)


def product_of_large(monkeypatch):
    """A jitted product that has its fast path, its arguments, the right result, and its slow calls from now on."""
    f, x, y = tn.jit(lambda x, y: x @ y), tn.asarray(LARGE[0]), tn.asarray(LARGE[1])
    for _ in range(3):
        want = f(x, y).numpy()
    return f, x, y, want, long_calls(f, monkeypatch)


def test_large_products_take_it_on_any_number_of_threads(monkeypatch, two_threads):
    f, x, y, want, seen = product_of_large(monkeypatch)
    assert np.array_equal(f(x, y).numpy(), want) and not seen
    np.testing.assert_allclose(want, LARGE[0] @ LARGE[1], rtol=1e-3, atol=1e-3)


def test_another_number_of_threads_takes_the_slow_path_once(monkeypatch, two_threads):
    f, x, y, want, seen = product_of_large(monkeypatch)
    tn.set_num_threads(3)
    for _ in range(4):
        assert np.array_equal(f(x, y).numpy(), want)
    assert len(seen) == 1


def test_python_threads_may_use_it_at_the_same_time(monkeypatch, two_threads):
    f, _, y, want, _ = product_of_large(monkeypatch)
    others = [tn.asarray(LARGE[0] * k) for k in (1, 2, 4)]
    wrong = []

    def work(k):
        results = [f(others[k], y).numpy() for _ in range(20)]
        wrong.extend(k for result in results if not np.array_equal(result, want * 2 ** k))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_it_reads_stays_while_it_runs(monkeypatch, two_threads):
    f, x, y, want, seen = product_of_large(monkeypatch)
    held = [sys.getrefcount(t.own.payload) for t in (x, y)]
    results = [f(x, y) for _ in range(5)]
    assert [sys.getrefcount(t.own.payload) for t in (x, y)] == held and not seen
    assert all(sys.getrefcount(r.own.payload) == 2 for r in results)
    assert all(np.array_equal(r.numpy(), want) for r in results)


def test_an_answer_is_like_any_other_tensor(monkeypatch):
    f, x = tn.jit(lambda x: x + 1), ones(3)
    for _ in range(3):
        y = f(x)
    reference = weakref.ref(y)
    assert type(y) is tn.Tensor and y.grad is None and y.node is None and y.requires_grad is False
    assert gc.is_tracked(y) and repr(y) == repr(x + 1)
    del y
    assert reference() is None


def test_one_tensor_in_two_places_and_names_go_another_way(monkeypatch):
    f, x, y = tn.jit(lambda x, y: x - y), ones(3), ones(3)
    for _ in range(3):
        f(x, y)
    seen = long_calls(f, monkeypatch)
    assert f(x, x).numpy().tolist() == [0, 0, 0] and f(x, y=y).numpy().tolist() == [0, 0, 0] and len(seen) == 2
    with pytest.raises(TypeError):
        f(x)


def test_the_native_functions_are_made_while_a_program_is_compiled(monkeypatch):
    asked, f = [], tn.jit(lambda x: tn.exp(x * 2.0) + 1.0)
    monkeypatch.setattr(jit_module, "preload", lambda: asked.append(f))
    for _ in range(3):
        f(ones(3))
    assert asked == [f]


def test_the_second_call_makes_no_code(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SECOND_CALL)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=os.environ | {
        "TENON_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(Path(__file__).parents[2])})
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


SECOND_CALL = """
import threading
import tenon as tn
from tenon.observe import subscribe

f, compiled = tn.jit(lambda x: tn.exp(x * 2.0) + 1.0), []
f(tn.ones(3))
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
subscribe(lambda event: compiled.append(event.fields["text"]) if event.name == "llvm.compile" else None)
f(tn.ones(3))
f(tn.ones(3))
print(compiled)
"""


def test_all_threads_have_the_same_native_functions():
    from tenon.cpython.jit_fast_call import library
    preload()
    assert library(state_slots()) is library(state_slots())

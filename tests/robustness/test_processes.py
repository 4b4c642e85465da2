"""Fork, spawn, exit and interrupts with a thread pool at work; the same bits on any number of threads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = """
import os, signal, sys, threading, time
import numpy as np
import tenon as tn
f = tn.jit(lambda x: tn.tanh(x * 2).sum(axis=1))
x = tn.asarray(np.random.default_rng(0).standard_normal((400, 400)).astype(np.float32))
want = f.function(x).numpy()
def right():
    return bool(np.allclose(f(x).numpy(), want, atol=1e-4))
def child(end):
    pid = os.fork()
    if pid == 0:
        new = tn.jit(lambda x: (x @ x).sum())
        end(0 if right() and np.isfinite(float(new(x))) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert right()
"""

CHILD = """
import os, sys, threading, time
import tenon as tn
def child(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    for _ in range(6000):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.02)
    os.kill(pid, 9)
    raise SystemExit("the child hangs")
"""
SLOW_IMPORT = CHILD + """
loading = threading.Event()
class Slow:
    def find_spec(self, name, *rest):
        if name == sys.argv[1]:
            loading.set()
            time.sleep(0.5)
sys.meta_path.insert(0, Slow())
x = tn.ones(3)
"""


def run(program, *arguments, threads=3, check=0, cache=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TENON_THREADS": str(threads)}
    environment |= {"TENON_CACHE": cache} if cache else {}
    done = subprocess.run([sys.executable, *arguments, *(["-c", program] if program else [])], capture_output=True,
                          text=True, timeout=300, env=environment)
    assert done.returncode == check, done.stderr[-2000:]
    return done.stdout


def test_exit_with_parked_workers():
    assert run(START) == ""


def test_exit_in_the_middle_of_a_run():
    run(START + """
def work():
    while True:
        f(x)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
""")


def test_the_exit_code_is_the_users():
    run(START + "sys.exit(7)", check=7)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_after_use_and_beside_a_running_thread():
    run(START + """
child(os._exit)
child(sys.exit)
stop = []
def work():
    while not stop:
        f(x)
thread = threading.Thread(target=work)
thread.start()
for _ in range(3):
    child(os._exit)
stop.append(1)
thread.join()
assert right()
""")


def test_fork_while_another_thread_captures_or_draws():
    run(START + CHILD + """
from threading import Event
inside, go_on = Event(), Event()
def slow(x):
    inside.set()
    go_on.wait(20)
    return x + 1
generator = tn.random.Generator(1)
g = tn.jit(slow)
for target, work in ((lambda: g(x), lambda: (go_on.set(), g(x))),
                     (lambda: generator.draw(slow), lambda: generator.draw(lambda state: state))):
    inside.clear(), go_on.clear()
    thread = threading.Thread(target=target)
    thread.start()
    inside.wait(20)
    child(work)
    go_on.set()
    thread.join()
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_while_eager_calls_load_the_compiler(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SLOW_IMPORT + """
from tenon.eager import native_fast_path
for _ in range(native_fast_path.MIN_CALLS + 10):
    x + x
if loading.wait(20):
    child(lambda: tn.jit(lambda x: tn.exp(x) + x)(x))
""")
    run("", str(program), "llvmlite")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("module", ["tenon.pipeline", "llvmlite", "tenon.loops.lower"])
def test_fork_while_a_first_jitted_call_loads_the_compiler(tmp_path, module):
    program = tmp_path / "program.py"       # in which another thread is in the middle of an import
    program.write_text(SLOW_IMPORT + """
thread = threading.Thread(target=lambda: tn.jit(lambda x: tn.exp(x) + x)(x))
thread.start()
assert loading.wait(60)
child(lambda: tn.jit(lambda x: tn.exp(x) * x)(x))
thread.join()
""")
    run("", str(program), module, cache=str(tmp_path))


def test_threads_go_on_to_compile_once_the_main_thread_has_ended(tmp_path):
    """Neither are libraries loaded then that want to know when it ends, nor is work given to pools that know it."""
    text = run("""
import threading, tenon as tn
def work():
    threading.main_thread().join()
    for n in (2, 3):
        print(tn.jit(lambda x: tn.exp(x * n) @ (x + 1))(tn.zeros(n, n)).tolist())
threading.Thread(target=work).start()
""", cache=str(tmp_path))
    assert text == "[[2.0, 2.0], [2.0, 2.0]]\n[[3.0, 3.0, 3.0], [3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]\n"


def test_functions_are_compiled_where_no_thread_can_be_started(tmp_path):
    text = run("""
import threading
import tenon as tn
def refuse(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
def long(x):
    for _ in range(60):
        x = tn.tanh(x @ x) + 1
    return x.sum()
f = tn.jit(long)
for n in (40, 40, 3):
    print(abs(float(f(tn.full((n, n), 0.1))) - float(long(tn.full((n, n), 0.1)))) < 1e-3 * n * n)
""", cache=str(tmp_path))
    assert text == "True\n" * 3


def test_a_loader_goes_on_once_the_main_thread_has_ended():
    text = run("""
import threading
from tenon.data import DataLoader
def work():
    for workers in (1, 2):
        loader = iter(DataLoader(range(5), batch_size=2, num_workers=workers, prefetch_factor=1))
        first = next(loader).tolist() if workers == 1 else []
        threading.main_thread().join()
        print(first, [batch.tolist() for batch in loader])
threading.Thread(target=work).start()
""")
    assert text == "[0, 1] [[2, 3], [4]]\n[] [[0, 1], [2, 3], [4]]\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_waits_for_every_import_of_what_compiles(tmp_path):
    """What a function loads when it is first called, any thread may be in the middle of."""
    text = run("""
import sys
import tenon as tn
from tenon.locks import unforked
class Watch:
    def find_spec(self, name, *rest):
        if name.startswith(("tenon.", "llvmlite", "numpy")) and not unforked.lock._is_owned():
            print(name)
sys.meta_path.insert(0, Watch())
x, weight = tn.rand(6, 6), tn.rand(6, 6, requires_grad=True)
def loop(x):
    while x.sum() > 0:
        x = x - 1
    return x
jit = tn.jit
for f in (lambda x: x @ x, lambda x: x @ weight, tn.grad(lambda x: tn.softmax(x @ x).sum()), loop, tn.linalg.inv,
          lambda x: tn.scan(lambda sum, row: (sum + row, row), x[0], x), lambda x: float(x.sum()) * x):
    g = jit(f)
    for _ in range(3):
        g(x)
with tn.no_grad():
    jit(lambda x: x @ weight)(x)
jit(lambda x: x @ x, autotune=True)(x)
tn.sort(tn.rand(1000, 100))
""", "-u", cache=str(tmp_path))
    assert text == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_while_another_thread_compiles():
    """Python 3.11 computes a cached property of any object under one lock, which the child found held."""
    run(START + """
from tenon.capture import captured
compiled, inside = captured.program_of, threading.Event()
def program_of(graph):
    inside.set()
    time.sleep(0.5)
    return compiled(graph)
captured.program_of = program_of
thread = threading.Thread(target=lambda: tn.jit(lambda x: x * 2)(x))
thread.start()
assert inside.wait(60)
pid = os.fork()
if not pid:
    signal.alarm(100)       # which ends a child that waits
    os._exit(0 if tn.jit(lambda x: x * 3)(x).shape == x.shape else 3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
thread.join()
""")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import multiprocessing, sys
import tenon as tn
def work(k):
    return float(tn.jit(lambda x: (x @ x).sum() * k)(tn.ones((100, 100))))
if __name__ == "__main__":
    work(1)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map(work, [1, 2, 3]))
""")
    assert run("", str(program), method) == "[1000000.0, 2000000.0, 3000000.0]\n"


def test_an_interrupt_between_runs():
    # Again much later, as a person would: Python drops an interrupt that arrives in a finalizer.  A process started in
    # the background inherits that interrupts are ignored.
    run(START + """
signal.signal(signal.SIGINT, signal.default_int_handler)
done = threading.Event()
def interrupt():
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
    while not done.wait(10):
        os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    while True:
        f(x)
except KeyboardInterrupt:
    done.set()
assert right()
""")


TRAINING = """
import hashlib
import numpy as np
import tenon as tn
from tenon import nn
tn.manual_seed(0)
net = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Dropout(0.3), nn.LayerNorm(400), nn.Linear(400, 10))
optimizer = tn.optim.Adam(net.parameters(), lr=0.01)
@tn.jit
def step(x, y):
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
rng = np.random.default_rng(0)
for _ in range(3):
    loss = step(rng.standard_normal((256, 300)).astype(np.float32), rng.integers(0, 10, 256))
values = [loss, *net.parameters()]
print(hashlib.sha256(b"".join(np.ascontiguousarray(v.numpy()).tobytes() for v in values)).hexdigest())
"""


def test_the_same_bits_on_any_number_of_threads():
    assert len({run(TRAINING, threads=n) for n in (1, 2, 3)}) == 1


SHORT_ROWS = """
import hashlib
import numpy as np
import tenon as tn
from tenon import nn
for rows in (1000, 6720):
    x = np.random.default_rng(0).standard_normal((rows, 4))
    print(hashlib.sha256(tn.jit(lambda x: nn.functional.layer_norm(x, (4,)))(x).numpy().tobytes()).hexdigest())
"""


def test_short_rows_are_added_up_in_one_order_wherever_a_threads_part_ends():
    assert len({run(SHORT_ROWS, threads=n) for n in (1, 2, 3)}) == 1

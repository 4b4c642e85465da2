"""IR text -> machine code: right, in parallel, through the disk, and with errors that name the culprit."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
from llvmlite.binding import ffi

from tenon.llvm import llvm_codegen, machine_code
from tenon.llvm.code_cache import CodeCache
from tenon.observe import subscribe

ANSWER = "define i32 @answer() {{ ret i32 {} }}"
SAXPY = """
define void @saxpy(ptr noalias %x, ptr noalias %y, float %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %px = getelementptr float, ptr %x, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %vx = load float, ptr %px
  %vy = load float, ptr %py
  %ax = fmul float %vx, %a
  %sum = fadd float %ax, %vy
  store float %sum, ptr %py
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


def call(library: machine_code.Library, name: str, result: type = ctypes.c_int32, *arguments: object) -> object:
    return ctypes.CFUNCTYPE(result, *[type(one) for one in arguments])(library.address(name))(*arguments)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    cache = CodeCache(tmp_path)
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    return cache


@pytest.fixture
def compiled():
    texts = []
    stop = subscribe(lambda event: texts.append(event.fields["text"]) if event.name == "llvm.compile" else None)
    yield texts
    stop()


def test_a_module_runs(disk):
    assert call(machine_code.compile(ANSWER.format(42)), "answer") == 42


def test_loops_are_vectorised():
    assert "<8 x float>" in machine_code.optimised(SAXPY) or "<4 x float>" in machine_code.optimised(SAXPY)
    assert "saxpy" in machine_code.assembly(SAXPY)


def test_constants_globals_and_the_math_library_are_linked(disk):
    text = """
    @table = internal constant [4 x double] [double 0.0, double 1.0, double 2.0, double 3.0]
    declare double @exp(double)
    define double @f(i64 %i) {
      %p = getelementptr double, ptr @table, i64 %i
      %x = load double, ptr %p
      %y = call double @exp(double %x)
      %z = fadd double %y, 0.125
      ret double %z
    }"""
    assert call(machine_code.compile(text), "f", ctypes.c_double, ctypes.c_int64(0)) == 1.125


def test_two_libraries_may_use_the_same_names(disk):
    first, second = machine_code.compile(ANSWER.format(1)), machine_code.compile(ANSWER.format(2))
    assert (call(first, "answer"), call(second, "answer")) == (1, 2)


def test_a_library_outlives_its_builder_and_unloading_leaves_the_others_alone(disk):
    kept = machine_code.compile(ANSWER.format(1))
    call(kept, "answer")
    for number in range(20):
        assert call(machine_code.compile(ANSWER.format(number)), "answer") == number
    gc.collect()
    assert call(kept, "answer") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define i32 @f() { ret i64 0 }", "LLVM refuses the module"),
        ("nonsense", "LLVM refuses the module"),
        ("declare void @no_such()\ndefine void @f() { call void @no_such()\n ret void }", "calls no_such, which"),
    ],
)
def test_a_bad_module_is_refused_with_the_reason(disk, text, message):
    with pytest.raises(machine_code.CodeError, match=message):
        machine_code.compile(text)


def test_a_missing_name_and_bad_object_code_are_errors_not_crashes(disk):
    with pytest.raises(machine_code.CodeError, match="question"):
        machine_code.compile(ANSWER.format(1)).address("question")
    data = machine_code.compile_object(ANSWER.format(1))
    for damaged in (b"", b"nonsense", data[: len(data) // 2]):
        with pytest.raises(machine_code.CodeError):
            machine_code.Library(damaged)


def test_the_same_text_is_compiled_once_in_a_process_and_once_on_a_disk(disk, compiled):
    first, again = machine_code.compile(ANSWER.format(7)), machine_code.compile(ANSWER.format(7))
    assert first is again is machine_code.compile(ANSWER.format(7)) and len(compiled) == 1
    del first, again
    gc.collect()
    assert call(machine_code.compile(ANSWER.format(7)), "answer") == 7 and len(compiled) == 1


def test_object_code_that_cannot_be_loaded_is_compiled_again(disk, compiled):
    call(machine_code.compile(ANSWER.format(8)), "answer")
    (entry,) = disk.directory.glob("*.object")
    disk.put(entry.stem, b"whole, but not code")
    gc.collect()
    assert call(machine_code.compile(ANSWER.format(8)), "answer") == 8 and len(compiled) == 2


def test_other_threads_can_use_llvm_while_one_compiles():
    """llvmlite's lock is not held through the passes or through code generation: in the time of the processor."""
    text = "\n".join(SAXPY.replace("@saxpy", f"@f{number}") for number in range(40))
    here, since, held = threading.get_ident(), [], []

    def taken():
        if threading.get_ident() == here:
            since.append(time.thread_time())

    def given_back():
        if threading.get_ident() == here:
            held.append(time.thread_time() - since.pop())
    machine_code.compile_object(ANSWER.format(1))       # LLVM is ready for this machine
    ffi.register_lock_callback(taken, given_back)
    try:
        start = time.thread_time()
        machine_code.compile_object(text)
        assert max(held) < 0.25 * (time.thread_time() - start)
    finally:
        ffi.unregister_lock_callback(taken, given_back)


def test_importing_tenon_does_not_import_llvmlite():
    script = "import sys, tenon, tenon.config, tenon.backends; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_threads_that_compile_first_all_get_the_same_linker():
    script = """
import threading, time
from tenon.llvm import machine_code
make = machine_code.llvm.create_lljit_compiler
machine_code.llvm.create_lljit_compiler = lambda **options: (time.sleep(0.05), make(**options))[1]
libraries = {}
def build(k):
    libraries[k] = machine_code.compile(f"define i32 @f{k}() {{ ret i32 {k} }}")
threads = [threading.Thread(target=build, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert all(libraries[k].address(f"f{k}") for k in range(8))
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "TENON_CACHE": "off"})


def test_code_stays_where_two_threads_look_for_a_function_at_once(disk, monkeypatch):
    """The linker frees a library with the first tracker that goes: that of the slower thread was dropped."""
    library, linker, trackers = machine_code.compile(ANSWER.format(1)), machine_code._linker(), []

    class Slow:
        def lookup(self, *names):
            tracker = linker.lookup(*names)
            trackers.append(weakref.ref(tracker))
            if len(trackers) == 1:
                library.address("answer")       # as another thread does meanwhile
            return tracker

    monkeypatch.setattr(machine_code, "_linker", Slow)
    library.address("answer")
    assert len(trackers) == 2 and None not in [tracker() for tracker in trackers]


def test_too_many_libraries_are_an_error_not_the_end_of_the_process(disk, monkeypatch):
    data = machine_code.compile_object(ANSWER.format(5))
    gc.collect()
    limit = len(machine_code._alive) + 1
    monkeypatch.setattr(machine_code, "most_libraries", lambda: limit)
    library = machine_code.Library(data)
    with pytest.raises(machine_code.CodeError, match="kernels are in memory"):
        machine_code.Library(data)
    assert call(library, "answer") == 5


@pytest.mark.parametrize("loops, unrolls, expected", [(4, False, (1, False)), (5, False, (2, False)), (1, True, (2, True))])
def test_few_loops_get_less_of_llvm_unless_they_are_unrolled(loops, unrolls, expected):
    text = "  %i = phi i64 [0, %a], [%j, %b]\n" * loops + ('!0 = !{ !"llvm.loop.unroll.full" }\n' if unrolls else "")
    assert llvm_codegen.effort(text) == expected


COSINES = """
import tenon as tn
@tn.jit
@tn.grad
def cosines(x):
    return tn.square(tn.cosine_similarity(x, x.reshape(-1)[:3].reshape(1, 3), axis=-1)).sum()
cosines(tn.ones(2, 3))
"""


def test_loops_that_hold_masks_or_loops_are_unrolled_without_a_word() -> None:
    process = subprocess.run([sys.executable, "-c", COSINES], capture_output=True, text=True, check=True,
                             env={**os.environ, "TENON_CACHE": "off", "TENON_VECTORS": "256", "PYTHONPATH": os.getcwd()})
    assert process.stderr == ""


PATCHES = """
import numpy as np
import tenon as tn

@tn.jit
def sums(x, places):        # of 2 x 2 patches of 3 x 3: a body with 36 maxima, one after the other, of failed places
    return tn.take(x.reshape(16, 25), places.reshape(-1), axis=1).reshape(2, 8, 2, 3, 2, 3).sum(axis=(3, 5))

rows = np.array([[0, 1, 2], [2, 3, 4]])
print(sums(tn.ones((2, 8, 5, 5)), tn.tensor(rows[:, :, None, None] * 5 + rows)).max().item())
"""


def test_what_llvm_compiles_ends() -> None:
    process = subprocess.run([sys.executable, "-c", PATCHES], capture_output=True, text=True, check=True, timeout=120,
                             env={**os.environ, "TENON_CACHE": "off"})
    assert process.stdout == "9.0\n"

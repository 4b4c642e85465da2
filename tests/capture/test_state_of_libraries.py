"""What libraries keep and code asks them for, and what objects do at their end: as eagerly, at every call."""

import array
import calendar
import contextlib
import decimal
import io
import threading
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from tenon.capture.code_origin import FILES, FRONT_END, library_folders
from tenon.capture.convert.callees import CONTAINERS, OPTIMIZERS


def check(function, around, log=lambda: None, calls=6):
    """Each call within its block gives the same jitted; `log` is what eager calls leave, and jitted ones."""
    jitted = tn.jit(function)
    found = []
    for called in (function, jitted):
        for k in range(calls):
            with around(k):
                found.append((called(tn.ones(2)).tolist(), log()))
    assert found[calls:] == found[:calls]
    return jitted


@contextlib.contextmanager
def first_day(k):
    calendar.setfirstweekday(k)
    try:
        yield
    finally:
        calendar.setfirstweekday(0)


@contextlib.contextmanager
def threads(k):
    event = threading.Event()
    started = [threading.Thread(target=event.wait) for _ in range(k % 3)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        event.set()
        for thread in started:
            thread.join()


def test_how_numpy_deals_with_errors():
    check(lambda x: x * (2 if np.geterr()["divide"] == "ignore" else 1),
          lambda k: np.errstate(divide="ignore" if k % 2 else "warn"))


@contextlib.contextmanager
def digits(k):
    with decimal.localcontext() as context:
        context.prec = (28, 3, 5)[k % 3]
        yield


def test_how_many_digits_decimals_have():
    third = decimal.Decimal(3)
    check(lambda x: x * float(decimal.Decimal(1) / decimal.Decimal(3)), digits)
    check(lambda x: x * float(1 / third), digits)
    check(lambda x, divisor=third: x * float(1 / divisor), digits)


def test_an_array_whose_memory_others_look_into():
    for make in (lambda: array.array("d", [1, 2]), lambda: bytearray(b"ab")):
        seen = []
        for jit in (lambda f: f, tn.jit):
            numbers = make()
            view = memoryview(numbers)

            def step(x, numbers=numbers):
                numbers[0] += 1
                return x * numbers[0]
            run = jit(step)
            seen.append([(run(tn.ones(2)).tolist(), view[0]) for _ in range(3)])
        assert seen[0] == seen[1]


def test_a_decorator_that_is_a_context_manager():
    for jit in (lambda f: f, tn.jit):
        log = []

        class Logged(contextlib.ContextDecorator):
            def __enter__(self, log=log):
                log.append("in")

            def __exit__(self, *_, log=log):
                log.append("out")

        @jit
        @Logged()
        def read(x):
            return x * float(io.StringIO("2").read())
        for _ in range(3):
            assert read(tn.ones(1)).item() == 2
        assert log == ["in", "out"] * 3


def test_how_numpy_prints():
    check(lambda x: x * np.get_printoptions()["precision"], lambda k: np.printoptions(precision=k + 1))
    check(lambda x: x * len(str(np.float32([1 / 3]))), lambda k: np.printoptions(precision=k + 1))


def test_the_first_day_of_a_week():
    jitted = check(lambda x: x * calendar.firstweekday(), first_day)
    assert all(record.eager is None for record in jitted.records.values())


def test_how_many_threads_there_are():
    check(lambda x: x * threading.active_count() + len(threading.enumerate()), threads)


def test_what_a_closure_keeps_that_is_not_called():
    kept = 1.0

    def other():
        return kept

    @contextlib.contextmanager
    def with_another(k):
        other.__closure__[0].cell_contents = float(k)
        yield
    check(lambda x: x * other.__closure__[0].cell_contents, with_another)


def test_the_end_of_an_object_comes_once():
    log = []

    class Resource:
        def __init__(self, size):
            self.size = size

        def __del__(self):
            log.append(self.size)

    def take():
        taken, log[:] = log[:], []
        return taken

    def function(x):
        resource = Resource(2.0)
        y = x * resource.size
        del resource
        return y

    def within(x):
        with contextlib.suppress(ValueError):
            return x * Resource(3.0).size
    check(function, lambda k: contextlib.nullcontext(), take)
    check(within, lambda k: contextlib.nullcontext(), take)


def test_what_pip_installed_for_a_user_is_a_library():
    of_a_user, of_debian = "/home/u/.local/lib/python3.11/site-packages", "/usr/local/lib/python3/dist-packages/"
    found = library_folders(["/home/u/project", of_a_user, of_debian])
    assert {of_a_user, of_debian} < {*found} and "/home/u/project" not in found
    assert np.__file__.startswith(found)


def test_a_file_of_tensors_is_read_and_written_in_every_call(tmp_path):
    @tn.jit
    def f(x):
        y = x + tn.load(tmp_path / "given.safetensors")["w"]
        tn.save({"y": y}, tmp_path / "made.safetensors")
        return y
    for k in range(5):
        tn.save({"w": tn.tensor([1.0 + k, 2.0])}, tmp_path / "given.safetensors")
        assert f(tn.zeros(2)).tolist() == [1.0 + k, 2.0]
        assert tn.load(tmp_path / "made.safetensors")["y"].tolist() == [1.0 + k, 2.0]


@pytest.mark.parametrize("paths", [FILES, FRONT_END, CONTAINERS, OPTIMIZERS])
def test_paths_of_tenons_own_code_are_there(paths):
    assert [path for path in paths if not Path(path).exists()] == []

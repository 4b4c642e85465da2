"""Whatever goes wrong within capture or compilation, the call does what eager code does, and `tn.explain` counts it."""

import asyncio
import concurrent.futures
import functools
import gc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from capture.both import outcome, same
from tenon.capture.code_origin import CONVERTING, FILES, FRONT_END
from tenon.capture.convert.callees import CONTAINERS, OPTIMIZERS
from tenon.capture.convert.capture_branches import OWN_FILES
from tenon.capture.finish_capture import _Leaves
from tenon.errors import ArgumentError, CaptureError

Made = Callable[[Any], Any]


def agree(make: Callable[[Any], Callable[[Any], Any]], inputs: list[Any]) -> Any:
    """Compare a function with its jitted form on each input; returns the latter."""
    eager, jitted = make(lambda f: f), make(tn.jit)
    for k, x in enumerate([*inputs, *inputs]):
        same(outcome(lambda x=x: eager(x)), outcome(lambda x=x: jitted(x)), f"call {k}")
    return jitted


def test_a_variable_bound_within_a_generator_of_any_is_used_after_it() -> None:
    def make(jit: Made) -> Any:
        @jit
        def first_large(xs):
            return hit if any((hit := x.sum()) > 4 for x in xs) else -1.0
        return first_large
    agree(make, [[tn.tensor([float(k)]) for k in numbers] for numbers in ((1, 5, 9), (1, 2, 3), (7, 1, 1))])


@pytest.mark.parametrize("use", [
    lambda x, n: tn.zeros(n), lambda x, n: tn.ones(n, 2), lambda x, n: tn.full((2, n), 3.0),
    lambda x, n: tn.one_hot(tn.tensor([0, 1]), n), lambda x, n: tn.eye(n), lambda x, n: x[:n],
    lambda x, n: tn.pad(x, [(0, n)]), lambda x, n: tn.arange(n), lambda x, n: x.repeat(n), lambda x, n: [x] * n])
def test_a_number_of_the_data_is_a_size(use: Callable[[Any, Any], Any]) -> None:
    agree(lambda jit: jit(lambda x: use(x, int(x.max()))), [tn.tensor([1.0, k]) for k in (2.0, 5.0, 3.0)])


def test_tensors_are_used_in_other_threads() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(abs, [1, 2, 3]))
        agree(lambda jit: jit(lambda x: sum(pool.map(lambda v: v * 2, [x, x + 1]))),
              [tn.tensor([k]) for k in (1.0, 2.0)])


def test_arguments_that_contain_themselves_are_left_to_python() -> None:
    loop: list[Any] = [tn.ones(2)]
    loop.append(loop)
    jitted = tn.jit(lambda xs: xs[1][1][0] * 2)
    for _ in range(3):
        assert jitted(loop).tolist() == [2.0, 2.0]
    assert "contains itself" in str(tn.explain(jitted, loop))


def test_a_mistake_within_capture_is_counted_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: Any) -> Any:
        raise KeyError("of Tenon's own")
    monkeypatch.setattr(_Leaves, "stores", mistaken)
    noted: list[int] = []

    def f(x):
        noted.append(1)
        return x * 2
    jitted = tn.jit(f)
    for k in range(3):
        assert jitted(tn.ones(2)).tolist() == [2.0, 2.0]
        assert len(noted) == k + 1
    assert "f: 0 captures, 1 bug" in str(tn.explain(jitted)) and "of Tenon's own" in str(tn.explain(jitted))
    with pytest.raises(CaptureError, match="of Tenon's own"):
        tn.jit(f, fullgraph=True)(tn.ones(2))


def test_a_mistake_of_the_compiler_is_counted_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: Any) -> Any:
        raise RecursionError("in a pass")
    monkeypatch.setattr("tenon.capture.captured.program_of", mistaken)
    monkeypatch.setattr("tenon.capture.captured.WithConstants", mistaken)
    jitted = tn.jit(lambda x: tn.cumsum(x * 2.5, axis=0))
    for _ in range(4):
        assert jitted(tn.ones(2)).tolist() == [2.5, 5.0]
    assert "1 bug" in str(tn.explain(jitted)) and "in a pass" in str(tn.explain(jitted))


def test_an_error_of_the_program_is_no_bug() -> None:
    def f(x):
        if x.shape[0] > 2:
            raise KeyError("too long")
        return x
    jitted = tn.jit(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="too long"):
            jitted(tn.ones(3))
    assert "bug" not in str(tn.explain(jitted))


def test_fullgraph_is_refused_at_every_call() -> None:
    jitted = tn.jit(lambda x: max(x.tolist()), fullgraph=True)
    for _ in range(3):
        with pytest.raises(CaptureError, match="needs the value of a tensor"):
            jitted(tn.tensor([1.0, -1.0]))


def test_what_has_no_single_result_is_refused_by_name() -> None:
    def numbers(k, x):
        yield x * k

    class Later:
        async def __call__(self, x):
            return x

    def runs_to_its_end(coroutine):
        @functools.wraps(coroutine)
        def wrapper(*args):
            return asyncio.run(coroutine(*args))
        return wrapper
    for function, name in ((functools.partial(numbers, 1), "numbers"), (functools.lru_cache(numbers), "numbers"),
                           (Later(), "__call__")):
        with pytest.raises(ArgumentError, match=f"{name} is a generator or a coroutine"):
            tn.jit(function)
    with warnings.catch_warnings(action="ignore"):      # of the coroutine that the capture made, and left
        assert tn.jit(runs_to_its_end(Later().__call__))(tn.ones(1)).tolist() == [1.0]
        gc.collect()


def test_a_function_that_returns_nothing_it_computes_of_weights() -> None:
    weight = tn.tensor([1.0, 2.0])

    def make(jit: Made) -> Any:
        @jit
        def f(x: Any) -> Any:
            unread = weight * x
            return weight if x.ndim > 1 else (unread, x)[1]
        return f
    jitted = agree(make, [tn.tensor([1.0, 2.0]), tn.tensor([[1.0]])])
    assert "bug" not in str(tn.explain(jitted))


def test_the_gradient_of_many_rows_read_one_by_one():
    """Whose views stand behind one another, each of what the one before it reads."""
    def last(y):
        v = y[0]
        for row in y:
            v = v * 0.5 + row
        return tn.square(v)
    y = tn.asarray(np.linspace(-1, 1, 382).astype(np.float32))
    np.testing.assert_allclose(tn.jit(tn.grad(last), fullgraph=True)(y).numpy(), tn.grad(last)(y).numpy(), rtol=1e-5)


def test_the_files_that_are_known_by_their_paths():
    """A file that was renamed would be taken for the program's, without a word."""
    for name in (*OWN_FILES, *CONTAINERS, *OPTIMIZERS, *FILES, *FRONT_END, CONVERTING):
        assert Path(name).exists(), name

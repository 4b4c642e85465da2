"""What is asked of the kind of a value that the data choose: `callable`, `tn.is_tensor`."""

from collections.abc import Callable
from typing import Any

import pytest

import tenon as tn


class Called:
    def __call__(self) -> int:
        return 1


class Plain:
    pass


def functions(x: Any) -> Any:
    found = tn.exp if x.sum() > 7 else (lambda v: v * 2)
    return callable(found), found(x * 0.1)


def classes(x: Any) -> Any:
    found = Called if x.sum() > 7 else Plain
    return callable(found), callable(found())


def perhaps(x: Any) -> Any:
    found = Called() if x.sum() > 7 else None
    return "yes" if callable(found) else "no"


def a_number_is_no_tensor(x: Any) -> Any:
    number = x.sum().item()
    whole = int(x[0]) + 1 if x.sum() > 7 else 2
    return [tn.is_tensor(v) for v in (number, whole, x, x.sum(), len(x), None)]


def shown(x: Any) -> Any:
    found = {"loss": x.mean(), "count": int(x.max()), "none": None}
    return {k: v.item() if tn.is_tensor(v) else v for k, v in found.items()}


@pytest.mark.parametrize("function", [functions, classes, perhaps, a_number_is_no_tensor, shown])
def test_as_eagerly(function: Callable[..., Any]) -> None:
    jitted = tn.jit(function, fullgraph=True)
    for values in ([3.0, 3.0], [9.0, 9.0], [3.0, 3.0], [9.0, 1.0]):
        assert repr(function(tn.tensor(values))) == repr(jitted(tn.tensor(values)))


def test_a_number_of_the_graph_decides_no_element_type() -> None:
    def made(x: Any) -> Any:
        n, k = x.mean().item(), int(x.max())
        return (tn.linspace(0, n, 3), tn.linspace(n, k, 3), tn.linspace(0, k, 3), tn.linspace(x.mean(), n, 2),
                tn.ones_like(n), tn.full_like(n, 2), tn.zeros_like(k),
                tn.result_type(n, tn.float16), tn.result_type(k, tn.int8), tn.result_type(n, x))

    jitted = tn.jit(made, fullgraph=True)
    for values in ([3.0, 3.0], [5.0, 1.0], [3.0, 3.0]):
        assert repr(made(tn.tensor(values))) == repr(jitted(tn.tensor(values)))

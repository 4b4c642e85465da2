"""A function run eagerly and jitted, call by call: values, types, effects and exceptions must be the same."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenon as tn
from tenon.capture.pytree import flatten

NUMBERS = (3.0, -2.0, 0.5, -0.1, 7.0)


def vector(*values: float) -> tn.Tensor:
    return tn.asarray(np.array(values, np.float32))


VECTORS = ([1.0, -2.0, 3.0], [-1.0, -2.0, 0.5], [4.0, 3.0, 2.0], [0.0, 0.0, 0.0])


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or how it fails."""
    try:
        result = call()
    except Exception as error:
        return type(error), str(error.args[0] if error.args else "").partition("\n")[0]
    return result


def same(want: Any, got: Any, where: str) -> None:
    """Assert that two outcomes are the same, structure and types included."""
    left, structure = flatten(want)
    right, other = flatten(got)
    assert structure == other, f"{where}: {got!r}, eagerly {want!r}"
    for a, b in zip(left, right, strict=True):
        assert type(a) is type(b), f"{where}: {b!r}, eagerly {a!r}"
        if isinstance(a, tn.Tensor):
            assert a.type == b.type, f"{where}: {b.type}, eagerly {a.type}"
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-6, err_msg=where)
        elif isinstance(a, float):
            np.testing.assert_allclose(b, a, rtol=1e-6, err_msg=where)
        else:
            assert a == b, where


def check(function: Callable[..., Any], inputs: Sequence[Any] = VECTORS, fullgraph: bool = True,
          make: Callable[[], Any] | None = None) -> None:
    """The function on each input, several times; `make` gives it an object of its own as a first argument."""
    eager_object, jitted_object = (make() if make else None for _ in range(2))
    jitted = tn.jit(function, fullgraph=fullgraph)
    for k, values in enumerate([*inputs, *inputs]):
        given = [values] if not isinstance(values, tuple) else list(values)
        def arguments(first: Any, given: Sequence[Any] = given) -> list[Any]:
            tensors = [vector(*x) if isinstance(x, list) else tn.tensor(x) if isinstance(x, float) else x for x in given]
            return [first, *tensors] if make else tensors
        want = outcome(lambda: function(*arguments(eager_object)))
        got = outcome(lambda: jitted(*arguments(jitted_object)))
        same(want, got, f"call {k}")
        if make:
            same(state(eager_object), state(jitted_object), f"state after call {k}")
    if fullgraph:
        assert all(record.eager is None for record in jitted.records.values())


def state(x: Any) -> Any:
    """What an object holds."""
    return dict(vars(x)) if hasattr(x, "__dict__") else x


def captures(function: Callable[..., Any], *inputs: Any) -> int:
    """How many captures calls with these inputs make."""
    jitted = tn.jit(function, fullgraph=True)
    for x in inputs:
        jitted(vector(*x) if isinstance(x, list) else x)
    return sum(len(record.captures) for record in jitted.records.values())

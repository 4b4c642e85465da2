"""Two models and an input -> a table of what their modules give, and the first at which they part.

    print(tn.debug.compare(net, torch_net, x))

Each is a module of Tenon or of PyTorch: hooks note what modules return, and both models are given the same numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.records import dataclass
from tenon.tensor import Tensor, tensor

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-4        # of the largest element of an output
SHOWN = 60              # rows


@dataclass(frozen=True)
class Row:
    """One module in both models; a name is "" where only the other has such a call."""

    name: str
    other: str
    shape: tuple[int, ...] | None
    other_shape: tuple[int, ...] | None
    distance: float | None
    scale: float

    @property
    def parts(self) -> bool:
        """Whether what the two give differs by more than rounding."""
        return self.distance is None or not self.distance <= TOLERANCE * max(1.0, self.scale)

    def __str__(self) -> str:
        both = [x for x in (self.shape, self.other_shape) if x is not None]
        shapes = " and ".join(str(list(x)) for x in dict.fromkeys(both))
        distance = "--" if self.distance is None else f"{self.distance:.1e}"
        judged = "differs" if self.parts else "same"
        return f"{judged:8} {distance:>8}  {self.name or '-':30} {self.other or '-':30} {shapes}"


@dataclass(frozen=True)
class Comparison:
    """The modules of both models in the order in which they returned."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row | None:
        """The first module at which the two part; None where they do not."""
        return next((row for row in self.rows if row.parts), None)

    def __str__(self) -> str:
        head = "the two give the same" if self.first is None else \
            f"they part at {self.first.name or '-'} ({self.first.other or '-'})"
        rows = [str(row) for row in self.rows[:SHOWN]]
        return "\n".join([head, f"{'':8} {'largest':>8}  {'first model':30} {'second model':30} output", *rows])

    __repr__ = __str__


def compare(first: Any, second: Any, *inputs: Any) -> Comparison:
    """What the modules of two models give for the same inputs, side by side.

    Modules of the same name are compared where the names are the same, else in the order in which they return.  Both
    are called once, eagerly, without gradients.  Raises ArgumentError for what is no module.

    >>> a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> _ = b.load_state_dict(a.state_dict())
    >>> compare(a, b, tn.ones(1, 3)).first is None
    True
    """
    one, other = _outputs(first, inputs), _outputs(second, inputs)
    return Comparison(tuple(_rows(one, other)))


def _rows(one: Sequence[tuple[str, Array]], other: Sequence[tuple[str, Array]]) -> Iterator[Row]:
    names, others = [name for name, _ in one], [name for name, _ in other]
    if set(names) & set(others) - {""}:
        left = list(other)
        for name, array in one:
            found = next((k for k, (known, _) in enumerate(left) if known == name), None)
            yield _row(name, array, *(("", None) if found is None else left.pop(found)))
        yield from (_row("", None, name, array) for name, array in left)
        return
    for k in range(max(len(one), len(other))):
        yield _row(*(one[k] if k < len(one) else ("", None)), *(other[k] if k < len(other) else ("", None)))


def _row(name: str, array: Array | None, other: str, found: Array | None) -> Row:
    shapes = (None if array is None else array.shape, None if found is None else found.shape)
    if array is None or found is None or array.shape != found.shape:
        return Row(name or WHOLE * (array is not None), other or WHOLE * (found is not None), *shapes, None, 1.0)
    x, y = (np.asarray(a, np.complex128 if a.dtype.kind == "c" else np.float64) for a in (array, found))
    with np.errstate(all="ignore"):
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    finite = x[np.isfinite(x)]
    return Row(name or WHOLE, other or WHOLE, *shapes, float(np.max(apart, initial=0.0)),
               float(np.abs(finite).max(initial=0.0)))


WHOLE = "(model)"


# ---------------------------------------------------------------- running a model

def _outputs(model: Any, inputs: Sequence[Any]) -> list[tuple[str, Array]]:
    """The outputs of all modules of a model, in the order in which they return; those of the model last."""
    if not (hasattr(model, "named_modules") and hasattr(model, "register_forward_hook")):
        raise ArgumentError(f"compare takes modules, of Tenon or of PyTorch, not {type(model).__name__}")
    found: list[tuple[str, Array]] = []
    torch = sys.modules.get("torch") if not _is_tenons(model) else None
    with ExitStack() as ends:
        for name, module in model.named_modules():
            def note(_: Any, __: Any, output: Any, name: str = name) -> None:
                found.extend((name, array) for array in _arrays(output))
            ends.callback(module.register_forward_hook(note).remove)
        ends.enter_context(no_grad() if torch is None else torch.no_grad())
        model(*[_given(x, torch) for x in inputs])
    return found


def _is_tenons(model: Any) -> bool:
    return any(kind.__module__.startswith("tenon.") for kind in type(model).__mro__)


def _given(x: Any, torch: Any) -> Any:
    """An input as the model takes it."""
    if not isinstance(x, (Tensor, np.ndarray)) and not hasattr(x, "detach"):
        return x
    array = np.asarray(x.detach().numpy() if hasattr(x, "detach") else x)
    return tensor(array) if torch is None else torch.from_numpy(array.copy())


def _arrays(output: Any) -> Iterator[Array]:
    if hasattr(output, "detach"):
        yield np.array(output.detach().numpy())
    elif isinstance(output, (tuple, list)):
        for x in output:
            yield from _arrays(x)
    elif isinstance(output, dict):
        for x in output.values():
            yield from _arrays(x)

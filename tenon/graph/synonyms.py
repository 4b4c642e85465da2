"""Other libraries' names and orders of arguments -> those of the definition that is called.

    x.sum(dim=1, keepdim=True), tn.std(x, unbiased=False), tn.gather(x, 1, indices)     # as PyTorch writes it

A name is translated only where the definition lacks it and has the other one, and an order only where the types of the
arguments leave one reading, so each can mean one thing only.  It happens before arguments are bound: there is one
definition, and one way to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

# What an argument is called elsewhere -> what it may be called here: the first that the definition has.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"), "dims": ("axes", "axis", "reps"), "keepdim": ("keepdims",),
    "start_dim": ("start_axis",), "end_dim": ("end_axis",), "dim2": ("axis2",),
    "p": ("ord",), "rcond": ("rtol",), "unbiased": ("correction",), "ddof": ("correction",),
    "input": ("x", "condition"), "a": ("x",), "other": ("y",), "b": ("y",), "exponent": ("y",),
    "mat": ("y",), "mat1": ("y",), "mat2": ("z", "y"), "vec": ("z", "y"), "vec1": ("y",), "vec2": ("z", "y"),
    "batch1": ("y",), "batch2": ("z",), "end": ("stop", "y"), "A": ("x",), "B": ("y",), "tensor": ("x",),
    "index": ("indices",), "src": ("updates", "values"), "source": ("updates", "values"),
    "value": ("updates", "values", "constant_values"),
    "shifts": ("shift",), "diagonal": ("k",), "offset": ("k",), "steps": ("num",),
    "size": ("shape",), "sizes": ("shape",), "kernel_size": ("kernel",),
    "indices_or_sections": ("sections",), "split_size_or_sections": ("split_size",), "interpolation": ("method",),
    "a_min": ("min",), "a_max": ("max",),
    "tensor1": ("a",), "tensor2": ("b",), "test_elements": ("values",), "test_element": ("values",),
    "elements": ("x",), "element": ("x",), "values": ("y",), "abs": ("x",), "real": ("x",), "imag": ("y",),
    "x1": ("x",), "x2": ("y",), "input1": ("x",), "input2": ("y",), "var": ("variance",), "output_size": ("sizes",),
    "indices": ("x",), "n": ("n_rows",), "m": ("n_cols",), "row": ("rows",), "col": ("columns",),
}
# What says where and how elements lie in memory, of functions that make tensors: it means nothing.
OF_MEMORY = {"layout", "memory_format", "pin_memory"}
# Of two axes to exchange, of those of diagonals, of what is searched.
PAIRS = {"dim0": {"dim0": "axis1", "dim1": "axis2"}, "axis0": {"axis0": "axis1", "axis1": "axis2"},
         "dim2": {"dim1": "axis1", "dim2": "axis2"}, "sorted_sequence": {"sorted_sequence": "x", "input": "values"}}


def renamed(parameters: Collection[str], keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keyword arguments by the names that the definition knows; those that nobody knows stay as they are."""
    unknown = [name for name in keywords if name not in parameters]
    if not unknown:
        return keywords
    pair = next((PAIRS[name] for name in unknown if name in PAIRS), {})
    found: dict[str, Any] = {}
    if "device" in parameters:
        keywords = {name: value for name, value in keywords.items() if name not in OF_MEMORY}
    for name, value in keywords.items():
        known = name in parameters and name not in pair
        meant = (pair[name],) if name in pair else SYNONYMS.get(name, ())
        ours = name if known else next((n for n in meant if n in parameters), name)
        if ours in found or (ours != name and ours in keywords and ours not in pair):
            ours = name         # given twice: the error names what was written
        found[ours] = int(bool(value)) if name == "unbiased" and ours == "correction" else value
    return found


def axis_first(names: tuple[str, ...], args: tuple[Any, ...], keywords: Mapping[str, Any],
               ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """`(x, 1, indices, ...)` as `(x, indices, ..., axis=1)`, where the definition takes (x, indices, ..., axis).

    An axis is a plain number, indices are a tensor, an array or a list; where both are numbers, nothing changes.
    """
    if len(names) < 2 or names[1] != "indices" or len(args) < 2 or type(args[1]) is not int or "axis" not in names:
        return args, keywords
    moved = len(args) > 2 and type(args[2]) is not int
    if "axis" in keywords or not (moved or "indices" in keywords):
        return args, keywords
    data, place = (args[0], *args[2:]), names.index("axis")
    if len(data) > place:           # what comes after the axis, as `reduce`, stays behind it
        return (*data[:place], args[1], *data[place:]), keywords
    return data, {**keywords, "axis": args[1]}


def also_named(**names: str) -> Callable[[F], F]:
    """A function of functions that knows its keywords by other names too: `in_dims="in_axes"`."""
    def decorated(fn: F) -> F:
        @wraps(fn)
        def called(*args: Any, **keywords: Any) -> Any:
            return fn(*args, **{names.get(name, name): value for name, value in keywords.items()})
        return cast(F, called)
    return decorated

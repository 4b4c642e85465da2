"""`tn.add(x, y, out=z)` -> z, rebound to the result, as PyTorch writes it; for every operator and function of them."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

from tenon.errors import ArgumentError, DTypeError, ShapeError

KINDS = "buifc"         # of numbers: each may be kept in the later ones


def written(name: str, call: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """What a call gives, written into `out`: a tensor of its shape or of no elements, or a tuple of them.

    Raises ArgumentError where nobody holds that tensor, as in `out=x[0]`, which would do nothing.
    """
    count = getrefcount(keywords["out"])
    nobodys = count <= _references_of_a_temporary(_note if isinstance(call, type(written)) else _NOTE)
    out = keywords.pop("out")
    result = call(*args, **keywords)
    if out is None:
        return result
    if nobodys and not isinstance(out, (tuple, list)):
        raise ArgumentError(f"{name}: out= is a copy that nobody holds: a slice, or a view, is a tensor of its own",
                            hint=f"x[i] = tn.{name}(...)")
    several = isinstance(result, tuple)
    for held, new in zip(out, result, strict=True) if several else [(out, result)]:
        _write(name, held, new)
    return out


def _write(name: str, held: Any, new: Any) -> None:
    if not hasattr(held, "_rebind"):
        raise ArgumentError(f"{name}: out= must be a tensor, not {type(held).__name__}")
    if held.shape != new.shape and 0 not in held.shape:
        raise ShapeError(f"{name}: out= is {held.type}, the result {new.type}")
    if KINDS.index(new.dtype.kind) > KINDS.index(held.dtype.kind):
        raise DTypeError(f"{name}: out= of {held.dtype.name} does not take the result, {new.dtype.name}")
    held._refuse_leaf(f"{name}(..., out=x)")
    held._rebind(new.astype(held.dtype))


class _Note:
    """Notes how many references a keyword argument has where a call looks at it."""

    def __call__(self, **keywords: Any) -> int:
        return getrefcount(keywords["out"])


def _note(**keywords: Any) -> int:
    return getrefcount(keywords["out"])


def _references_of_a_temporary(note: Callable[..., int]) -> int:
    """How many a call sees of an object that nobody holds, where it can be told from a name's; else 0.

    Asked at each call: there is one more where something looks at every frame (PEP 523), as `torch.compile` does.
    """
    held = _Note()
    count = note(out=_Note())
    return count if count < note(out=held) else 0


_NOTE = _Note()

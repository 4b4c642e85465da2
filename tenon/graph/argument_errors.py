"""What Python or NumPy raises where a call is given arguments that it cannot take -> an error that shows the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from reprlib import Repr
from types import TracebackType
from typing import Any

from tenon.errors import KNOWN_CODE, ArgumentError

MISUSE = (TypeError, ValueError, AttributeError, LookupError)       # Tenon's own errors are caught before
SHOWN = (bool, int, float, complex, str, bytes, tuple, list, dict, slice, type, type(None))


def misused(name: str, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any],
            error: Exception) -> ArgumentError | None:
    """The error to raise in the place of `error`; None where code of a user raised it.

    >>> import tenon as tn
    >>> tn.scatter(tn.zeros(4), [1, 3], 1.0)
    Traceback (most recent call last):
    tenon.errors.ArgumentError: scatter: 'indices' must be a tensor, not [1, 3]
    ...
    """
    if not _is_own(error.__traceback__):
        return None
    signature = inspect.signature(function)
    hint = f"its arguments are ({', '.join(map(_plain, signature.parameters.values()))})"
    try:
        arguments = signature.bind(*args, **keywords).arguments
    except TypeError as refused:
        return ArgumentError(f"{name}: {refused}", hint=hint)
    for parameter, value in arguments.items():
        if isinstance(error, AttributeError) and error.obj is value:
            return ArgumentError(f"{name}: {parameter!r} must be a tensor, not {_shown(value)}", hint=hint)
    given = [*map(_shown, args), *(f"{k}={_shown(v)}" for k, v in keywords.items())]
    return ArgumentError(f"{name}: it cannot be called with ({', '.join(given)})", why=str(error), hint=hint)


def refuse_misspelt(kind: type, options: Iterable[str]) -> None:
    """Raise ArgumentError for options that `kind(...)` does not know, with the name that is nearest.

    >>> from tenon import nn
    >>> nn.Linear(3, 4, bais=False)
    Traceback (most recent call last):
    tenon.errors.ArgumentError: Linear: no argument 'bais'
    ...
    """
    code = getattr(inspect.unwrap(kind.__init__), "__code__", None)     # type: ignore[misc]
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return
    known = code.co_varnames[1:code.co_argcount + code.co_kwonlyargcount]
    for name in options:
        if name not in known:
            from difflib import get_close_matches  # local: for mistakes only
            near = get_close_matches(name, known, 1)
            raise ArgumentError(f"{kind.__name__}: no argument {name!r}", hint=f"did you mean {near[0]}?" if near else
                                f"its arguments are {', '.join(known)}" if known else "it takes none")


def _is_own(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(KNOWN_CODE):
            return False
        traceback = traceback.tb_next
    return True


def _plain(parameter: inspect.Parameter) -> str:
    return str(parameter.replace(annotation=inspect.Parameter.empty))


_short = Repr()
_short.maxstring = _short.maxother = 40


def _shown(value: Any) -> str:
    if isinstance(value, SHOWN):
        return _short.repr(value)
    return str(getattr(value, "type", type(value).__name__))

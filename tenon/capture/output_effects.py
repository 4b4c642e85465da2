"""What a captured function prints, logs or warns of -> text that is made anew after every run, of what that run gave.

A *form* is a value as it was when the program used it: atoms, containers of forms, tensors and numbers of the graph,
and `Text`, which stands for text with such values in it.  `closed` puts `TextHole`s in the places of what a run gives,
`filled` puts in there what it gave.  Nothing is said before the run is over and has held the way of its call.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn

import numpy as np

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.symbolic_numbers import SYMBOLIC, SymText
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.errors import user_location
from tenon.locks import cached_property
from tenon.ops.deferred_output import Heard
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState

# Methods of text whose result is text again.
TEXTUAL = frozenset(("upper", "lower", "title", "capitalize", "swapcase", "casefold", "strip", "lstrip", "rstrip",
                     "ljust", "rjust", "center", "zfill", "replace", "expandtabs", "removeprefix", "removesuffix"))
ASKING = ("len", "iter", "contains", "getitem", "bool", "hash", "eq", "ne", "lt", "le", "gt", "ge", "str", "repr",
          "format", "mod", "rmod", "mul", "rmul", "int", "float", "index", "reversed")


@dataclass(frozen=True)
class TextHole:
    """The place of a value that every run gives anew."""

    number: int


class Text:
    """The text that `function(*args)` gives, some of whose arguments only a run knows."""

    __slots__ = ("args", "function", "keywords")

    def __init__(self, function: Callable[..., str], args: tuple[Any, ...], keywords: Mapping[str, Any] | None = None):
        self.function, self.args, self.keywords = function, args, dict(keywords or {})

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return str

    def __add__(self, other: Any) -> Any:
        return Text(joined, (self, other)) if type(other) in (str, Text, SymText) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Text(joined, (other, self)) if type(other) in (str, SymText) else NotImplemented

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"'str' object has no attribute {name!r}")
        if name not in TEXTUAL:
            _refuse(self)
        method = getattr(str, name)
        return lambda *args: Text(method, (self, *args))


def _refuse(*_: Any) -> NoReturn:
    raise UnsafeCall("the text of a tensor shows its elements", where=user_location(),
                     hint="text that is only printed, logged, kept or returned can be in the graph")


for _name in ASKING:
    setattr(Text, f"__{_name}__", _refuse)


class Verbatim:
    """What stands in a container as this text."""

    def __init__(self, text: Any):
        self.text = text

    def __repr__(self) -> str:
        return str(self.text)


def joined(*parts: str) -> str:
    """Parts of text as one."""
    return "".join(parts)


CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}


def formatted(value: Any, conversion: int, spec: str) -> str:
    """A part of an f-string."""
    return format(CONVERSIONS[conversion](value) if conversion in CONVERSIONS else value, spec)


# ---------------------------------------------------------------- forms

def is_given(x: Any) -> bool:
    """Whether a part of a form is known when a run is over."""
    return isinstance(x, Tensor) or type(x) in SYMBOLIC or issubclass(type(x), SymbolicDim)


def rebuilt(form: Any, change: Callable[[Any], Any]) -> Any:
    """The form with every part that is no container changed."""
    kind = type(form)
    if kind in (list, tuple):
        return kind([rebuilt(x, change) for x in form])
    if kind is dict:
        return {k: rebuilt(x, change) for k, x in form.items()}
    if kind is Text:
        return Text(form.function, rebuilt(form.args, change), rebuilt(form.keywords, change))
    if kind is Verbatim:
        return Verbatim(rebuilt(form.text, change))
    return change(form)


def parts(form: Any) -> Iterator[Any]:
    """Everything in a form that is no container."""
    found: list[Any] = []
    rebuilt(form, found.append)
    return iter(found)


def closed(form: Any, given: list[Any]) -> Any:
    """The form with holes; what belongs into them is added to the list."""
    def close(x: Any) -> Any:
        if not is_given(x):
            return x
        given.append(x)
        return TextHole(len(given) - 1)
    return rebuilt(form, close)


def skeleton(form: Any) -> Any:
    """What a closed form is but for what belongs into its holes, to compare and to hash."""
    kind = type(form)
    if kind is Text:
        return form.function, skeleton(form.args), skeleton(form.keywords)
    if kind in (list, tuple):
        return kind, *[skeleton(x) for x in form]
    if kind is dict:
        return kind, *[(k, skeleton(x)) for k, x in form.items()]
    return (kind, skeleton(form.text)) if kind is Verbatim else (kind, repr(form) if kind is float else form)


def filled(form: Any, values: Sequence[Any]) -> Any:
    """The value that a form is, with these in its holes."""
    kind = type(form)
    if kind is TextHole:
        return values[form.number]
    if kind is Text:
        keywords = {k: filled(x, values) for k, x in form.keywords.items()}
        return form.function(*[filled(x, values) for x in form.args], **keywords)
    if kind in (list, tuple):
        return kind([filled(x, values) for x in form])
    if kind is dict:
        return {k: filled(x, values) for k, x in form.items()}
    return Verbatim(filled(form.text, values)) if kind is Verbatim else form


# ---------------------------------------------------------------- output_effects

@dataclass(frozen=True)
class Noted:
    """A value that a node notes: a number (`kind` is None), or a tensor that requires a gradient or not."""

    kind: type | None
    requires_grad: bool

    def value(self, array: np.ndarray) -> Any:
        """What the program showed."""
        if self.kind is None:
            return array.item()
        tensor: Any = object.__new__(self.kind)
        tensor.own = TensorState(array, self.requires_grad)
        return tensor


@dataclass(frozen=True, eq=False)
class OutputEffect:
    """`tell(*objects, *form)`, where `leaves` say what belongs into the form's holes.

    Of one that is `noted`, said within a branch or loop, they are `Noted`; else what a call fills in.
    """

    tell: Callable[..., None]
    objects: tuple[Any, ...]
    form: Any
    leaves: tuple[Any, ...]
    noted: bool = False


@dataclass(frozen=True, eq=False)
class OutputEffects:
    """All that a capture says: what every call says, and what nodes of the graph decide, by their numbers."""

    always: tuple[tuple[int, OutputEffect], ...]
    noted: Mapping[int, OutputEffect]

    @cached_property
    def warns(self) -> bool:
        """Whether there are warnings among it."""
        return any(s.tell is warned for s in (*(s for _, s in self.always), *self.noted.values()))

    @cached_property
    def objects(self) -> bool:
        """Whether somebody's objects say it, such as a logger."""
        return any(s.objects for s in (*(s for _, s in self.always), *self.noted.values()))

    def raises(self) -> bool:
        """Whether a warning is an error now, which has to come in the middle of the call."""
        return self.warns and any(action == "error" for action, *_ in warnings.filters)

    def tell(self, fill: Callable[[Any], Any], heard: Heard) -> None:
        """Say it, in the order in which the program did."""
        k = 0
        for number, effect in self.always:
            while k < len(heard) and heard[k][0] < number:
                self._tell_noted(*heard[k])
                k += 1
            effect.tell(*effect.objects, *filled(effect.form, [fill(x) for x in effect.leaves]))
        for number, arrays in islice(heard, k, None):
            self._tell_noted(number, arrays)

    def _tell_noted(self, number: int, arrays: Sequence[np.ndarray]) -> None:
        output_effect = self.noted[number]
        values = [x.value(array) for x, array in zip(output_effect.leaves, arrays, strict=True)]
        output_effect.tell(*output_effect.objects, *filled(output_effect.form, values))


def rules_of_warnings() -> tuple[Any, ...]:
    """What becomes of a warning now."""
    return id(warnings.filters), [*warnings.filters], warnings.showwarning


def stream_of(stream: Any) -> Any:
    """A file, or the standard stream that has this name now."""
    return getattr(sys, stream) if type(stream) is str else stream


def printed(stream: Any, args: Sequence[Any], sep: Any, end: Any, flush: Any) -> None:
    """What `print` does."""
    print(*args, sep=sep, end=end, flush=flush, file=stream_of(stream))


def written(stream: Any, text: str) -> None:
    """What `write` of a stream does."""
    stream_of(stream).write(text)


def flushed(stream: Any) -> None:
    """What `flush` of a stream does."""
    stream_of(stream).flush()


def logged(logger: logging.Logger | None, file: str, line: int, function: str, level: Any, message: Any,
           args: Sequence[Any], extra: Any = None) -> None:
    """What a logger (None: what `logging` itself) does with a message from this place of the user's code."""
    if logger is None:
        logger = logging.getLogger()
        if not logger.handlers:
            logging.basicConfig()
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, file, line, message, tuple(args), None, function,
                                        extra))


def warned(scope: dict[str, Any], file: str, line: int, message: Any, category: Any) -> None:
    """What `warnings.warn` does at this place of the user's code."""
    registry = scope.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category or UserWarning, file, line, scope.get("__name__") or "<string>", registry)

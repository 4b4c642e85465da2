"""Text made of what the graph computes, and what is said of it: forms of `capture.output_effects` while capturing."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.convert.callees import converted
from tenon.capture.convert.comprehensions import opened
from tenon.capture.convert.optional_elements import is_undecided
from tenon.capture.convert.text_options import as_text, is_one_of_strings
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.output_effects import (
    CONVERSIONS,
    Noted,
    OutputEffect,
    Text,
    Verbatim,
    closed,
    filled,
    formatted,
    is_given,
    joined,
    parts,
    rebuilt,
)
from tenon.capture.runtime_numbers import KIND_OF, RuntimeNumber, in_graph, one_kind
from tenon.capture.subgraph import InnerBuilder
from tenon.capture.symbolic_numbers import SYMBOLIC, SymText
from tenon.dims.element_count import Size
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.dims.undecided_sizes import for_user
from tenon.errors import program_reads, user_location
from tenon.graph.ir import Value
from tenon.graph.op import current
from tenon.ops.deferred_output import say as say_op
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState, recorder

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

PLAIN = (str, int, float, bool, complex, bytes, type(None), type(...))
CONTAINERS = (list, tuple, dict)
MAX_OUTPUT_EFFECTS = 1000      # of one call; more come from a loop that Python goes through


# ---------------------------------------------------------------- forms

def form_of(capture: ConvertingCapture, x: Any, within: bool = False) -> Any:
    """A value as it is now; what no form can hold is the text that it shows, in a container by `repr`."""
    kind = type(x)
    if kind in PLAIN or kind in (Text, *SYMBOLIC, Verbatim) or issubclass(kind, SymbolicDim):
        return x
    if kind is Size:
        return int(x)
    if kind is UnionValue:
        return as_text(x) if is_one_of_strings(x) else form_of(capture, capture.resolve(x), within)
    if isinstance(x, Tensor):
        return _tensor(capture, x)
    if capture.irregular and is_undecided(x):
        raise UnsafeCall("the text of a container is asked for, which holds as many elements as the data decide",
                         where=user_location())
    if kind in CONTAINERS:
        found = {k: form_of(capture, v, True) for k, v in x.items()} if kind is dict else \
            kind([form_of(capture, v, True) for v in x])
        return found if is_live(found) else Verbatim(repr(filled(found, ())))
    text = shown(capture, x, "__repr__" if within else "__str__")
    return Verbatim(text) if within else text


def option_of(capture: ConvertingCapture, x: Any) -> Any:
    """The same for what is said, which may be one of several values."""
    found = capture.settled(x) if type(x) is UnionValue else x
    return found if type(found) is UnionValue and not is_one_of_strings(found) else form_of(capture, found)


def _tensor(capture: ConvertingCapture, x: Tensor) -> Tensor:
    """A tensor as it is now, whatever is assigned to it later."""
    if current() is not capture or not isinstance(x.payload, Value):
        raise UnsafeCall("the text of a tensor shows its elements", where=user_location())
    if type(x) is RuntimeNumber:
        return one_kind(x)  # type: ignore[no-any-return]
    for name in ("__repr__", "__str__", "__format__"):
        found = getattr(type(x), name)
        if isinstance(found, types.FunctionType) and not found.__module__.startswith("tenon."):
            raise UnsafeCall(f"the text of a {type(x).__name__} is a user's", where=user_location())
    state = capture.state_of(x)
    view: Tensor = object.__new__(type(x))
    view.own = TensorState(state.payload, state.requires_grad)
    return view


@for_user
def shown(capture: ConvertingCapture, x: Any, method: str = "__str__") -> Any:
    """What `str(x)` or `repr(x)` gives: text that may have values of the graph in it."""
    kind = type(x)
    if kind is Text and method == "__str__":
        return x
    if kind is UnionValue:
        return capture.operated(x, repr if method == "__repr__" else str, ()) if is_one_of_strings(x) else \
            capture.each(x, lambda one: shown(capture, one, method))
    if is_given(x) or kind is Text or kind in CONTAINERS:
        form = form_of(capture, x)
        if type(form) is Verbatim:
            return str(form)
        return Text(repr if method == "__repr__" else str, (form,))
    found = getattr(kind, method)
    if method == "__str__" and found is object.__str__:
        found = kind.__repr__
    if getattr(found, "__module__", "") == "tenon.nn.module":
        raise UnsafeCall("the text of a module shows what its last call was", where=user_location())
    text = converted(found)(x) if isinstance(found, types.FunctionType) else str(x) if method == "__str__" else repr(x)
    if not isinstance(text, str):
        raise TypeError(f"{method} returned non-string (type {type(text).__name__})")
    if kind.__module__.startswith("tenon.") and (tell := program_reads.get()) is not None:
        tell(text)
    return text


def text_of(capture: ConvertingCapture, given: Sequence[Any]) -> Any:
    """What an f-string of these parts gives: text, or (a value, its conversion, its format)."""
    found = [x if type(x) is str else part_of(capture, *x) for x in given]
    several = next((k for k, x in enumerate(found) if type(x) is UnionValue and not is_one_of_strings(x)), None)
    if several is not None:
        before, after = ([x if type(x) is str else (x, -1, "") for x in part]
                         for part in (found[:several], found[several + 1:]))
        choice: Any = found[several]
        return capture.each(choice, lambda one: text_of(capture, [*before, (one, -1, ""), *after]))
    if any(type(x) is UnionValue for x in found):
        return reduce(operator.add, found)
    return "".join(found) if all(type(x) is str for x in found) else Text(joined, tuple(found))


def part_of(capture: ConvertingCapture, value: Any, conversion: int, spec: Any) -> Any:
    """A formatted value; where it is a user's class that formats it, by that."""
    if type(value) in PLAIN and type(spec) is str:
        return formatted(value, conversion, spec)
    if is_one_of_strings(value) and type(spec) is str:
        return capture.operated(value, formatted, (conversion, spec))
    if type(value) is UnionValue:
        return capture.each(value, lambda one: part_of(capture, one, conversion, spec))
    if is_given(value) or type(value) is Text or type(spec) is not str:
        return sampled(Text(formatted, (form_of(capture, value), conversion, form_of(capture, spec))))
    if conversion in CONVERSIONS or (type(value) in CONTAINERS and not spec) or \
            "__format__" not in {name for c in type(value).__mro__[:-1] for name in vars(c)}:
        text = shown(capture, value, "__str__" if conversion in (-1, ord("s")) else "__repr__")
        again = ord("a") if conversion == ord("a") else -1
        return sampled(Text(formatted, (text, again, spec))) if type(text) is Text else \
            formatted(text if again == -1 else value, again, spec)
    own: Any = type(value).__format__
    return converted(own)(value, spec) if isinstance(own, types.FunctionType) else format(value, spec)


def filled_in(capture: ConvertingCapture, text: str, values: Any) -> Any:
    """`text % values`."""
    form = tuple([form_of(capture, x) for x in values]) if type(values) is tuple else \
        {k: form_of(capture, x) for k, x in values.items()} if type(values) is dict else form_of(capture, values)
    return sampled(Text(str.__mod__, (text, form))) if is_live(form) else text % values


def is_live(form: Any) -> bool:
    """Whether there are values of the graph in a form."""
    return any(map(is_given, parts(form)))


def method_of(function: Any) -> Any:
    """In the place of a method of text: one that takes what the graph computes, too."""
    text, name = function.__self__, function.__name__

    def join(items: Any) -> Any:
        items = list(opened(items))
        capture: Any = recorder.get()
        open_ = any(type(x) in (Text, UnionValue, SymText) for x in items)
        return text.join(items) if capture is None or not open_ else \
            Text(str.join, (text, [form_of(capture, x) for x in items]))

    def format(*args: Any, **keywords: Any) -> Any:
        capture: Any = recorder.get()
        if capture is None or not any(is_given(x) or type(x) in (Text, UnionValue)
                                      for x in (*args, *keywords.values())):
            return text.format(*args, **keywords)
        form = [form_of(capture, x) for x in args], {k: form_of(capture, x) for k, x in keywords.items()}
        return sampled(Text(str.format, (text, *form[0]), form[1]))
    return join if name == "join" else format


def sampled(text: Text) -> Text:
    """The text, where it can be made of values like those that it has in it; others are left to Python."""
    try:
        filled(rebuilt(text, _sample), ())
    except UnsafeCall:
        raise
    except Exception as error:
        raise UnsafeCall(f"text of a number or tensor is made, which raises {type(error).__name__}",
                         where=user_location()) from None
    return text


def _sample(x: Any) -> Any:
    if isinstance(x, Tensor) and x.size == 1:
        return KIND_OF[x.dtype.kind](0)
    if type(x) in SYMBOLIC:
        return x.value
    if issubclass(type(x), SymbolicDim):
        return 2
    return _Elements() if isinstance(x, Tensor) else x


class _Elements:
    """A tensor of several elements, whose text no format changes."""

    def __format__(self, spec: str) -> str:
        return "[]"


# ---------------------------------------------------------------- what is said

def say(capture: ConvertingCapture, tell: Callable[..., None], objects: tuple[Any, ...], form: Any) -> None:
    """Let the call say this here: always, or where a branch or loop comes to it."""
    choice = next((x for x in parts(form) if type(x) is UnionValue), None)
    if choice is not None:
        capture.each(choice, lambda one: say(capture, tell, objects, _chosen(capture, form, choice, one)))
        return
    if len(capture.output_effects) >= MAX_OUTPUT_EFFECTS:
        raise UnsafeCall(f"more than {MAX_OUTPUT_EFFECTS} messages of one call", where=user_location())
    given: list[Any] = []
    found = closed(form, given)
    if not isinstance(capture.builder, InnerBuilder):
        capture.output_effects.append(OutputEffect(tell, objects, found, tuple(given)))
        return
    if capture.loops is not None and capture.loops.inside:      # what each turn notes costs more than the loop saves
        raise UnsafeCall("a loop that is counted says something in each turn", where=user_location())
    values = [in_graph(x) for x in given]
    leaves = tuple([Noted(None if type(x) is RuntimeNumber else type(x), x.requires_grad) for x in values])
    capture.emit(say_op, tuple([x.payload for x in values]), {"output_effect": len(capture.output_effects)})
    capture.output_effects.append(OutputEffect(tell, objects, found, leaves, noted=True))


def _chosen(capture: ConvertingCapture, form: Any, choice: UnionValue, one: Any) -> Any:
    """The form with one of several values in the place of the choice."""
    return rebuilt(form, lambda x: option_of(capture, one) if x is choice else x)


def may_say(capture: ConvertingCapture) -> bool:
    """Whether what is said here is said by the captured call itself, and not by a function of some operator."""
    builder = capture.builder
    while isinstance(builder, InnerBuilder):
        if builder.apart:
            return False
        builder = builder.outer
    return current() is capture and capture.says

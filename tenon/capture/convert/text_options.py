"""Text that is one of several strings, as the data decide: what operators and methods of text make of it.

Each has one result for each string, which is known while capturing.  Two such values have one for each pair; where
pairs are many, the text is put together after the run, of the strings that the run chose.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenon.capture.convert.optional_elements import both
from tenon.capture.convert.traced_getitem import Chosen, picked
from tenon.capture.convert.union_value import UnionValue, added_to
from tenon.capture.output_effects import Text, joined
from tenon.capture.runtime_numbers import RuntimeNumber, as_tensor, strong
from tenon.ops.comparison import where

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

MAX_PAIRS = 16          # of strings, whose sums are strings that the program can compare
ATOMS = (str, int, float, bool, type(None))
ADDITIONS = (operator.add, operator.iadd, added_to)
STRING_METHOD = type("".upper)
MORE_THAN_ONE = object()


def is_one_of_strings(x: Any) -> bool:
    """Whether a value is one of several strings."""
    return type(x) is UnionValue and all(type(value) is str for _, value in x.options)


def is_one_of_texts(x: Any) -> bool:
    """Whether a value is one of several strings and texts."""
    return type(x) is UnionValue and all(type(value) in (str, Text) for _, value in x.options)


def is_string_method(x: Any) -> bool:
    """Whether a value is a method of one of several strings."""
    return type(x) is UnionValue and all(
        type(value) is STRING_METHOD and type(getattr(value, "__self__", None)) is str for _, value in x.options)


def on_strings(capture: ConvertingCapture, choice: UnionValue, use: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What a function of a string gives for the one chosen; `MORE_THAN_ONE` where a branch for each is needed."""
    if (is_one_of_strings(choice) or is_string_method(choice)) and all(type(x) in ATOMS for x in args):
        return each_string(capture, choice, lambda x: use(x, *args))
    if use in ADDITIONS and is_one_of_texts(choice) and (type(args[0]) in (str, Text) or is_one_of_texts(args[0])):
        return concatenated(capture, *((args[0], choice) if use is added_to else (choice, args[0])))
    return MORE_THAN_ONE


def each_string(capture: ConvertingCapture, choice: UnionValue, use: Callable[[Any], Any]) -> Any:
    """What a function without effects gives for each of the strings, as one value."""
    try:
        values = [use(x) for _, x in choice.options]
    except Exception:       # for one of the strings, which may not be the one chosen
        return MORE_THAN_ONE
    return picked(capture, Chosen([strong(p) for p, _ in choice.options]), values)


def concatenated(capture: ConvertingCapture, left: Any, right: Any) -> Any:
    """`left + right`, of which each is one of several strings or text."""
    if is_one_of_strings(left) and is_one_of_strings(right) and len(left.options) * len(right.options) <= MAX_PAIRS:
        pairs = [(both(p, q), x + y) for p, x in left.options for q, y in right.options]
        return picked(capture, Chosen([strong(p) for p, _ in pairs]), [value for _, value in pairs])
    return Text(joined, (as_text(left), as_text(right)))


def as_text(x: Any) -> Any:
    """One of several strings and texts as text that is known when the run has chosen."""
    if not is_one_of_texts(x):
        return x
    strings = tuple(value for _, value in x.options)
    place = as_tensor(len(strings) - 1)
    for k in range(len(strings) - 2, -1, -1):
        place = where(strong(x.options[k][0]), k, place)
    return Text(operator.getitem, (strings, RuntimeNumber(place, int)))

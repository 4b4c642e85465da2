"""Functions of Python that ask a tensor for its truth or its value -> ones that stay in the graph."""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tenon.capture.convert import builtins_in_python
from tenon.capture.convert.callees import REPLACED, callee
from tenon.capture.convert.comprehensions import Filtered, first, opened, perhaps_made, quantified
from tenon.capture.convert.container_methods import AWARE
from tenon.capture.convert.conversion_runtime import RUNTIME, capture_now
from tenon.capture.convert.dynamic_containers import attribute, content, counted, has_attribute
from tenon.capture.convert.dynamic_indexing import length
from tenon.capture.convert.list_growth import ListElements, stacked, together
from tenon.capture.convert.optional_elements import compared, is_perhaps, is_undecided, present, refused
from tenon.capture.convert.tensor_list import FirstRows, TensorList
from tenon.capture.convert.traced_iterables import (
    Enumerate,
    ItemSource,
    Listed,
    Range,
    Reversed,
    Zip,
    gone_through,
    may_be_counted,
    source_of,
)
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.capture.effects import MISSING
from tenon.capture.runtime_numbers import (
    RuntimeNumber,
    attribute_of,
    function_of,
    in_graph,
    is_size,
    number_of,
    one_kind,
)
from tenon.capture.symbolic_numbers import SYMBOLIC, SymNumber, SymText, on_number
from tenon.dims.undecided_sizes import for_user
from tenon.errors import ArgumentError
from tenon.graph.ir import Value
from tenon.ops.joining_and_axes import concat, moveaxis, stack
from tenon.tensor import Tensor


def replaces(function: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(other: Callable[..., Any]) -> Callable[..., Any]:
        REPLACED[function] = functools.wraps(function)(other) if not isinstance(function, type) else other
        return other
    return note


def is_captured(x: Any) -> bool:
    """Whether the graph computes it."""
    return isinstance(x, Tensor) and isinstance(x.payload, Value)


def aware(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that deals with containers of undecided length itself."""
    AWARE.add(function)
    return function


def is_open(x: Any) -> bool:
    """Whether a container, or which of several it is, depends on the data."""
    capture = capture_now()
    return capture is not None and capture.irregular and (type(x) is UnionValue or is_undecided(x))


# ---------------------------------------------------------------- containers that hold as many as the data decide

@aware
@replaces(len)
def len_(x: Any) -> Any:
    capture = capture_now()
    if type(x) is SymText:
        return on_number(len, (x,))
    if capture is not None and capture.numbers is not None and type(x) is list:
        return capture.numbers.length(x, length(capture, x) if capture.irregular and is_undecided(x) else len(x))
    if capture is not None and isinstance(x, Tensor) and x.ndim:
        return capture.seen_by_user(x.shape[0])
    if capture is None or not capture.irregular:
        return len(x)
    if type(x) is UnionValue and type(x := capture.settled(x)) is UnionValue:
        return capture.each(x, len_)
    if type(x) is FirstRows:
        return x.count
    return length(capture, x) if is_undecided(x) else len(x)


@aware
@replaces(sum)
def sum_(items: Any, /, start: Any = 0) -> Any:
    items = opened(items)
    return callee(builtins_in_python.total)(items, start) if is_open(items) else sum(items, start)


@aware
@replaces(hasattr)
def hasattr_(holder: Any, name: str) -> Any:
    capture = capture_now()
    if type(holder) is UnionValue and capture is not None:
        return capture.each(holder, lambda x: hasattr_(x, name))
    if type(holder) is RuntimeNumber:
        return hasattr(one_kind(holder).weak, name)
    found = getattr(holder, name, MISSING)
    if capture is not None and is_perhaps(found):
        return has_attribute(capture, holder, name, found)
    return found is not MISSING     # asked once: `__getattr__` may count it


@aware
@replaces(getattr)
def getattr_(holder: Any, name: str, *default: Any) -> Any:
    capture = capture_now()
    if type(holder) is RuntimeNumber:
        return default[0] if default and not hasattr_(holder, name) else attribute_of(holder, name)
    if capture is None or not capture.irregular:
        return getattr(holder, name, *default)
    if type(holder) is UnionValue:
        return capture.each(holder, lambda x: getattr_(x, name, *default))
    found = getattr(holder, name, *default)
    if not is_perhaps(found):
        return found
    there = has_attribute(capture, holder, name, found)
    if there is True or not default:
        return attribute(capture, holder, name, found)
    return capture.choose(there, lambda: present(capture, found), lambda: default[0])


def merged(x: Tensor, axis: int) -> Tensor:
    """Tensors that were stacked along an axis, behind each other along it."""
    k = axis if axis >= 0 else axis + x.ndim - 1
    found: Tensor = x.reshape(*x.shape[:k], x.shape[k] * x.shape[k + 1], *x.shape[k + 2:])
    return found


def _joined(function: Any) -> None:
    @aware
    @replaces(function)
    def join(*parts: Any, **keywords: Any) -> Any:
        capture = capture_now()
        listed = parts[0] if len(parts) == 1 or type(parts[1]) is int else None
        if capture is None or not is_open(listed):
            return function(*parts, **keywords)
        axis = [0, *parts[1:], *keywords.values()][-1]
        listed = content(capture, listed)
        if not any(type(x) is TensorList for x in listed):
            return stacked(capture, listed, lambda found: function(found, axis=axis)) if is_undecided(listed) \
                else function(listed, axis=axis)
        rows = together(capture, listed)
        if rows is not None and rows.is_full and isinstance(rows.form, tuple) and axis is not None:
            whole = moveaxis(rows.rows[0], 0, axis)
            return whole if function is stack else merged(whole, axis)
        if rows is None or axis != 0 or function is not stack or not isinstance(rows.form, tuple):
            raise refused("tensors of a list are joined to one")
        capture.fail_if_not(compared(rows.count, lambda n: n > 0))
        return FirstRows(rows.rows[0], rows.count)


_joined(stack)
_joined(concat)


# ---------------------------------------------------------------- conversions

@aware
@replaces(bool)
def bool_(*args: Any) -> Any:
    return RUNTIME.truth(args[0]) if len(args) == 1 else bool(*args)


def _to(kind: type) -> None:
    @replaces(kind)
    def convert(*args: Any, **keywords: Any) -> Any:
        x = args[0] if len(args) == 1 and not keywords else None
        x = RUNTIME.read(x, "")
        if is_size(x) and kind is int:
            return x
        if type(x) in SYMBOLIC or is_size(x):
            return on_number(kind, (x,))
        if not is_captured(x):
            return kind(*args, **keywords)
        if x.size != 1:
            raise ArgumentError(f"{kind.__name__}() needs exactly one element, this tensor is {x.type}")
        return number_of(x, kind)


_to(int)
_to(float)


@aware
@replaces(isinstance)
@for_user
def isinstance_(x: Any, kinds: Any) -> Any:
    if type(x) is UnionValue and (capture := capture_now()) is not None:
        return capture.each_option(x, lambda option: isinstance_(option, kinds))
    if type(x) is RuntimeNumber:
        return issubclass(one_kind(x).weak, kinds)
    return isinstance(x, kinds)


@aware
@replaces(type)
def type_(*args: Any, **keywords: Any) -> Any:
    if len(args) == 1 and type(args[0]) is UnionValue and (capture := capture_now()) is not None:
        found = capture.narrowed(args[0])
        return UnionValue(tuple([(p, type_(x)) for p,
                                 x in found.options])) if type(found) is UnionValue else type_(found)
    if len(args) == 1 and type(args[0]) in SYMBOLIC:
        return args[0].kind
    if len(args) == 1 and is_size(args[0]):
        return int
    return one_kind(args[0]).weak if len(args) == 1 and type(args[0]) is RuntimeNumber else type(*args, **keywords)


@aware
@replaces(callable)
def callable_(x: Any) -> Any:
    if type(x) is UnionValue and (capture := capture_now()) is not None:
        return capture.each_option(x, callable)
    return callable(x)


# ---------------------------------------------------------------- iterables

@replaces(range)
def range_(*args: Any) -> Any:
    if any(map(is_captured, args)):
        return range_of([number_of(x) if is_captured(x) else in_graph(x) for x in args])
    if any(map(is_count, args[:2])) and may_be_counted():
        return range_of([*map(in_graph, args[:2]), *map(operator.index, args[2:])], args)
    return range(*args)


def range_of(bounds: list[Any], given: tuple[Any, ...] | None = None) -> Range:
    """A range with the arguments that Python's has."""
    start, stop, step = ([0, *bounds, 1] if len(bounds) == 1 else [*bounds, 1])[:3]
    return Range(start, stop, step, given)


def is_count(x: Any) -> bool:
    """Whether this is an integer that changes from call to call."""
    return is_size(x) or (type(x) is SymNumber and x.kind is int)


@aware
@replaces(enumerate)
def enumerate_(iterable: Any, start: int = 0) -> Any:
    if is_open(iterable) and (capture := capture_now()) is not None:
        iterable = gone_through(capture, iterable)
        if isinstance(iterable, ListElements):
            return iterable.numbered(start)
    source = source_of(iterable)
    return enumerate(iterable, start) if source is None else Enumerate(source, start)


@replaces(zip)
def zip_(*iterables: Any, **keywords: Any) -> Any:
    sources = [Listed(x) if isinstance(x, (list, tuple)) else source_of(x) for x in iterables]
    found = [s for s in sources if s is not None]
    if len(found) < len(sources) or all(isinstance(s, Listed) for s in found):
        return zip(*iterables, **keywords)
    both = Zip(found)
    return both if both.turns is not None or not keywords else zip(*iterables, **keywords)


@replaces(reversed)
def reversed_(x: Any) -> Any:
    source = source_of(x)
    return reversed(x) if source is None else Reversed(source)


def _copied(kind: type) -> None:
    @aware
    @replaces(kind)
    def make(*args: Any, **keywords: Any) -> Any:
        if len(args) == 1 and not keywords and is_open(args[0]) and (capture := capture_now()) is not None:
            return kind(content(capture, args[0]))
        return kind(*args, **keywords)


_copied(tuple)
_copied(deque)


@aware
@replaces(dict)
def dict_(*args: Any, **keywords: Any) -> Any:
    capture = capture_now()
    if args and is_open(args[0]) and capture is not None:
        held = counted(capture, args[0]) if keywords or not isinstance(args[0], dict) else args[0]
        return dict(held, **keywords)
    return dict(*args, **keywords)


@aware
@replaces(list)
def list_(*args: Any) -> Any:
    args = tuple(map(opened, args))
    if args and is_open(args[0]) and (capture := capture_now()) is not None:
        return list(content(capture, args[0]))
    return list(*map(iter, args)) if args and isinstance(args[0], ItemSource) else list(*args)


# ---------------------------------------------------------------- questions about many

def _quantified(function: Any, ends: bool) -> None:
    @aware
    @replaces(function)
    def ask(iterable: Iterable[Any]) -> Any:
        if (capture := capture_now()) is None:
            return function(iterable)
        if is_open(iterable):
            return callee(builtins_in_python.any_of if ends else builtins_in_python.all_of)(iterable)
        return quantified(capture, iterable, RUNTIME.is_fresh(iterable), ends, RUNTIME.truth)


_quantified(any, True)
_quantified(all, False)


def _extreme(function: Any, beats: Callable[[Any, Any], Any]) -> None:
    @aware
    @replaces(function)
    def find(*args: Any, key: Any = None, default: Any = UNBOUND) -> Any:
        args = tuple(map(opened, args))
        if len(args) == 1 and is_open(args[0]):
            search = builtins_in_python.largest if function is max else builtins_in_python.smallest
            return callee(search)(args[0], key, [] if default is UNBOUND else [default])
        items = list(args[0]) if len(args) == 1 else list(args)
        ranked = items if key is None else [callee(key)(x) for x in items]
        if not any(map(is_captured, ranked)) or not items:
            options = {} if default is UNBOUND else {"default": default}
            if len(args) == 1 and key is None:
                return function(items, **options)
            return function(items, key=key, **options) if len(args) == 1 else function(*args, key=key)
        best, rank = items[0], ranked[0]
        for item, value in zip(items[1:], ranked[1:], strict=True):
            better = beats(value, rank)
            if RUNTIME.data(better):
                best, rank = _pair(better, item, value, best, rank)
            elif better:
                best, rank = item, value
        return best


def _pair(better: Any, item: Any, value: Any, best: Any, rank: Any) -> Any:
    pair: Any = RUNTIME.decide(better, lambda: (item, value), lambda: (best, rank))
    return pair


_extreme(max, lambda x, y: x > y)
_extreme(min, lambda x, y: x < y)


# ---------------------------------------------------------------- functions that call functions

@replaces(map)
def map_(function: Any, *iterables: Any) -> Any:
    return map(callee(function), *iterables)


@aware
@replaces(filter)
def filter_(function: Any, iterable: Any) -> Any:
    capture = capture_now()
    if capture is None:
        return filter(function, iterable)
    keeps = bool_ if function is None else RUNTIME.call(function)
    items = content(capture, opened(iterable))
    if is_undecided(items):
        raise refused("a list is filtered")
    return Filtered(perhaps_made(capture, RUNTIME.truth(keeps(x)), functools.partial(_itself, x)) for x in items)


def _itself(x: Any) -> Any:
    return x


@aware
@replaces(next)
def next_(items: Any, *default: Any) -> Any:
    capture = capture_now()
    if capture is None or type(items) is not Filtered:
        return next(items, *default)
    return first(capture, items, RUNTIME.is_fresh(items), default[0] if default else UNBOUND)


@replaces(functools.reduce)
def reduce_(function: Any, *args: Any) -> Any:
    return functools.reduce(callee(function), *args)


@replaces(builtins.sorted)
def sorted_(iterable: Any, *, key: Any = None, reverse: bool = False) -> Any:
    return sorted(iterable, key=callee(key) if key is not None else None, reverse=reverse)


# ---------------------------------------------------------------- mathematics

def _unary(function: Any, name: str) -> None:
    @replaces(function)
    def compute(x: Any) -> Any:
        x = RUNTIME.read(x, "")
        if not is_captured(x):
            return on_number(function, (x,))
        return function_of(name, number_of(x, float))


for _name in ("exp", "sin", "cos", "tan", "tanh", "atan", "sinh", "cosh", "erf", "fabs", "isnan", "isinf", "isfinite",
              "sqrt", "log2", "log10", "log1p", "expm1", "asin", "acos", "asinh", "acosh", "atanh"):
    _unary(getattr(math, _name), {"fabs": "abs"}.get(_name, _name))


@replaces(math.log)
def log_(x: Any, *base: Any) -> Any:
    x = RUNTIME.read(x, "")
    if not is_captured(x):
        return on_number(math.log, (x, *base))
    found = function_of("log", number_of(x, float))
    return found / log_(*base) if base else found


def _of_numbers(function: Any) -> None:
    @replaces(function)
    def compute(*args: Any, **keywords: Any) -> Any:
        return function(*args, **keywords) if keywords else on_number(function, args)


for _function in vars(math).values():
    if callable(_function) and _function not in REPLACED:
        _of_numbers(_function)

"""Methods and functions of Python on containers that hold as many elements as the data decide.

Each entry of `METHODS` does what the method of a list, a queue or a dictionary does, in place; what is in none of the
tables is refused, and so is handing such a container to code that is not rewritten and would count its elements.
"""

from __future__ import annotations

import copy
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.code_origin import ELSEWHERE, IN_PLACE, STANDS_FOR
from tenon.capture.convert import builtins_in_python
from tenon.capture.convert.callees import callee
from tenon.capture.convert.dynamic_indexing import taken, turned
from tenon.capture.convert.list_growth import ListElements, appended, elements, together
from tenon.capture.convert.optional_elements import is_perhaps, is_undecided, perhaps, presence, present, refused
from tenon.capture.convert.tensor_list import TensorList
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.dims.undecided_sizes import for_user

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

Method = Callable[..., Any]


# ---------------------------------------------------------------- lists and queues

def _append(capture: ConvertingCapture, held: Any, x: Any) -> None:
    if isinstance(held, deque) and held.maxlen is not None:
        raise refused("an element is added to a queue of limited length")
    appended(capture, held, x)


def _extend(capture: ConvertingCapture, held: Any, items: Iterable[Any]) -> None:
    for x in list(_listed(capture, items)):
        _append(capture, held, x)


def _listed(capture: ConvertingCapture, items: Any) -> Any:
    """The elements of a container, those that may not be there among them."""
    return capture.each(items, list) if type(items) is UnionValue else items


def _pop(capture: ConvertingCapture, held: Any, index: Any = -1) -> Any:
    if type(index) is not int:
        raise refused("an element is taken out of a list")
    value, rest = taken(capture, list(held), index, "pop from an empty" if not held else "pop")
    refill(held, rest)
    return value


def refill(held: Any, content: Iterable[Any]) -> None:
    """Give a list or queue another content."""
    new = list(content)
    held.clear()
    held.extend(new)


def _insert(capture: ConvertingCapture, held: Any, index: Any, x: Any) -> None:
    if type(index) is not int or index != 0:
        raise refused("an element is put into the middle of a list")
    held.insert(0, x)


def _reverse(capture: ConvertingCapture, held: Any) -> None:
    if not any(type(x) is TensorList for x in held):
        held.reverse()
    elif (several := together(capture, held)) is not None:
        refill(held, [turned(several)])
    else:
        raise refused("a list is reversed")


def _found(name: str) -> Method:
    def find(capture: ConvertingCapture, held: Any, x: Any) -> Any:
        return callee(getattr(builtins_in_python, name))(held, x)
    return find


LISTS: dict[str, Method] = {
    "append": _append, "extend": _extend, "pop": _pop, "insert": _insert, "reverse": _reverse,
    "clear": lambda capture, held: held.clear(), "copy": lambda capture, held: held.copy(),
    "index": _found("index_of"), "count": _found("count_of"),
    "popleft": lambda capture, held: _pop(capture, held, 0),
    "appendleft": lambda capture, held, x: _append_left(held, x),
}


def _append_left(held: deque[Any], x: Any) -> None:
    if held.maxlen is not None:
        raise refused("an element is added to a queue of limited length")
    held.appendleft(x)


# ---------------------------------------------------------------- dictionaries

@for_user
def get(capture: ConvertingCapture, held: Any, key: Any, default: Any = None) -> Any:
    """The value of a key, or the default where it is not there."""
    if key not in held:
        return default
    x = held[key]
    return capture.choose(presence(capture, x), lambda: present(capture, x), lambda: default)


@for_user
def lookup(capture: ConvertingCapture, held: Any, key: Any) -> Any:
    """The value of a key that is there; calls in which it is not run eagerly."""
    x = held[key]
    capture.fail_if_not(presence(capture, x))
    return present(capture, x)


@for_user
def store(capture: ConvertingCapture, held: Any, key: Any, value: Any) -> None:
    """Set a key: one that is not there for some data must be the last one, or the order would depend on the data."""
    if key in held and presence(capture, held[key]) is not True and next(reversed(held)) != key:
        raise UnsafeCall("the order of the keys in a dictionary depends on the data",
                         hint="set the key in all branches, or before")
    held[key] = value


@for_user
def _pop_key(capture: ConvertingCapture, held: Any, key: Any, default: Any = UNBOUND) -> Any:
    if key not in held or not is_perhaps(held[key]):
        return held.pop(key) if default is UNBOUND else held.pop(key, default)
    value = lookup(capture, held, key) if default is UNBOUND else get(capture, held, key, default)
    del held[key]
    return value


@for_user
def _set_default(capture: ConvertingCapture, held: Any, key: Any, default: Any = None) -> Any:
    if key not in held:
        held[key] = default
        return default
    value = get(capture, held, key, default)
    store(capture, held, key, value)
    return value


def _update(capture: ConvertingCapture, held: Any, *others: Any, **named: Any) -> None:
    for other in (*others, named):
        if not isinstance(other, dict) or is_undecided(other):
            raise refused("a dictionary is updated")
        for key, value in other.items():
            store(capture, held, key, value)


def keys(capture: ConvertingCapture, held: Any) -> list[Any]:
    """The keys, those that may not be there among them."""
    return [perhaps(p, key) for p, key in elements(capture, held).slots]


def _pairs(capture: ConvertingCapture, held: Any) -> list[Any]:
    return [perhaps(presence(capture, x), (key, present(capture, x))) for key, x in held.items()]


DICTIONARIES: dict[str, Method] = {
    "get": get, "pop": _pop_key, "setdefault": _set_default, "update": _update, "items": _pairs,
    "keys": lambda capture, held: keys(capture, held),
    "values": lambda capture, held: list(held.values()),
    "clear": lambda capture, held: held.clear(), "copy": lambda capture, held: held.copy(),
}
METHODS: dict[type, dict[str, Method]] = {list: LISTS, deque: LISTS, tuple: LISTS, dict: DICTIONARIES}


# ---------------------------------------------------------------- what is called with them

KEEPING: dict[Any, tuple[str, ...]] = {
    list: ("append", "extend", "insert"), deque: ("append", "appendleft"), dict: ("setdefault",)}
PUTTING = tuple(getattr(kind, name) for kind in (object, list, tuple) for name in ("__new__", "__init__"))
AWARE: set[Any] = set()         # functions in the place of Python's that deal with such containers themselves


def in_place_of(capture: ConvertingCapture, function: Any) -> Any:
    """What to call in the place of a function, where there are containers that hold as many as the data decide."""
    owner = getattr(function, "__self__", None)
    if capture.undecided and isinstance(function, types.BuiltinFunctionType) and is_undecided(owner):
        table = next((table for kind, table in METHODS.items() if type(owner) is kind), {})
        method = table.get(function.__name__)
        if method is None:
            raise refused(f"{function.__name__}() is called of a {type(owner).__name__}")
        return lambda *args, **keywords: method(capture, owner, *args, **keywords)
    new = callee(function)
    if is_aware(new) or is_rewritten(new) or keeps(function, owner):
        return new

    def call(*args: Any, **keywords: Any) -> Any:
        if not capture.irregular:
            return new(*args, **keywords)
        if capture.undecided and any(map(holds_undecided, (*args, *keywords.values()))):
            raise refused(f"{getattr(function, '__name__', function)}() is called with a container")
        names = [*range(len(args)), *keywords]
        name = next((n for n in names if capture.is_several(args[n] if isinstance(n, int) else keywords[n])), None)
        if name is None:
            return new(*args, **keywords)
        if isinstance(name, str):
            return capture.each(keywords[name], lambda one: call(*args, **{**keywords, name: one}))
        return capture.each(args[name], lambda one: call(*args[:name], one, *args[name + 1:], **keywords))
    IN_PLACE.add(call.__code__)
    return for_user(call)


def is_aware(function: Any) -> bool:
    """Whether a function deals with such containers itself."""
    return isinstance(function, Hashable) and function in AWARE


def is_rewritten(function: Any) -> bool:
    """Whether a function asks `_tenon` for all that it does."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code in STANDS_FOR


def keeps(function: Any, owner: Any) -> bool:
    """Whether a call only puts its arguments somewhere."""
    if isinstance(function, type):
        return issubclass(function, BaseException) or all(
            made in PUTTING or is_users(made) for made in (function.__new__, function.__init__))
    if isinstance(function, types.BuiltinFunctionType):
        bounded = isinstance(owner, deque) and owner.maxlen is not None
        return not bounded and function.__name__ in KEEPING.get(type(owner), ())
    return function is copy.copy


def is_users(function: Any) -> bool:
    """Whether a user wrote the function, or a class statement makes it of the user's fields."""
    return isinstance(function, types.FunctionType) and not function.__code__.co_filename.startswith(ELSEWHERE)


def holds_undecided(x: Any, depth: int = 3) -> bool:
    """Whether a value is or holds what the data decide the elements of."""
    if type(x) is TensorList or is_perhaps(x) or isinstance(x, ListElements) or is_undecided(x):
        return True
    if depth == 0:
        return False
    inside: Iterable[Any] = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple, deque)) else \
        [y for _, y in x.options] if type(x) is UnionValue else ()
    return any(holds_undecided(y, depth - 1) for y in inside)

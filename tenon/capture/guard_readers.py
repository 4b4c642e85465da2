"""What guards compare: a holder -> a tuple of what it holds; and how some of it is put back."""

from __future__ import annotations

import array
import contextvars
import gc
import types
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from tenon.capture import effects
from tenon.capture.code_names import module_of
from tenon.capture.guards import MISSING

FUNCTION = attrgetter("__code__", "__defaults__", "__kwdefaults__")
BUILTINS = attrgetter("__builtins__")    # of a function: a dictionary
PARTIAL = attrgetter("func", "args", "keywords")


def attribute_of(key: str, holder: Any) -> tuple[Any, ...]:
    return (vars(holder).get(key, effects.MISSING),)


def slot_of(key: str, holder: Any) -> tuple[Any, ...]:
    return (effects.read_slot(holder, key),)


def item_of(key: Any, holder: dict[Any, Any]) -> tuple[Any, ...]:
    return (dict.get(holder, key, effects.MISSING),)


def entry_of(holder: Any, key: Any) -> Any:
    """An item as it is held: what a subclass makes of that in Python is no part of what was read."""
    if isinstance(holder, dict):
        if not dict.__contains__(holder, key):      # else `__missing__` would say what is not there
            raise KeyError(key)
        return dict.__getitem__(holder, key)
    return list.__getitem__(holder, key) if isinstance(holder, list) else holder[key]


def looks_up_itself(holder: Any) -> bool:
    """Whether a container's class says in Python what an item is."""
    return isinstance(getattr(type(holder), "__getitem__", None), types.FunctionType)


def held_entries(keys: Sequence[Any], holder: Any) -> tuple[Any, ...]:
    return tuple([dict.__getitem__(holder, key) for key in keys])


def entry_reader(holder: Any, keys: Sequence[Any]) -> Callable[[Any], Any]:
    """What reads these items of a dictionary, each at least twice where it is one."""
    if isinstance(holder, dict) and looks_up_itself(holder):
        return partial(held_entries, tuple(keys) if len(keys) > 1 else (*keys, *keys))
    return itemgetter(*keys) if len(keys) > 1 else itemgetter(keys[0], keys[0])


def sequence_reader(holder: Any) -> Callable[[Any], Any]:
    """What goes through the items that a list or queue holds."""
    kind = list if isinstance(holder, list) else deque
    return kind.__iter__ if isinstance(type(holder).__iter__, types.FunctionType) else iter


def cell_of(key: None, holder: Any) -> tuple[Any, ...]:
    try:
        return (holder.cell_contents,)
    except ValueError:
        return (effects.MISSING,)


def length(holder: Any) -> tuple[int]:
    return (len(holder),)


def keys_of(holder: Any) -> tuple[Any, ...]:
    return tuple(dict.keys(holder))


def slot_names(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    listed = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(s for s in listed if not s.startswith("__")) if not module_of(cls).startswith("tenon.") else ()


def read_slots(names: Sequence[str], holder: Any) -> tuple[Any, ...]:
    return tuple([getattr(holder, name, MISSING) for name in names])


def read_described(names: Sequence[str], described: Any) -> tuple[Any, ...]:
    """What a function or class is called, and the like, which may be set and is no entry of its table."""
    return tuple([getattr(described, name, MISSING) for name in names])


def defaults_with_lists(function: types.FunctionType) -> list[tuple[str, Any]]:
    """The parameters that have a default, and these, where one is a list, which may keep what every call appends."""
    given, code = function.__defaults__ or (), function.__code__
    names = code.co_varnames[code.co_argcount - len(given):code.co_argcount]
    return list(zip(names, given, strict=True)) if list in map(type, given) else []


def cell_contents(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return (MISSING,)


def default_factory(holder: Any) -> tuple[Any, ...]:
    return (holder.default_factory,)


def set_default_factory(holder: Any, before: tuple[Any, ...]) -> None:
    (holder.default_factory,) = before


def bases(cls: type) -> tuple[Any, ...]:
    return (cls.__mro__,)


def kept_by(function: Any) -> list[Any]:
    """The results that a cache of `functools` keeps, among other things; not its table, nor what links its entries."""
    own = [x for x in gc.get_referents(function) if x is not vars(function) and x is not function.__wrapped__]
    if not any(map(_is_link, own)):
        return [x for table in own if type(table) is dict for x in table.values()]
    return [x for x in own if not _is_link(x) and type(x) is not object
            and not (type(x) is dict and x and all(map(_is_link, x.values())))]


def _is_link(x: Any) -> bool:
    return type(x).__name__ == "_lru_list_elem"


def misses(function: Any) -> tuple[Any, ...]:
    return (function.cache_info().misses,)


def members(value: set[Any]) -> tuple[Any, ...]:
    """What a set holds, in the order in which code that goes through it finds that."""
    return (tuple(set.__iter__(value)),)


def all_bytes(value: Any) -> tuple[Any, ...]:
    return (bytes(value),)


def refill(value: Any, before: bytes) -> None:
    if len(value) and len(bytes(value)) == len(before):     # others may look into it, so that it keeps its length
        memoryview(value).cast("B")[:] = before
    elif isinstance(value, array.array):
        del value[:]
        value.frombytes(before)
    elif isinstance(value, bytearray):
        value[:] = before


def elements(value: np.ndarray) -> tuple[Any, ...]:
    return (value.dtype.str, value.shape, value.tobytes())


def generator_state(value: np.random.Generator) -> Any:
    return value.bit_generator.state


def set_generator_state(value: np.random.Generator, state: Any) -> None:
    value.bit_generator.state = state


def context_of_decimals(module: Any) -> tuple[Any, ...]:
    """What the results of decimals depend on beside these."""
    context = module.getcontext()
    parts = context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp
    return (" ".join(map(str, (*parts, *context.traps.values()))),)


def referent(value: Any) -> tuple[Any, ...]:
    return (value(),)


def value_of(value: contextvars.ContextVar[Any]) -> tuple[Any, ...]:
    return (value.get(MISSING),)

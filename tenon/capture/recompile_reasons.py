"""Why a call that fits no capture is captured anew: the first thing that is not what it was, with both values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.guard_places import ARGUMENT
from tenon.capture.guards import DATES, PATHS, same_atom, short
from tenon.capture.leaf_keys import aliases, leaf_key
from tenon.capture.store_results import fits
from tenon.errors import RecompileWarning, user_location
from tenon.tensor import Tensor
from tenon.types import DType, TensorType

TEXTS = (str, *DATES, *PATHS)


def why_not(captured: Captured, leaves: Sequence[Any], names: Sequence[str] = ()) -> str:
    """The first condition of a capture that a call does not meet, in words."""
    for k, value in captured.values:
        if not same_atom(leaves[k], value):
            return f"{_name(names, k)} is {short(leaves[k])}, and was {short(value)}"
    sizes: dict[str, int] = {}
    tensors = [(k, x) for k, x in enumerate(leaves) if isinstance(x, Tensor)]
    for (k, x), type in zip(tensors, captured.types, strict=False):      # behind them are those that are read anew
        if not fits(type, x.own.payload.shape, sizes):
            return f"{_name(names, k)} is {x.type}, and was {type}"
    if captured.assumptions.contradict(sizes):
        return "a comparison of sizes came out differently"
    if (failing := captured.guards.failing()) is not None:
        return failing
    if captured.arguments(leaves) is None:
        places = [place for place, _ in captured.further.numbers] if captured.further else []
        moved = [_name(names, x.key) if x.kind == ARGUMENT else x.label for x in places]
        return f"{' or '.join(moved) or 'a number from outside'}, or what is asked of it, is not what it was"
    return next((why for held in captured.held if (why := _changed(*held))), "a tensor from outside changed its type")


def _changed(x: Tensor, requires_grad: bool, without_grad: bool | None, type: TensorType, device: object) -> str | None:
    """What is not as it was of a tensor from outside."""
    own = x.own
    if own.requires_grad is not requires_grad:
        return f"a tensor {x.type} from outside requires " + (
            "a gradient, and did not" if own.requires_grad else "no gradient, and did")
    if without_grad is (own.grad is not None):
        return f"a tensor {x.type} from outside " + ("has no gradient, and had one" if own.grad is None else
                                                     "has a gradient, and had none")
    return f"a tensor from outside is {x.type}, and was {type}" if x.type != type else None


def is_another_text(captured: Captured, leaves: Sequence[Any]) -> bool:
    """Whether the first thing that is not as it was is text, a date or a path, and was."""
    found: Sequence[Any] | None = next(
        ((value, leaves[k]) for k, value in captured.values if not same_atom(leaves[k], value)), None)
    found = captured.guards.differing() if found is None else found
    return found is not None and all(type(x) in TEXTS for x in found) and len(set(map(type, found))) == 1


def why_other_key(before: Any, now: Any, leaves: Sequence[Any], names: Sequence[str]) -> str:
    """What tells the key of a call from that of an earlier one."""
    (structure, modes, keys, _), (other, other_modes, other_keys, _) = before, now
    if structure != other:
        return "the arguments are nested otherwise"
    if modes != other_modes:
        return "gradients are recorded, or computed narrowly, where they were not, or the other way round" \
            if modes[:2] != other_modes[:2] else f"it is called in the block of {other_modes[2] or 'no device'}"
    for k, (old, new) in enumerate(zip(keys, other_keys, strict=True)):
        if old != new:
            return f"{_name(names, k)} is {_described(new, leaves[k])}, and was {_described(old)}"
    return "other arguments are one tensor"


def _described(key: Any, leaf: Any = None) -> str:
    """What a part of a key says."""
    if type(key) is tuple and len(key) in (4, 5) and hasattr(key[0], "kind"):
        dtype, ndim, requires_grad, without_grad, *place = key
        notes = [" that requires a gradient"] * requires_grad + [" with a gradient"] * (not without_grad)
        name = dtype.name if isinstance(dtype, DType) else str(dtype)
        there = "".join(f" on {device}" for device in place)
        return f"a tensor of {name} with {ndim} axes{there}" + "".join(notes[:1])
    if isinstance(key, type):
        return f"a number of type {key.__name__}"
    if leaf is not None or type(key) is not tuple:
        return short(key if leaf is None else leaf)
    return short(key[-1]) if not isinstance(key[0], type) or type(key[-1]) is key[0] else f"another {key[0].__name__}"


def why_anew(captures: Sequence[Captured], keys: Mapping[Any, Any], leaves: Sequence[Any], structure: Any, modes: Any,
             names: Sequence[str]) -> str:
    """Why there is a further capture; nothing for the first one.  `keys` are those of the records so far."""
    if captures:
        return why_not(captures[-1], leaves, names)
    now = structure, modes, tuple(map(leaf_key, leaves)), aliases(leaves)
    earlier = [key for key, record in keys.items() if key is not None and record.captures]
    nearest = max(earlier, key=lambda key: (key[0] == structure) + (key[1] == modes), default=None)
    return "" if nearest is None else why_other_key(nearest, now, leaves, names)


def warn_of_recompiles(function: str, number: int, why: str) -> None:
    """Warn, at the line that calls the function, that so many calls fitted no capture; `why` at last."""
    advice = next((advice for word, advice in ADVICE.items() if word in why), ADVICE[""])
    text = f"{number} calls of {function} fitted no capture of it, at last since {why}\n  hint: {advice}"
    where = user_location()
    if where is None:
        warnings.warn(text, RecompileWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, RecompileWarning, where.file, where.line)


ADVICE = {
    "comparison of sizes": "code that compares sizes is captured for each outcome: pad inputs to a few sizes",
    "axes": "a tensor of another type or number of axes needs code of its own: cast or reshape it before the call",
    "another type": "cast arguments to one type before the call",
    "f32[": "sizes that the function's code needs as numbers are captured one by one: pad inputs to a few sizes",
    "nested": "give lists and dictionaries of one length and the same keys, or one stacked tensor",
    "gradient": "call it with arguments that all require a gradient, or none, and set .grad in the same order",
    "": "a value that changes from call to call can be an argument, as a tensor: tn.tensor(value); "
        "TENON_SHOW=recompiles tells each time what has changed, and tn.explain(f) lists all"}


def _name(names: Sequence[str], k: int) -> str:
    return names[k] if k < len(names) else f"argument {k}"

"""What a captured call stores in Python objects -> new elements of the tensors that stood there.

`self.hidden = tn.tanh(...)` gives an attribute another tensor.  In a file there is no attribute, but a tensor of the
state that stands for it; so where a tensor of the same type stood there, it is assigned.  Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.effects import MISSING, Effect, read_slot
from tenon.capture.guards import same_atom
from tenon.capture.parameter_sources import Held, Source
from tenon.capture.pytree import Structure, flatten
from tenon.capture.result_leaves import FromGraph, FromOutside, ResultNest
from tenon.errors import ArgumentError
from tenon.tensor import Tensor

Assigned = tuple[Source, int, bool]


def kept_effects(name: str, captured: Captured) -> tuple[ResultNest, tuple[Assigned, ...]]:
    """What the function returns, and the tensors that its effects assign; raises ArgumentError for other effects."""
    output = captured.output
    if captured.output_effects is not None:
        raise ArgumentError(f"save: {name} prints or logs each time it is called, and a saved function changes tensors "
                            f"only", hint="print what it returns, outside of the function")
    if not captured.effects:
        return output, ()
    children = output.structure.children
    ends = [0]
    for child in children:
        ends.append(ends[-1] + child.leaves)
    first, *stored = [ResultNest(child, output.leaves[a:b]) for child,
                      (a, b) in zip(children, pairwise(ends), strict=True)]
    kept = [x for (effect, number), value in zip(captured.effects, stored, strict=True)
            for x in _kept(name, captured, effect, number, value)]
    return first, tuple(kept)


def _kept(name: str, captured: Captured, effect: Effect, number: int | None, value: ResultNest) -> Iterator[Assigned]:
    before, structure = flatten(_held(effect)) if number is None else ([], Structure(None))
    if number is not None or structure != value.structure:
        raise _refused(name, effect)
    for old, leaf in zip(before, value.leaves, strict=True):
        if isinstance(leaf, FromGraph) and type(old) is Tensor and old.type == captured.graph.results[leaf.index].type:
            yield Held(old), leaf.index, leaf.requires_grad and not leaf.released
        elif not (same_atom(leaf, old) or (isinstance(leaf, FromOutside) and isinstance(leaf.source, Held)
                                           and leaf.source.holder is old)):
            raise _refused(name, effect)


def _held(effect: Effect) -> Any:
    """What stands in the place of an effect."""
    holder, key = effect.holder, effect.key
    match effect.kind:
        case "attribute":
            return vars(holder).get(key, MISSING)
        case "item":
            return holder.get(key, MISSING)
        case "slot":
            return read_slot(holder, key)
        case "cell":
            return getattr(holder, "cell_contents", MISSING)
        case "list" | "dict" if key is None:
            return holder
    return MISSING


def _refused(name: str, effect: Effect) -> ArgumentError:
    place = {"attribute": f"the attribute {effect.key!r} of a {type(effect.holder).__name__}",
             "item": f"the item {effect.key!r} of a {type(effect.holder).__name__}",
             "slot": f"the attribute {effect.key!r} of a {type(effect.holder).__name__}",
             "cell": "a variable around it"}.get(effect.kind, f"a {type(effect.holder).__name__}")
    return ArgumentError(
        f"save: {name} changes {place} each time it is called, and a saved function changes tensors only",
        hint="hold what changes in a tensor of one type: self.count = tn.tensor(0), self.count.add_(1); call the "
             "function once before, if only the first call makes something")

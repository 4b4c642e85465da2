"""What a call leaves in simple cases -> one Python function that makes it: new tensors, numbers, stores of them.

It is source text, so that a step counter costs what the store of an attribute costs.  `tenon.capture.replay.settle`
does the same for all calls, leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.effects import MISSING, STORES, Effect
from tenon.capture.guards import is_atom
from tenon.capture.leaves import FromArguments, FromGraph
from tenon.capture.tree import LEAF
from tenon.tensor import fresh

Epilogue = Callable[[Sequence[Any], Sequence[Any]], Any]


def epilogue(captured: Captured, places: Sequence[int]) -> Epilogue | None:
    """The function of a call's arguments and its new arrays, which gives the result; None where it is not as simple.

    `places` says where among the new arrays each result of the graph is, below 0 for none.
    """
    structure = captured.output.structure
    parts = structure.children if captured.effects else (structure,)
    if any(part is not LEAF for part in parts) or captured.uses_containers:
        return None
    writer = _Writer(places)
    texts = list(map(writer.leaf, captured.output.leaves))
    if None in texts:
        return None
    result, *values = texts
    stores = [writer.store(effect, number, str(value))
              for (effect, number), value in zip(captured.effects, values, strict=True)]
    lines = "\n".join(f"    {line}" for line in [*writer.lines, *stores, f"return {result}"])
    exec(compile(f"def epilogue(leaves, new):\n{lines}\n", "<tenon epilogue>", "exec"), writer.scope)
    made: Epilogue = writer.scope["epilogue"]
    return made


class _Writer:
    """Writes the text; `scope` holds what it names."""

    def __init__(self, places: Sequence[int]):
        self.places = places
        self.scope: dict[str, Any] = {"fresh": fresh}
        self.lines: list[str] = []
        self._made: dict[int, str] = {}

    def leaf(self, leaf: Any) -> str | None:
        """The expression for a leaf."""
        if isinstance(leaf, FromArguments):
            return f"leaves[{leaf.position}]"
        if isinstance(leaf, FromGraph):
            return self.made(leaf)
        return self.name(leaf) if is_atom(leaf) else None

    def made(self, leaf: FromGraph) -> str | None:
        place = self.places[leaf.index]
        if place < 0 or leaf.requires_grad or leaf.grad or leaf.kind:
            return None
        if leaf.number:
            return f"new[{place}].item()"
        if leaf.name in self._made:
            return self._made[leaf.name]
        variable = f"t{len(self.lines)}"
        self.lines.append(f"{variable} = fresh(new[{place}])")
        if leaf.name is not None:
            self._made[leaf.name] = variable
        return variable

    def store(self, effect: Effect, number: int | None, value: str) -> str:
        """The statement that makes an effect."""
        if number is not None:
            return f"{self.name(STORES[effect.kind])}(leaves[{-1 - number}], {self.name(effect.key)}, {value})"
        holder, key = self.name(effect.holder), effect.key
        kind: Any = type(effect.holder)
        plain = type(key) is str and effect.value is not MISSING
        if effect.kind == "item" and plain and kind is dict:
            return f"{holder}[{key!r}] = {value}"
        if effect.kind == "attribute" and plain and not isinstance(effect.holder, type) \
                and kind.__setattr__ is object.__setattr__:
            return f"{holder}.__dict__[{key!r}] = {value}"
        return f"{self.name(STORES[effect.kind])}({holder}, {self.name(key)}, {value})"

    def name(self, x: Any) -> str:
        name = f"c{len(self.scope)}"
        self.scope[name] = x
        return name

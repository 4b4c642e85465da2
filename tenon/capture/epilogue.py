"""What a call leaves in simple cases -> one Python function that runs it and makes that: tensors, numbers, stores.

It is source text, so that a step counter costs little more than the store of an attribute.  `store_results` does the
same for all calls, leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from itertools import starmap
from operator import call, not_
from typing import Any

from tenon.atomic import at_once, later
from tenon.capture.captured import Captured
from tenon.capture.effects import STORES, Effect
from tenon.capture.guards import is_atom
from tenon.capture.output_effects import OutputEffects, filled
from tenon.capture.parameter_sources import Argument, Held
from tenon.capture.pytree import SeenContainer, Structure, container
from tenon.capture.result_leaves import FromArguments, FromContainers, FromGraph, FromOutside, OneOf
from tenon.capture.source_writer import SourceWriter
from tenon.tensor import fresh

Epilogue = Callable[[Sequence[Any], Sequence[Any]], Any]


def epilogue(captured: Captured, places: Sequence[int], in_place: bool, run: Any, miss: object,
             arrays: bool = False, containers_at: int = 0) -> Epilogue | None:
    """The function of a call's arguments and its new arrays, which gives the result; None where it is not as simple.

    `places` says where among the new arrays each result of the graph is, below 0 for none; `run` runs the program, and
    says whether it did: else the answer is `miss`.  Where it writes `in_place`, what is stored is made before it runs.
    `arrays`: there are some among the arguments, in the places of tensors; the containers among these are from
    `containers_at` on.
    """
    structure = captured.output.structure
    parts = structure.children if captured.effects else (structure,)
    writer = _EpilogueWriter(places, run, miss, arrays, containers_at, structure.repeated())
    leaves = iter(captured.output.leaves)
    result, *values = [writer.nest(part, leaves) for part in parts]
    if result is None or None in values or (in_place and any(".item()" in str(x) for x in [*values, *writer.lines])):
        return None
    told = writer.output_effects(captured.output_effects)
    if told is None:
        return None
    stores = [writer.store(effect, number, str(value))
              for (effect, number), value in zip(captured.effects, values, strict=True)]
    ran = "unless=map(not_, later(run, leaves, new))" if in_place else ""
    done = f"at_once(starmap(call, [{', '.join(stores)}]), {ran})"
    if not in_place:
        lines = ["if not run(leaves, new): return miss", *writer.lines, *([done] if stores else [])]
    elif stores:
        lines = [*writer.lines, f"if not {done}: return miss"]
    else:
        lines = ["if not run(leaves, new): return miss", *writer.lines]
    body = "\n".join(f"    {line}" for line in [*lines, *told, f"return {result}"])
    exec(compile(f"def epilogue(leaves, new):\n{body}\n", "<tenon epilogue>", "exec"), writer.scope)
    made: Epilogue = writer.scope["epilogue"]
    return made


class _EpilogueWriter(SourceWriter):
    """Writes the text."""

    def __init__(self, places: Sequence[int], run: Any, miss: object, arrays: bool, containers_at: int,
                 repeated: Set[int]):
        super().__init__({"fresh": fresh, "run": run, "miss": miss, "at_once": at_once, "later": later, "not_": not_,
                          "starmap": starmap, "call": call})
        self.places, self.arrays, self.containers_at, self.repeated = places, arrays, containers_at, repeated
        self.containers: list[str | None] = []      # the variables of those that stand in several places
        self._made: dict[int, str] = {}

    def nest(self, structure: Structure, leaves: Iterator[Any]) -> str | None:
        """The expression for a nest of new containers."""
        if structure.kind is None:
            return self.leaf(next(leaves))
        if structure.kind is SeenContainer:
            seen: int = structure.labels[0]
            return self.containers[seen]
        number = len(self.containers)
        if structure.is_changeable:
            self.containers.append(None)
        children = [self.nest(child, leaves) for child in structure.children]
        if None in children:
            return None
        made = self.container(structure, children)
        if not structure.is_changeable or number not in self.repeated:
            return made
        variable = f"k{number}"
        self.containers[number] = variable
        self.lines.append(f"{variable} = {made}")
        return variable

    def container(self, structure: Structure, children: Sequence[str | None]) -> str:
        """The expression for a container with these in it."""
        if structure.kind not in (tuple, list, dict):
            return f"{self.name(partial(container, structure))}([{', '.join(map(str, children))}])"
        if structure.kind is dict:
            items = zip(map(self.name, structure.labels), children, strict=True)
            return f"{{{', '.join(f'{label}: {child}' for label, child in items)}}}"
        inner = "".join(f"{child}, " for child in children)
        return f"[{inner}]" if structure.kind is list else f"({inner})"

    def leaf(self, leaf: Any) -> str | None:
        """The expression for a leaf."""
        if isinstance(leaf, FromArguments):
            return f"leaves[{leaf.position}]"
        if isinstance(leaf, FromContainers):
            return f"leaves[{self.containers_at + leaf.number}]"
        if isinstance(leaf, FromOutside) and isinstance(leaf.source, Argument) and not self.arrays:
            return f"leaves[{leaf.source.position}]"
        if isinstance(leaf, FromOutside) and isinstance(leaf.source, Held):
            return self.name(leaf.source.holder)
        if isinstance(leaf, OneOf):
            return self.one_of(leaf)
        if isinstance(leaf, FromGraph):
            return self.made(leaf)
        return self.name(leaf) if is_atom(leaf) else None

    def one_of(self, leaf: OneOf) -> str | None:
        """The expression for one of several values, none of which is a container: one of the conditions holds."""
        found = ""
        for condition, nest in reversed(leaf.options):
            value = self.leaf(nest.leaves[0]) if nest.structure.kind is None else None
            holds = self.leaf(condition)
            if value is None or holds is None:
                return None
            found = f"({value} if {holds} else {found})" if found else value
        return found

    def output_effects(self, output_effects: OutputEffects | None) -> list[str] | None:
        """The lines that say what every call says; None where there is more to it."""
        if output_effects is None:
            return []
        if output_effects.noted or output_effects.warns:
            return None
        lines = []
        for _, output_effect in output_effects.always:
            values = [self.shown(x) for x in output_effect.leaves]
            if None in values:
                return None
            given = "".join(f"{value}, " for value in values)
            form = self.name(output_effect.form)
            said = f"{self.name(filled)}({form}, ({given}))" if values else form
            lines.append(f"{self.name(output_effect.tell)}(*{self.name(output_effect.objects)}, *{said})")
        return lines

    def shown(self, leaf: Any) -> str | None:
        """The expression for a value as it is said."""
        if not isinstance(leaf, FromGraph) or leaf.number:
            return self.leaf(leaf)
        place = self.places[leaf.index]
        return f"fresh(new[{place}])" if place >= 0 and not (leaf.requires_grad or leaf.kind) else None

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
        """The stores that make an effect, as items of a list."""
        holder = self.name(effect.holder) if number is None else \
            f"leaves[{self.containers_at + number if number >= 0 else -1 - number}]"
        return f"*{self.name(STORES[effect.kind])}({holder}, {self.name(effect.key)}, {value})"

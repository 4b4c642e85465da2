"""The structure of a call's arguments -> one Python function that reads the leaves of calls of the same structure.

    def read(v0, v1):                       # args, keywords
        if len(v0) != 1 or v1: return None
        v2 = v0[0]
        if type(v2) is not dict or (*v2,) != c0: return None
        ...
        return (v3, v4)

`tenon.capture.pytree.unfold` does the same for any structure, and makes it known.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from types import CellType, MethodType
from typing import Any

from tenon.capture.callable_parts import CALLABLES
from tenon.capture.effects import contents, read_slot, slot_names
from tenon.capture.pytree import LEAF, SeenContainer, Structure, table_type
from tenon.capture.source_writer import SourceWriter

Reader = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[Any, ...] | None"]


def nest_reader(structure: Structure, leaves: Sequence[Any], apart: frozenset[int],
                changed: bool = False) -> Reader | None:
    """The function of positional and named arguments, for leaves of these types; None where it is not as simple.

    It reads the containers that can be changed too, behind the leaves, where these are `changed`.
    Its answer is None for calls of another structure, and where a container is one of those `apart`, or found twice.
    """
    writer = _ReaderWriter(leaves)
    if not all(writer.container(child, f"v{k}") for k, child in enumerate(structure.children)):
        return None
    found, lines = [name for name in writer.changeable if name != "v1"], list(writer.lines)     # that is the call's own
    if found:
        lines += [f"s = {{{', '.join(f'id({name})' for name in found)}}}",
                  f"if not {writer.name(apart)}.isdisjoint(s): return None"]
    if len(found) > 1:
        lines.append(f"if len(s) != {len(found)}: return None")
    body = "\n".join(f"    {line}" for line in lines)
    read = [*writer.read, *(writer.changeable if changed else ())]
    source = f"def read(v0, v1):\n{body}\n    return ({''.join(f'{name}, ' for name in read)})\n"
    exec(compile(source, "<tenon arguments>", "exec"), writer.scope)
    made: Reader = writer.scope["read"]
    return made


class _ReaderWriter(SourceWriter):
    """Writes the text."""

    def __init__(self, leaves: Sequence[Any]):
        super().__init__()
        self.leaves = iter(leaves)
        self.read: list[str] = []           # the variables of the leaves
        self.changeable: list[str] = []     # those of containers that can be changed
        self._count = 2

    def container(self, structure: Structure, at: str) -> bool:
        """Write how one is opened that stands in a variable; whether that is simple."""
        kind, labels = structure.kind, structure.labels
        if kind is SeenContainer or structure.exact:
            return False
        if structure.is_changeable:
            self.changeable.append(at)
        if at != "v1":          # the call's named arguments are a dictionary
            self.refuse(f"type({at}) is not {self.name(kind)}")
        if issubclass(kind, CALLABLES):
            reads: Sequence[str] | None = self.callable(structure, at)
        elif issubclass(kind, (tuple, list, deque)):
            self.refuse(f"len({at}) != {len(structure.children)}")
            reads = [f"{at}[{k}]" for k in range(len(structure.children))]
            if kind is deque:
                self.refuse(f"{at}.maxlen != {labels[1]}")
        else:
            reads = self.entries(structure, at) if structure.is_mapping else self.attributes(structure, at)
        return reads is not None and all(map(self.part, structure.children, reads))

    def entries(self, structure: Structure, at: str) -> list[str]:
        """How the entries of a dictionary are read."""
        kind, found, looks_up = structure.kind, at, f"{at}[{{}}]"
        if kind not in (dict, defaultdict):     # whose class may have other methods, and whose objects attributes
            table = self.name(table_type(kind))
            found, looks_up = f"{table}.keys({at})", f"{table}.__getitem__({at}, {{}})"
            self.refuse(f"{at}.__dict__")
        if kind is defaultdict:
            self.refuse(f"{at}.default_factory is not {self.name(structure.factory)}")
        self.refuse(f"(*{found},) != {self.name(tuple(structure.labels))}")
        return [looks_up.format(repr(key) if type(key) in (int, str) else self.name(key)) for key in structure.labels]

    def attributes(self, structure: Structure, at: str) -> list[str] | None:
        """How the attributes of an object are read; None where some have slots, and others have none, or are not set.
        """
        slots, labels = slot_names(structure.kind), structure.labels
        if not slots:
            self.lines.append(f"{at}d = {at}.__dict__")
            self.refuse(f"(*{at}d,) != {self.name(tuple(labels))}")
            return [f"{at}d[{name!r}]" for name in labels]
        if structure.kind.__dictoffset__ or slots != {*labels}:
            return None
        return [f"{self.name(read_slot)}({at}, {name!r})" for name in labels]

    def callable(self, structure: Structure, at: str) -> list[str]:
        """How the parts of a bound method, a partial function, a function or a cell are read."""
        if structure.kind is MethodType:
            return [f"{at}.__self__", f"{at}.__func__"]
        if structure.kind is CellType:
            return [f"{self.name(contents)}({at})"]
        first = [f"{at}.func"]
        given, named = f"{at}.args", f"{at}.keywords"
        if structure.factory is not None:
            definition = structure.factory
            self.refuse(f"{at}.__code__ is not {self.name(definition.code)}")
            self.refuse(f"{at}.__globals__ is not {self.name(definition.scope)}")
            self.refuse(f"{at}.__annotations__ != {self.name(definition.annotations)}")
            first = [f"{at}.__closure__[{k}]" for k in range(len(definition.code.co_freevars))]
            given, named = f"({at}.__defaults__ or ())", f"({at}.__kwdefaults__ or {self.name({})})"
        labels = structure.labels[len(first):]
        count = sum(type(label) is int for label in labels)
        self.refuse(f"{at}.__dict__ or len({given}) != {count} or (*{named},) != {self.name(labels[count:])}")
        return [*first, *(f"{given}[{k}]" for k in range(count)), *(f"{named}[{name!r}]" for name in labels[count:])]

    def refuse(self, condition: str) -> None:
        """Write that calls of which this is true have another structure."""
        self.lines.append(f"if {condition}: return None")

    def part(self, structure: Structure, expression: str) -> bool:
        """Write how a part is read."""
        name, self._count = f"v{self._count}", self._count + 1
        self.lines.append(f"{name} = {expression}")
        if structure is not LEAF and structure.kind is not None:
            return self.container(structure, name)
        self.refuse(f"type({name}) is not {self.name(type(next(self.leaves)))}")
        self.read.append(name)
        return True

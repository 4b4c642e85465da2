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
from typing import Any

from tenon.capture.pytree import LEAF, SeenContainer, Structure

Reader = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[Any, ...] | None"]


def nest_reader(structure: Structure, leaves: Sequence[Any], apart: frozenset[int]) -> Reader | None:
    """The function of positional and named arguments, for leaves of these types; None where it is not as simple.

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
    source = f"def read(v0, v1):\n{body}\n    return ({''.join(f'{name}, ' for name in writer.read)})\n"
    exec(compile(source, "<tenon arguments>", "exec"), writer.scope)
    made: Reader = writer.scope["read"]
    return made


class _ReaderWriter:
    """Writes the text; `scope` holds what it names."""

    def __init__(self, leaves: Sequence[Any]):
        self.leaves = iter(leaves)
        self.lines: list[str] = []
        self.read: list[str] = []           # the variables of the leaves
        self.changeable: list[str] = []     # those of containers that can be changed
        self.scope: dict[str, Any] = {}
        self._count = 2

    def container(self, structure: Structure, at: str) -> bool:
        """Write how one is opened that stands in a variable; whether that is simple."""
        kind, labels = structure.kind, structure.labels
        if kind is SeenContainer or structure.exact or not _has_table(kind):
            return False
        if not issubclass(kind, tuple):
            self.changeable.append(at)
        keys: Sequence[Any] = range(len(structure.children))
        if issubclass(kind, (tuple, list, deque)):
            self.lines.append(f"if type({at}) is not {self.name(kind)} or len({at}) != {len(keys)}: return None")
        else:
            keys, table = labels, at
            if at != "v1":          # the call's named arguments are a dictionary
                self.lines.append(f"if type({at}) is not {self.name(kind)}: return None")
            if not structure.is_mapping:
                table = f"{at}d"
                self.lines.append(f"{table} = {at}.__dict__")
            self.lines.append(f"if (*{table},) != {self.name(tuple(labels))}: return None")
            at = table
        if kind is deque:
            self.lines.append(f"if {at}.maxlen != {labels[1]}: return None")
        if kind is defaultdict:
            self.lines.append(f"if {at}.default_factory is not {self.name(structure.factory)}: return None")
        return all(self.part(child, f"{at}[{key!r}]" if type(key) in (int, str) else f"{at}[{self.name(key)}]")
                   for key, child in zip(keys, structure.children, strict=True))

    def part(self, structure: Structure, expression: str) -> bool:
        """Write how a part is read."""
        name, self._count = f"v{self._count}", self._count + 1
        self.lines.append(f"{name} = {expression}")
        if structure is not LEAF and structure.kind is not None:
            return self.container(structure, name)
        self.lines.append(f"if type({name}) is not {self.name(type(next(self.leaves)))}: return None")
        self.read.append(name)
        return True

    def name(self, x: Any) -> str:
        name = f"c{len(self.scope)}"
        self.scope[name] = x
        return name


def _has_table(kind: type) -> bool:
    """Whether all that a container holds are its items, or the entries of its `__dict__`."""
    return issubclass(kind, (tuple, list, deque, dict)) or not any(
        "__slots__" in vars(base) for base in kind.__mro__[:-1])

"""A capture -> the names by which a user knows its values: variables, what modules return, parameters, optimizer state.

    names = Names(jitted, captured)
    names.values            # [Named("net.hidden", "hidden", value), ...] in the order of the program
    names.tensors           # {place of an input of the graph: "net.fc1.weight" or "optimizer.exp_avg[net.fc1.weight]"}

A variable's name is what the capture saw when the function returned; a variable that is assigned again and again has
its earlier values found by the line of the assignment, as Python's parser reads it.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.convert.reachable import contents
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Held
from tenon.errors import Location
from tenon.graph.ir import Value
from tenon.graph.partition import all_nodes
from tenon.nn.module import Module
from tenon.optim.optimizer import Optimizer
from tenon.records import dataclass

Span = tuple[str, int, int | None, int | None]      # file, line, first and last column


@dataclass(frozen=True, eq=False)
class Named:
    """A value of the graph, what it is called, and the same without the module that it is called in."""

    full: str
    short: str
    value: Value


class Names:
    """What the values and the inputs of a captured graph are called."""

    def __init__(self, jitted: Jitted, captured: Captured):
        self.captured = captured
        self.roots = dict(_roots(jitted, captured))
        self.modules = {id(module): path for root, name in self.roots.items() if isinstance(root, Module)
                        for path, module in root.named_modules(name)}
        self.tensors = dict(self._tensors())
        self.nodes = list(all_nodes(captured.graph))
        self.values = list(self._values())

    def _values(self) -> Iterator[Named]:
        order = {node: k for k, node in enumerate(self.nodes)}
        found: dict[tuple[str, Value], Named] = {}
        for named in (*self._sighted(), *self._assigned()):
            if named.value.node in order:
                found.setdefault((named.short, named.value), named)
        yield from sorted(found.values(), key=lambda x: order[x.value.node])        # type: ignore[index]

    def _sighted(self) -> Iterator[Named]:
        for sighting in self.captured.sightings:
            owner = None if sighting.owner is None else sighting.owner()
            path = self.modules.get(id(owner), "")
            if isinstance(owner, Module) and path:
                yield from (Named(path, path.partition(".")[2] or path, value) for value in sighting.returned)
            if not sighting.code.co_filename.startswith(_OWN):
                yield from (Named(f"{path}.{name}" if path else name, name, value)
                            for name, value in sighting.variables)

    def _assigned(self) -> Iterator[Named]:
        """The last of the nodes that the right side of an assignment made."""
        targets: dict[Span, tuple[str, ...]] = {}
        for file in {node.loc.file for node in self.nodes if node.loc is not None}:
            targets.update(_assignments(file))
        read = {(x, node.loc) for node in self.nodes for x in node.inputs if isinstance(x, Value)}
        for node in self.nodes:
            if node.loc is None or node.loc.derives is not None:
                continue
            if (node.output, node.loc) not in read:
                yield from (Named(name, name, node.output) for name in targets.get(span_of(node.loc), ()))

    def _tensors(self) -> Iterator[tuple[int, str]]:
        names: dict[int, str] = {}
        for root, name in self.roots.items():
            if isinstance(root, Module):
                names.update((id(x), path) for path, x in (*root.named_parameters(name), *root.named_buffers(name)))
        for root, name in self.roots.items():
            if isinstance(root, Optimizer):
                names.update(_state_of(root, name, names))
        for k, (param, source) in enumerate(zip(self.captured.graph.params, self.captured.sources, strict=True)):
            known = names.get(id(source.holder)) if isinstance(source, Held) else param.name
            if known:
                yield k, known


def _state_of(optimizer: Optimizer, name: str, params: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    for group in optimizer.param_groups:
        yield from ((id(x), f"{name}.{key}") for key, x in group.items() if key in ("lr", "step"))
        for slot, tensors in group.slots.items():
            yield from ((id(x), f"{name}.{slot}[{params.get(id(p), k)}]")
                        for k, (x, p) in enumerate(zip(tensors, group["params"], strict=False)))


def _roots(jitted: Jitted, captured: Captured) -> Iterator[tuple[Any, str]]:
    """The modules and optimizers that the function reads by a name of its own, or by that of a variable of `self`."""
    function = getattr(jitted.function, "__func__", jitted.function)
    code = getattr(function, "__code__", None)
    read = code.co_names if code is not None else ()
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False) if code is not None else ()
    held = [(name, contents(cell)) for name, cell in cells]
    held += [(name, x) for name, x in getattr(function, "__globals__", {}).items() if name in read]
    if isinstance(function, Module):
        held.append(("model", function))
    owners = [x.owner() for x in captured.sightings if x.owner is not None]
    held += [(name, y) for x in owners if x is not None and not isinstance(x, Module)
             for name, y in getattr(x, "__dict__", {}).items()]
    seen: set[int] = set()
    for name, x in held:
        if isinstance(x, (Module, Optimizer)) and id(x) not in seen:
            seen.add(id(x))
            seen.update(map(id, x.modules()) if isinstance(x, Module) else ())
            yield x, name
    for x in reversed(owners):              # who calls others returns last
        if isinstance(x, Module) and id(x) not in seen:
            seen.update(map(id, x.modules()))
            yield x, type(x).__name__.lower()


def span_of(loc: Location) -> Span:
    """The expression that a place is."""
    return loc.file, loc.line, loc.column, loc.end_column


@lru_cache(maxsize=64)
def _assignments(file: str) -> dict[Span, tuple[str, ...]]:
    """The right sides of assignments in a file, and the names that they are assigned to."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[Span, tuple[str, ...]] = {}
    for x in ast.walk(tree):
        targets = x.targets if isinstance(x, ast.Assign) else [x.target] if isinstance(x, (ast.AnnAssign,
                                                                                         ast.NamedExpr)) else []
        names = tuple(ast.unparse(t) for t in targets if isinstance(t, (ast.Name, ast.Attribute)))
        value = getattr(x, "value", None)
        if names and isinstance(value, ast.expr):
            found[file, value.lineno, value.col_offset, value.end_col_offset] = names
    return found


_OWN = __file__.rpartition("debug")[0]

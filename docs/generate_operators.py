"""The operator definitions of `tenon.ops` -> reference pages: an index, and one page a family.

What a page says of an operator is what its definition says: name, signature, doc, examples, gradient, meaning.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from render import contents, fence, markdown, signature

from tenon import ops
from tenon.graph.op import OPS, Op
from tenon.ops.methods import COMPARISONS, PROPERTIES, PYTHON_OPERATORS, UNARY, is_method

SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
         "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "lt": "<", "le": "<=", "gt": ">",
         "ge": ">=", "neg": "-", "pos": "+", "abs": "abs()", "invert": "~"}
WRITTEN = {name: SIGNS[python] for python, name in (PYTHON_OPERATORS | COMPARISONS | UNARY).items()}


@dataclass
class Family:
    """A module of `tenon.ops`: what users may call, and the operators that only graphs mention."""

    name: str
    doc: str
    public: dict[str, Callable[..., Any]] = field(default_factory=dict)
    internal: list[Op] = field(default_factory=list)


def pages() -> dict[str, str]:
    found = families()
    return {"index.md": index(found)} | {f"{family.name}.md": page(family) for family in found}


def families() -> list[Family]:
    """In the order in which they build on each other; whatever is defined belongs to the first that knows it."""
    public, internal = dict(names_of_public()), {name: op for name, op in OPS.items() if op not in ops.PUBLIC.values()}
    found = []
    for module in ops.FAMILIES:
        family = Family(module.__name__.rpartition(".")[2], inspect.getdoc(module) or "")
        family.public = {name: public.pop(name) for name in sorted(public) if is_of(public[name], module)}
        family.internal = [internal.pop(name) for name in sorted(internal) if is_of(internal[name], module)]
        found.append(family)
    left = Family("others", "What is defined outside the families.", public, list(internal.values()))
    return [family for family in [*found, left] if family.public or family.internal]


def names_of_public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Everything public under its own name, not under its second names."""
    own: dict[int, str] = {}
    for name, one in ops.PUBLIC.items():
        if id(one) not in own or name == one.__name__.rstrip("_"):
            own[id(one)] = name
    return ((name, ops.PUBLIC[name]) for name in own.values())


def is_of(one: Any, module: ModuleType) -> bool:
    """Whether the module defines it: by a function of its own, or by a call that made an operator."""
    if isinstance(one, Op):
        return any(one is value for value in vars(module).values())
    return bool(one.__module__ == module.__name__)


def index(found: list[Family]) -> str:
    rows = [f"| [{family.name}]({family.name}.md) | {', '.join(f'`{name}`' for name in family.public)} |"
            for family in found if family.public]
    return "\n\n".join([
        "# Operators",
        "Generated from the definitions in `tenon/ops`. Every name is a function of `tn`; where the first argument is "
        "called `x`, it is a method of every tensor as well.",
        "\n".join(["| family | functions |", "|---|---|", *rows]),
        contents(family.name for family in found),
    ]) + "\n"


def page(family: Family) -> str:
    parts = [f"# {family.name}", markdown(family.doc)]
    parts += [entry(name, one) for name, one in family.public.items()]
    if family.internal:
        parts += ["## Only in graphs", "Operators that the functions above, gradients or passes leave in a graph."]
        parts += [operator(op, f"### {op.name}", f"{op.name}({op.signature})") for op in family.internal]
    return "\n\n".join(parts) + "\n"


def entry(name: str, one: Callable[..., Any]) -> str:
    """A public function or operator."""
    if isinstance(one, Op):
        return operator(one, f"## {name}", f"tn.{name}({one.signature})", also(name, one))
    call = f"tn.{name}{signature(one)}"
    parts = [f"## {name}", fence("python", call), markdown(inspect.getdoc(one) or ""), also(name, one)]
    return "\n\n".join(filter(None, parts))


def operator(op: Op, title: str, call: str, ways: str = "") -> str:
    examples = fence("text", "\n".join(op.examples)) if op.examples else ""
    facts = f"*Gradient:* {gradient(op)}. *In a compiled program:* {meaning(op)}."
    return "\n\n".join(filter(None, [title, fence("python", call), markdown(op.doc), ways, facts, examples]))


def also(name: str, one: Callable[..., Any]) -> str:
    """Other ways to write a call."""
    method = is_method(one)
    ways = [f"`x.{name}`" if name in PROPERTIES else f"`x.{name}(...)`"] if method else []
    if name in WRITTEN:
        sign = WRITTEN[name]
        ways.append("`abs(x)`" if sign == "abs()" else f"`x {sign} y`" if name not in UNARY.values() else f"`{sign}x`")
    ways += [f"`tn.{other}`" for other, same in ops.PUBLIC.items() if same is one and other != name]
    return f"Also {', '.join(ways)}." if ways else ""


def gradient(op: Op) -> str:
    if op.vjp is not None:
        return "yes"
    return "yes, that of its definition" if op.expand is not None else "no"


def meaning(op: Op) -> str:
    if op.data_dependent:
        return "a step that NumPy does, between two stages: the data decide the size of the result"
    if op.effect:
        return "an effect, kept in order"
    if op.compute is not None:
        return "a formula for each element, in machine code"
    return "opened into simpler operators" if op.expand is not None else "a step that NumPy does"

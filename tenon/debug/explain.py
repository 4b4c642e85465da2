"""What `tn.jit` made of a function, in words: what is captured, what is guarded, what is assigned, why it was captured
again, and what runs by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.trace import Argument, GradientOf
from tenon.errors import ArgumentError
from tenon.jit import Jitted

SHOWN = 12      # of a long list


@dataclass(frozen=True)
class Explanation:
    """Readable text; `lines` one by one."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__


def explain(function: Any, *args: Any, **keywords: Any) -> Explanation:
    """What a jitted function does with calls like this one; the function's effects are not made.

    Without arguments, what it did with the calls so far.  Raises ArgumentError for a function without `@tn.jit`.

    >>> @tn.jit
    ... def f(x, times=2):
    ...     return x * times
    >>> print(tn.explain(f, tn.ones(3)))
    f: 1 capture
    capture 1: f(x: f32[3]), 1 node
      guarded: f.__defaults__ is (2,); 2 read from Python by identity
    """
    jitted = getattr(function, "__func__", function)
    if not isinstance(jitted, Jitted):
        raise ArgumentError(f"explain takes a function with @tn.jit, not {function!r}")
    if args or keywords:
        bound = (function.__self__, *args) if function is not jitted else args
        try:
            jitted.capture(*bound, **keywords)
        except Exception as error:
            return Explanation((f"{jitted.__name__}: {error}",))
    captures = [c for record in jitted.records.values() for c in record.captures]
    lines = [f"{jitted.__name__}: {len(captures)} capture{'s' * (len(captures) != 1)}"]
    for number, captured in enumerate(captures, 1):
        lines += [f"capture {number}: {_signature(captured)}", *_details(captured)]
    lines += [f"runs by part: {record.eager}" for record in jitted.records.values() if record.eager]
    return Explanation(tuple(lines))


def _signature(captured: Captured) -> str:
    names = [f"{p.name}: {p.type}" for p, source in zip(captured.graph.params, captured.sources, strict=True)
             if isinstance(source, Argument)]
    nodes = len(captured.graph.nodes)
    return f"{captured.graph.name}({', '.join(names)}), {nodes} node{'s' * (nodes != 1)}"


def _details(captured: Captured) -> Iterator[str]:
    held = [p for p, source in zip(captured.graph.params, captured.sources, strict=True)
            if not isinstance(source, (Argument, GradientOf))]
    if held:
        yield f"  reads {len(held)} tensors from outside: {_some([str(p.type) for p in held])}"
    if captured.assigned:
        yield f"  assigns {len(captured.assigned)} tensors"
    if captured.gradients:
        yield f"  sets {len(captured.gradients)} gradients"
    if captured.effects:
        told = [f"{effect.kind} {effect.key!r} of a {type(effect.holder).__name__}" for effect, _ in captured.effects]
        yield f"  does in Python: {_some(told)}"
    values, count = list(captured.guards.values()), len(captured.guards)
    others = f"{count - len(values)} read from Python by identity" if count > len(values) else ""
    yield f"  guarded: {'; '.join(filter(None, (_some(values), others))) or 'nothing beside the arguments'}"
    if captured.assumptions.recorded:
        facts = [f"{left} {relation} {right} is {answer}"
                 for (left, relation, right), answer in captured.assumptions.recorded.items()]
        yield f"  holds for sizes with: {_some(facts)}"


def _some(items: list[str]) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "; ".join(items[:SHOWN]) + more

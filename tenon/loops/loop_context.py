"""What the passes over loops share while one graph becomes one kernel."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from tenon.graph.ir import Value
from tenon.loops.expressions import Buffer, Expr, Index
from tenon.records import dataclass, field
from tenon.target import GENERIC, Target
from tenon.types import TensorType

Temporary = Callable[[TensorType], Buffer]
Copies = dict[tuple[Expr, tuple[Index, ...]], Buffer]      # those made so far, by what lies in them


@dataclass(eq=False)
class LoopContext:
    """`owner`: the value of the graph that an expression computes, which passes that rename loops keep up; `added`: the
    buffers that passes made; `copies`: those of them that are copies of what products read."""

    name: str = "kernel"
    inputs: tuple[Buffer, ...] = ()
    outputs: tuple[Buffer, ...] = ()
    owner: MutableMapping[Expr, Value] = field(default_factory=dict)
    added: list[Buffer] = field(default_factory=list)
    copies: Copies = field(default_factory=dict)
    target: Target = GENERIC

    def temporary(self, type: TensorType) -> Buffer:
        """A new buffer of this type, which nests share."""
        self.added.append(Buffer(f"part{len(self.added)}", type, "temporary"))
        return self.added[-1]

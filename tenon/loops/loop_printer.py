"""Kernels -> text that reads like Python.

    def softmax(x: f32[B, 10]) -> (y: f32[B, 10]):
        for i0 in parallel(B):
            r0 = max over:
            for k0 in range(10):
                r0 = max(r0, x[10*i0 + k0])
"""

from __future__ import annotations

from collections.abc import Iterator

from tenon.loops.expressions import Buffer, Index, identity
from tenon.loops.loop_ir import (
    Accumulator,
    AttentionGradient,
    Block,
    BlockedAttention,
    Contraction,
    Kernel,
    Let,
    Loop,
    Nest,
    Prefetch,
    Stmt,
    Store,
    TransposeTile,
    Update,
)

INDENT = "    "
_COMBINE = {"add": "{} + {}", "mul": "{} * {}", "any": "{} | {}", "all": "{} & {}", "min": "min({}, {})",
            "max": "max({}, {})"}
_KIND = {"parallel": "parallel({})", "serial": "range({})", "vector": "vector({})"}


def print_kernel(kernel: Kernel) -> str:
    """The text of a kernel."""
    outputs = ", ".join(map(_declaration, kernel.outputs))
    rows = [f"def {kernel.name}({', '.join(map(_declaration, kernel.inputs))}) -> ({outputs}):"]
    rows += [f"{INDENT}{_declaration(buffer)} = temporary()" for buffer in kernel.temporaries]
    for number, nest in enumerate(kernel.nests):
        rows += [f"{INDENT}barrier()"] if number else []
        rows += print_nest(nest)
    return "\n".join(rows)


def print_nest(nest: Nest) -> list[str]:
    """The rows of a nest."""
    rows = [f"{INDENT}{_declaration(buffer)} = local()" for buffer in nest.locals]
    return [*rows, *_block(nest.body, INDENT)]


def _declaration(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.type}"


def _block(body: Block, indent: str) -> Iterator[str]:
    for statement in body:
        yield from _statement(statement, indent)


def _statement(statement: Stmt, indent: str) -> Iterator[str]:
    match statement:
        case Loop(index=index, extent=extent, body=body, kind=kind):
            yield f"{indent}for {index} in {_KIND[kind].format(extent)}:"
            yield from _block(body, indent + INDENT)
        case Contraction(batch=batch, rows=rows, columns=columns, depth=depth, sum=local, epilogue=epilogue):
            axes = {"batch": batch, "rows": rows, "columns": columns}
            parts = ", ".join(f"{name}=({', '.join(map(_range, axis))})" for name, axis in axes.items() if axis)
            schedule = f"; {statement.schedule}" if statement.schedule else ""
            chunk = "" if statement.chunk is None else f"; {statement.chunk.number} < {statement.chunk.number.extent}"
            yield f"{indent}for contraction({parts}{schedule}{chunk}):"
            terms = f"{statement.left} * {statement.right}"
            yield f"{indent + INDENT}{local} = sum({terms} for {', '.join(map(_range, depth))})"
            yield from _block(epilogue, indent + INDENT)
        case BlockedAttention():
            yield from _pairs(statement, indent)
        case Let(local=local, value=value):
            yield f"{indent}{local} = {value}"
        case Store(buffer=buffer, offset=offset, value=value):
            yield f"{indent}{buffer.name}[{offset}] = {value}"
        case Accumulator(local=local, kind=kind):
            yield f"{indent}{local} = {identity(kind, local.dtype)}"
        case Update(local=local, kind=kind, value=value):
            yield f"{indent}{local} = {_COMBINE[kind].format(local, value)}"
        case Prefetch(buffer=buffer, offset=offset):
            yield f"{indent}fetch({buffer.name}[{offset}])"
        case TransposeTile(buffer=buffer, lines=lines, columns=columns):
            part = "" if lines == columns == buffer.type.shape[0] else f"[:{lines}, :{columns}]"
            yield f"{indent}{buffer.name} = transpose({buffer.name}{part})"
        case _:
            yield f"{indent}{statement}"


def _pairs(x: BlockedAttention, indent: str) -> Iterator[str]:
    """Scores, what they become, and what is stored of it."""
    places = ", ".join(map(_range, (*x.batch, x.row, x.column)))
    yield f"{indent}for {'causal ' * x.is_causal}pairs({places}):"
    yield f"{indent + INDENT}score = {x.scale} * sum({x.q} * {x.k} for {_range(x.depth)})"
    if x.mask is not None:
        yield f"{indent + INDENT}mask = {x.mask}" + ("" if x.masked is None else f" else {x.masked}")
    parts = {"v": x.v} | ({"g": x.g, "along": x.along, "total": x.total} if isinstance(x, AttentionGradient) else {})
    yield from (f"{indent + INDENT}{name} = {value}" for name, value in parts.items())
    yield from _block(x.stores, indent + INDENT)


def _range(index: Index) -> str:
    return f"{index} < {index.extent}"

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


Row = tuple[str, Stmt | Nest | None]        # a line of text, and what it is the text of


def print_kernel(kernel: Kernel) -> str:
    """The text of a kernel."""
    return "\n".join(text for text, _ in rows_of(kernel))


def rows_of(kernel: Kernel) -> Iterator[Row]:
    """The text of a kernel, line by line."""
    outputs = ", ".join(map(_declaration, kernel.outputs))
    yield f"def {kernel.name}({', '.join(map(_declaration, kernel.inputs))}) -> ({outputs}):", None
    yield from ((f"{INDENT}{_declaration(buffer)} = temporary()", None) for buffer in kernel.temporaries)
    for number, nest in enumerate(kernel.nests):
        yield from [(f"{INDENT}barrier()", nest)] if number else []
        yield from _nest(nest)


def print_nest(nest: Nest) -> list[str]:
    """The rows of a nest."""
    return [text for text, _ in _nest(nest)]


def _nest(nest: Nest) -> Iterator[Row]:
    yield from ((f"{INDENT}{_declaration(buffer)} = local()", nest) for buffer in nest.locals)
    yield from _block(nest.body, INDENT)


def _declaration(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.type}"


def _block(body: Block, indent: str) -> Iterator[Row]:
    for statement in body:
        yield from _statement(statement, indent)


def _statement(statement: Stmt, indent: str) -> Iterator[Row]:
    match statement:
        case Loop(index=index, extent=extent, body=body, kind=kind):
            yield f"{indent}for {index} in {_KIND[kind].format(extent)}:", statement
            yield from _block(body, indent + INDENT)
        case Contraction(batch=batch, rows=rows, columns=columns, depth=depth, sum=local, epilogue=epilogue):
            axes = {"batch": batch, "rows": rows, "columns": columns}
            parts = ", ".join(f"{name}=({', '.join(map(_range, axis))})" for name, axis in axes.items() if axis)
            schedule = f"; {statement.schedule}" if statement.schedule else ""
            chunk = "" if statement.chunk is None else f"; {statement.chunk.number} < {statement.chunk.number.extent}"
            yield f"{indent}for contraction({parts}{schedule}{chunk}):", statement
            terms = f"{statement.left} * {statement.right}"
            yield f"{indent + INDENT}{local} = sum({terms} for {', '.join(map(_range, depth))})", statement
            yield from _block(epilogue, indent + INDENT)
        case BlockedAttention():
            yield from _pairs(statement, indent)
        case Let(local=local, value=value):
            yield f"{indent}{local} = {value}", statement
        case Store(buffer=buffer, offset=offset, value=value):
            yield f"{indent}{buffer.name}[{offset}] = {value}", statement
        case Accumulator(local=local, kind=kind):
            yield f"{indent}{local} = {identity(kind, local.dtype)}", statement
        case Update(local=local, kind=kind, value=value):
            yield f"{indent}{local} = {_COMBINE[kind].format(local, value)}", statement
        case Prefetch(buffer=buffer, offset=offset):
            yield f"{indent}fetch({buffer.name}[{offset}])", statement
        case TransposeTile(buffer=buffer, lines=lines, columns=columns):
            part = "" if lines == columns == buffer.type.shape[0] else f"[:{lines}, :{columns}]"
            yield f"{indent}{buffer.name} = transpose({buffer.name}{part})", statement
        case _:
            yield f"{indent}{statement}", statement


def _pairs(x: BlockedAttention, indent: str) -> Iterator[Row]:
    """Scores, what they become, and what is stored of it."""
    places = ", ".join(map(_range, (*x.batch, x.row, x.column)))
    yield f"{indent}for {'causal ' * x.is_causal}pairs({places}):", x
    yield f"{indent + INDENT}score = {x.scale} * sum({x.q} * {x.k} for {_range(x.depth)})", x
    if x.mask is not None:
        yield f"{indent + INDENT}mask = {x.mask}" + ("" if x.masked is None else f" else {x.masked}"), x
    parts = {"v": x.v} | ({"g": x.g, "along": x.along, "total": x.total} if isinstance(x, AttentionGradient) else {})
    yield from ((f"{indent + INDENT}{name} = {value}", x) for name, value in parts.items())
    yield from _block(x.stores, indent + INDENT)


def _range(index: Index) -> str:
    return f"{index} < {index.extent}"

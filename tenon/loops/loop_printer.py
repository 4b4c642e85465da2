"""Kernels -> text that reads like Python.

    def softmax(x: f32[B, 10]) -> (y: f32[B, 10]):
        for i0 in parallel(B):
            r0 = max over:
            for k0 in range(10):
                r0 = max(r0, x[10*i0 + k0])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tenon.loops.expressions import Buffer, Expr, Index, Local, identity
from tenon.loops.loop_context import LoopContext
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
    statements,
)
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import walk

INDENT = "    "
MAX_REPEATED_TEXT = 32      # characters of an expression that is written out wherever it stands
_COMBINE = {"add": "{} + {}", "mul": "{} * {}", "any": "{} | {}", "all": "{} & {}", "min": "min({}, {})",
            "max": "max({}, {})"}
_KIND = {"parallel": "parallel({})", "serial": "range({})", "vector": "vector({})"}


Row = tuple[str, Stmt | Nest | None]        # a line of text, and what it is the text of


def print_kernel(kernel: Kernel) -> str:
    """The text of a kernel."""
    return "\n".join(text for text, _ in rows_of(kernel))


def rows_of(kernel: Kernel) -> Iterator[Row]:
    """The text of a kernel, line by line."""
    yield _head(kernel.name, kernel.inputs, kernel.outputs), None
    yield from ((f"{INDENT}{_declaration(buffer)} = temporary()", None) for buffer in kernel.temporaries)
    for number, nest in enumerate(kernel.nests):
        yield from [(f"{INDENT}barrier()", nest)] if number else []
        yield from _nest(nest)


def print_loops(loops: Kernel | Sequence[StoreTarget | Nest | Sequence[StoreTarget]],
                context: LoopContext | None = None) -> str:
    """The text of loops as passes see them: a kernel, or elements, groups of elements and nests of one."""
    if isinstance(loops, Kernel):
        return print_kernel(loops)
    rows = [] if context is None else [_head(context.name, context.inputs, context.outputs)]
    rows += [f"{INDENT}{_declaration(buffer)} = temporary()" for buffer in _temporaries(loops)]
    for number, x in enumerate(loops):
        if number and not isinstance(x, StoreTarget):
            rows.append(f"{INDENT}barrier()")
        if isinstance(x, Nest):
            rows += [text for text, _ in _nest(x)]
        else:
            rows += [row for element in ((x,) if isinstance(x, StoreTarget) else x) for row in _element(element)]
    return "\n".join(rows)


def _temporaries(loops: Sequence[StoreTarget | Nest | Sequence[StoreTarget]]) -> list[Buffer]:
    """What is stored and no result, in the order of the stores."""
    found: dict[Buffer, None] = {}
    for x in loops:
        if isinstance(x, Nest):
            found |= dict.fromkeys(s.buffer for s in statements(x.body) if isinstance(s, Store))
        else:
            found |= dict.fromkeys(e.buffer for e in ((x,) if isinstance(x, StoreTarget) else x))
    return [buffer for buffer in found if buffer.role == "temporary"]


def _element(x: StoreTarget) -> list[str]:
    """What is stored for all values of some indices, before it is said in which loops.

    What is long and read more than once has a name, so the text is about as long as the expression has parts.
    """
    names, value = _abbreviated(x.value)
    turns = ", ".join(f"{index} < {n}" for index, n in zip(x.indices, x.turns(), strict=True))
    chunk = "" if x.chunk is None else f"; {_range(x.chunk.number)}"
    return [f"{INDENT}for elements({turns}{chunk}):", *(f"{INDENT * 2}{name} = {said}" for name, said in names),
            f"{INDENT * 2}{x.buffer.name}[{x.offset}] {x.combine or ''}= {value}"]


def _abbreviated(value: Expr) -> tuple[list[tuple[Local, Expr]], Expr]:
    """(names for parts of a value, and what they stand for; the value in terms of them)."""
    order = walk(value)
    uses = Counter(child for x in order for child in x.children())
    names: list[tuple[Local, Expr]] = []
    done: dict[Expr, Expr] = {}
    for x in order:
        children = x.children()
        parts = tuple(done[child] for child in children)
        said = x if parts == children else x.rebuilt(parts)
        if uses[x] > 1 and len(str(said)) > MAX_REPEATED_TEXT:
            names.append((Local(f"e{len(names)}", x.dtype), said))
            said = names[-1][0]
        done[x] = said
    return names, done[value]


def _head(name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
    return f"def {name}({', '.join(map(_declaration, inputs))}) -> ({', '.join(map(_declaration, outputs))}):"


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

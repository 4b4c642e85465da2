"""Loops -> text that reads like Python, and that `parse_loops` reads back.

    def softmax(x: f32[B, 10]) -> (y: f32[B, 10]):
        for i0 in parallel(B):
            r0: f32 = max()
            for k0 in range(10):
                r0 = max(r0, x[i0 * 10 + k0])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tenon.dims.symbolic_dim import symbols
from tenon.loops.expressions import (
    OPERATION,
    Binary,
    Buffer,
    Expr,
    Index,
    Local,
    beside,
    factor_text,
    iterations_text,
    size,
)
from tenon.loops.loop_context import LoopContext
from tenon.loops.loop_ir import (
    Accumulator,
    AttentionGradient,
    Block,
    BlockedAttention,
    Chunk,
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
MAX_TEXT_DEPTH = 24         # of expressions inside of each other, before one gets a name
_KIND = {"parallel": "parallel", "serial": "range", "vector": "vector"}

Row = tuple[str, Stmt | Nest | None]        # a line of text, and what it is the text of


def print_kernel(kernel: Kernel) -> str:
    """The text of a kernel."""
    return "\n".join(text for text, _ in rows_of(kernel))


def rows_of(kernel: Kernel) -> Iterator[Row]:
    """The text of a kernel, line by line."""
    yield _head(kernel.name, kernel.inputs, kernel.outputs), None
    if kernel.sizes and kernel.sizes != sizes_of(kernel.inputs):
        yield f"{INDENT}sizes({', '.join(kernel.sizes)})", None
    yield from ((f"{INDENT}{_declaration(buffer)} = temporary()", None) for buffer in kernel.temporaries)
    for number, nest in enumerate(kernel.nests):
        yield from [(f"{INDENT}barrier()", nest)] if number else []
        yield from _nest(nest)
    if not kernel.nests:
        yield f"{INDENT}pass", None


def sizes_of(inputs: Sequence[Buffer]) -> tuple[str, ...]:
    """The symbols in the shapes of the inputs, in order."""
    return tuple(dict.fromkeys(name for x in inputs for n in x.type.shape for name in sorted(symbols(n))))


def print_loops(loops: Kernel | Sequence[StoreTarget | Nest | Sequence[StoreTarget]],
                context: LoopContext | None = None) -> str:
    """The text of loops as passes see them: a kernel, or elements, groups of elements and nests of one."""
    if isinstance(loops, Kernel):
        return print_kernel(loops)
    rows = [] if context is None else [_head(context.name, context.inputs, context.outputs)]
    rows += [f"{INDENT}{_declaration(buffer)} = temporary()" for buffer in _temporaries(loops)]
    rows += [] if loops or context is None else [f"{INDENT}pass"]
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
    axes = ", ".join(_range(index) if n is size(index.extent) else f"{index} < {factor_text(n)} <= {index.extent}"
                     for index, n in zip(x.indices, x.iterations(), strict=True))
    head = ", ".join(filter(None, (axes, _chunk(x.chunk))))
    said = beside(value, x.buffer.type.dtype)
    return [f"{INDENT}with elements({head}):", *(f"{INDENT * 2}{name} = {part}" for name, part in names),
            f"{INDENT * 2}{x.buffer.name}[{x.offset}] = {f'{x.combine}(..., {said})' if x.combine else said}"]


def _abbreviated(value: Expr) -> tuple[list[tuple[Local, Expr]], Expr]:
    """(names for parts of a value, and what they stand for; the value in terms of them)."""
    order = walk(value)
    uses = Counter(child for x in order for child in x.children())
    names: list[tuple[Local, Expr]] = []
    done: dict[Expr, Expr] = {}
    depth: dict[Expr, int] = {}
    for x in order:
        children = x.children()
        parts = tuple(done[child] for child in children)
        said = x if parts == children else x.rebuilt(parts)
        depth[said] = 1 + max((depth.get(part, 0) for part in parts), default=0)
        if (uses[x] > 1 and len(str(said)) > MAX_REPEATED_TEXT) or depth[said] > MAX_TEXT_DEPTH:
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
    if not body:
        yield f"{indent}pass", None


def _statement(statement: Stmt, indent: str) -> Iterator[Row]:
    match statement:
        case Loop(index=index, extent=extent, body=body, kind=kind, grain=grain):
            more = "" if grain is size(1) else f", grain={grain}"
            yield f"{indent}for {index} in {_KIND[kind]}({iterations_text(index, extent)}{more}):", statement
            yield from _block(body, indent + INDENT)
        case Contraction():
            yield from _contraction(statement, indent)
        case BlockedAttention():
            yield from _attention(statement, indent)
        case Let(local=Index() as index, value=value):
            yield f"{indent}{index}: index[{index.extent}] = {value}", statement
        case Let(local=Local() as local, value=value):
            yield f"{indent}{_typed(local, value)} = {value}", statement
        case Store(buffer=buffer, offset=offset, value=value):
            yield f"{indent}{buffer.name}[{offset}] = {beside(value, buffer.type.dtype)}", statement
        case Accumulator(local=local, kind=kind):
            yield f"{indent}{local}: {local.dtype.short} = {kind}()", statement
        case Update(local=local, kind=kind, value=value):
            yield f"{indent}{local} = {Binary(OPERATION[kind], local, value)}", statement
        case Prefetch(buffer=buffer, offset=offset):
            yield f"{indent}fetch({buffer.name}[{offset}])", statement
        case TransposeTile(buffer=buffer, lines=lines, columns=columns):
            part = "" if lines == columns == buffer.type.shape[0] else f"[:{lines}, :{columns}]"
            yield f"{indent}{buffer.name} = transpose({buffer.name}{part})", statement
        case _:
            raise AssertionError(statement)


def _typed(local: Local, value: Expr) -> str:
    """A name, with its type where the value has another."""
    return f"{local}" if local.dtype is value.dtype else f"{local}: {local.dtype.short}"


def _contraction(x: Contraction, indent: str) -> Iterator[Row]:
    axes = {"batch": x.batch, "rows": x.rows, "columns": x.columns}
    head = [f"{name}=({', '.join(map(_range, axis))})" for name, axis in axes.items() if axis]
    head += [f"schedule={x.schedule!r}"] if x.schedule else []
    yield f"{indent}with contraction({', '.join(filter(None, (*head, _chunk(x.chunk))))}):", x
    terms = f"{factor_text(x.left)} * {factor_text(x.right)} {_iterations(x.depth)}"
    yield f"{indent + INDENT}{_typed(x.sum, x.left)} = sum({terms})", x
    yield from _block(x.epilogue, indent + INDENT) if x.epilogue else ()


def _attention(x: BlockedAttention, indent: str) -> Iterator[Row]:
    """Scores, what they become, and what is stored of it."""
    batch = f"batch=({', '.join(map(_range, x.batch))}), " if x.batch else ""
    places = ", ".join(f"{name}={_range(axis)}" for name, axis in (("row", x.row), ("column", x.column),
                                                                   ("width", x.width)))
    causal = ", causal=True" if x.is_causal else ""
    name, inner = "attention_gradient" if isinstance(x, AttentionGradient) else "attention", indent + INDENT
    yield f"{indent}with {name}({batch}{places}, dtype={x.dtype.short}{causal}):", x
    yield f"{inner}score = {x.scale!r} * sum({factor_text(x.q)} * {factor_text(x.k)} {_iterations((x.depth,))})", x
    parts = {"mask": x.mask, "masked": x.masked, "v": x.v}
    parts |= {"g": x.g, "along": x.along, "total": x.total} if isinstance(x, AttentionGradient) else {}
    yield from ((f"{inner}{part} = {value}", x) for part, value in parts.items() if value is not None)
    yield from ((f"{inner}{result}: {result.dtype.short} = result()", x) for result in x.results)
    yield from _block(x.stores, inner) if x.stores else ()


def _chunk(chunk: Chunk | None) -> str:
    """In which chunk rows are, and whether a row is the first of it."""
    return "" if chunk is None else f"chunk={_range(chunk.number)}, first={chunk.first}"


def _iterations(indices: Sequence[Index]) -> str:
    return " ".join(f"for {index} in range({size(index.extent)})" for index in indices)


def _range(index: Index) -> str:
    return f"{index} < {index.extent}"

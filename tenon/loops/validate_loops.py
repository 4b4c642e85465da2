"""Loops before and after a pass -> an error that names the pass, where the two do not store the same values.

    compare("collapse_loops", before, after)        # raises ChangedLoops

What stands before and after, be it elements or nests, is run on the same memory.  What is larger than a test, or is no
loops (attention), is not looked at.
"""

from __future__ import annotations

import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tenon.config import config
from tenon.dims.symbolic_dim import Dim, evaluate, symbols
from tenon.errors import CompilerDefect, TenonError
from tenon.graph.compare import WIDEST, difference, narrowest
from tenon.graph.ir import Graph, Value
from tenon.graph.sample_inputs import KINDS, SIZES, sample_array, sample_inputs
from tenon.graph.text import print_graph
from tenon.graph.validate import results_of
from tenon.loops.evaluate_targets import TooLarge, evaluate_targets
from tenon.loops.expressions import Buffer, Expr, Index, Load, SizeOf
from tenon.loops.loop_interpreter import run_nest
from tenon.loops.loop_ir import (
    Block,
    BlockedAttention,
    Contraction,
    Loop,
    Nest,
    Store,
    TransposeTile,
    roots,
    statements,
)
from tenon.loops.loop_printer import print_loops
from tenon.loops.size_needs import size_needs
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import walk

# Operators whose rules meet infinities and NaN in another order than their references: what is cut off at the border of
# an image is a zero that is multiplied, what pivots are compared with is no number.
UNLIKE_NUMPY = ("conv", "depthwise", "small_")
UNSAID = ("searchsorted",)      # operators whose result is anything where their inputs do not ascend
MAX_STEPS = 60_000         # expressions that are computed one by one to run nests
Parts = tuple[StoreTarget | Nest, ...]
Memory = dict[Buffer, np.ndarray]

SCRIPT = """# Makes the loops of graph.txt, and ends in an error that names what changes them.
import os
from pathlib import Path

os.environ["TENON_CHECK"] = "passes"

import tenon
from tenon.graph.text import parse_graph
from tenon.loops.loop_pipeline import finish
from tenon.loops.lower import lower
from tenon.loops.validate_loops import reproducible

graph = parse_graph(Path(__file__).with_name("graph.txt").read_text())
with reproducible(graph):
    finish(lower(graph, "kernel"))
"""

always_validate = False     # tests set it


class ChangedLoops(CompilerDefect):
    """A pass over loops whose result stores something else."""

    is_reproducible = False     # whether its hint says how it is seen again


def is_validating() -> bool:
    """Whether passes over loops are compared before and after."""
    return always_validate or "passes" in config().check


def compare(name: str, before: Parts, after: Parts) -> None:
    """Raise ChangedLoops where what stands after stores other values than what stood before."""
    _remember(after)
    after = (*_defining(before, after), *after)
    for sizes in _sizes(before + after):
        for kind in KINDS:
            memory = _memory(before + after, sizes, kind)
            expected = _ran(before, memory, sizes)
            try:
                found = None if expected is None else _ran(after, memory, sizes)
            except (KeyError, AssertionError) as error:
                raise ChangedLoops(f"{name} leaves loops that cannot be run: {type(error).__name__} {error}",
                                   hint=f"{_written(name, before, after, memory)} has both, and the memory") from error
            if expected is None or found is None:
                continue
            for buffer in _stored(before) & (_stored(after) | _results(before)):
                said = difference(expected[buffer], found[buffer], resolved=_made.resolved)
                if said is not None:
                    raise ChangedLoops(f"{name} changes what is stored to {buffer.name}: {said}, for {kind} inputs",
                                       hint=f"{_written(name, before, after, memory)} has both, and the memory")


def compare_with_graph(name: str, graph: Graph, inputs: Mapping[Value, Buffer], outputs: Sequence[Buffer],
                       after: Sequence[StoreTarget | Nest]) -> None:
    """Raise ChangedLoops where loops store other values than the graph has."""
    if not is_validating() or any(node.op.name in UNSAID for node in graph.nodes):
        return
    parts, unlike = tuple(after), any(node.op.name.startswith(UNLIKE_NUMPY) for node in graph.nodes)
    for sample in sample_inputs(graph):
        if (unlike and sample.kind == "special") or not _allowed(sample.sizes):
            continue
        expected = results_of(graph, sample)
        memory = _memory(parts, sample.sizes, sample.kind)
        memory |= {inputs[p]: x.reshape(-1) for p, x in zip(graph.params, sample.arrays, strict=True)}
        memory |= {b: np.zeros(evaluate(b.elements, sample.sizes), b.type.dtype.numpy) for b in outputs}
        found = None if expected is None else _ran(parts, memory, sample.sizes)
        if expected is None or found is None:
            continue
        for buffer, array in zip(outputs, expected, strict=True):
            said = difference(np.asarray(array).reshape(-1), found[buffer], resolved=narrowest(graph))
            if said is not None:
                raise ChangedLoops(f"{name} stores another value to {buffer.name} than the graph has: {said}, "
                                   f"for {sample}", hint=f"{_written(name, (), parts, memory)} has the loops")


@contextmanager
def reproducible(graph: Graph) -> Iterator[None]:
    """What is found wrong in making the loops of a graph can be seen again, from its text."""
    outer = _made.needs, _made.resolved
    _made.needs, _made.resolved = size_needs(graph), narrowest(graph)
    try:
        yield
    except ChangedLoops as error:
        if not error.is_reproducible:
            error.is_reproducible = True
            folder = Path(tempfile.mkdtemp(prefix="tenon-loops-"))
            (folder / "graph.txt").write_text(print_graph(graph, locations=False), encoding="utf-8")
            (folder / "reproduce.py").write_text(SCRIPT, encoding="utf-8")
            error.hint = f"python {folder / 'reproduce.py'} shows it again; {error.hint}"
        raise
    finally:
        _made.targets.clear()
        _made.needs, _made.resolved = outer


# ---------------------------------------------------------------- what there is

def _stored(parts: Parts) -> set[Buffer]:
    """What is written, but for memory of a thread."""
    found = {x.buffer for x in parts if isinstance(x, StoreTarget)}
    for nest in parts:
        if isinstance(nest, Nest):
            found |= {x.buffer for x in statements(nest.body)
                      if isinstance(x, (Store, TransposeTile))} - set(nest.locals)
    return found


def _results(parts: Parts) -> set[Buffer]:
    """What must be written in any case; nobody else may read what is kept between nests."""
    return {buffer for buffer in _stored(parts) if buffer.role == "output"}


def _expressions(parts: Parts) -> list[Expr]:
    found: list[Expr] = []
    for x in parts:
        if isinstance(x, StoreTarget):
            found += [x.offset, x.value, *x.extents]
        else:
            found += [root for statement in statements(x.body) for root in roots(statement)]
    return walk(*found)


def _read(parts: Parts) -> set[Buffer]:
    inside = {buffer for x in parts if isinstance(x, Nest) for buffer in x.locals}
    return {x.buffer for x in _expressions(parts) if isinstance(x, Load)} - inside


class _Made(threading.local):
    """Temporaries that this kernel's transformations added; what its graph asks of sizes, and resolves."""

    def __init__(self) -> None:
        self.targets: dict[Buffer, StoreTarget] = {}
        self.needs: tuple[Dim, ...] = ()
        self.resolved = WIDEST


_made = _Made()


def _remember(parts: Parts) -> None:
    for x in parts:
        if isinstance(x, StoreTarget) and x.buffer.role == "temporary":
            _made.targets[x.buffer] = x


def _defining(before: Parts, after: Parts) -> Parts:
    """The targets, made for others before, of what is read and neither written here nor read before."""
    missing = sorted(_read(after) - _stored(after) - _read(before) - _stored(before), key=lambda buffer: buffer.name)
    found = tuple(_made.targets[buffer] for buffer in missing if buffer in _made.targets)
    return (*_defining(before, (*found, *after)), *found) if found else ()


# ---------------------------------------------------------------- running it

def _sizes(parts: Parts) -> Iterator[Mapping[str, int]]:
    dims: list[Dim] = [n for buffer in _read(parts) | _stored(parts) for n in buffer.type.shape]
    dims += [x.dim if isinstance(x, SizeOf) else x.extent for x in _expressions(parts)
             if isinstance(x, (SizeOf, Index))]
    names = sorted(set().union(*map(symbols, dims)))
    for numbers in SIZES if names else SIZES[:1]:
        sizes = {name: numbers[k % len(numbers)] for k, name in enumerate(names)}
        if _allowed(sizes):
            yield sizes


def _allowed(sizes: Mapping[str, int]) -> bool:
    """Whether the graph has a run with these sizes."""
    return all(evaluate(need, sizes) >= 0 for need in _made.needs if symbols(need) <= sizes.keys())


def _memory(parts: Parts, sizes: Mapping[str, int], kind: str) -> Memory:
    found = {}
    for buffer in sorted(_read(parts) | _stored(parts), key=lambda b: (b.name, b.role)):
        random = np.random.default_rng(zlib.crc32(f"{buffer.name} {buffer.type} {kind} {sizes}".encode()))
        found[buffer] = sample_array(buffer.type, sizes, kind, random).reshape(-1)
    return found


def _ran(parts: Parts, memory: Memory, sizes: Mapping[str, int]) -> Memory | None:
    """The memory afterwards; None where that takes too long, or the data raise an error."""
    memory = {buffer: array.copy() for buffer, array in memory.items()}
    try:
        if all(isinstance(x, StoreTarget) for x in parts):
            evaluate_targets([x for x in parts if isinstance(x, StoreTarget)], memory, sizes)
        else:
            _run_nests(parts, memory, sizes)
    except (TooLarge, TenonError, MemoryError):
        return None
    return memory


def _run_nests(parts: Parts, memory: Memory, sizes: Mapping[str, int]) -> None:
    for nest in parts:
        assert isinstance(nest, Nest)
        if any(isinstance(x, BlockedAttention) for x in nest.body) or _steps(nest.body, sizes) > MAX_STEPS:
            raise TooLarge
        run_nest(nest, memory, sizes)


def _steps(body: Block, sizes: Mapping[str, int]) -> int:
    """How many expressions are computed, about."""
    total = 0
    for x in body:
        inside = len(walk(*roots(x))) + 1
        match x:
            case Loop(index=index, body=inner):
                inside = _iterations((index,), sizes) * (1 + _steps(inner, sizes))
            case Contraction(batch=batch, rows=rows, columns=columns, depth=depth, epilogue=epilogue):
                inside *= _iterations((*batch, *rows, *columns, *depth), sizes)
                inside += _iterations((*batch, *rows, *columns), sizes) * _steps(epilogue, sizes)
        total += inside
    return total


def _iterations(indices: Iterable[Index], sizes: Mapping[str, int]) -> int:
    total = 1
    for index in indices:
        total *= evaluate(index.extent, sizes)
    return total


# ---------------------------------------------------------------- to be read

def _written(name: str, before: Parts, after: Parts, memory: Memory) -> Path:
    """A folder with both as text, and the memory that they were run on."""
    folder = Path(tempfile.mkdtemp(prefix=f"tenon-{name}-"))
    for stem, parts in ("before", before), ("after", after):
        (folder / f"{stem}.txt").write_text(print_loops(parts) + "\n", encoding="utf-8")
    arrays = {buffer.name: array if array.dtype.kind != "V" else array.view(np.uint8)
              for buffer, array in memory.items()}
    np.savez(folder / "memory.npz", **arrays)  # type: ignore[arg-type]
    return folder

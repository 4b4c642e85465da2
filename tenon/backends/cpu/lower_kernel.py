"""Body of a kernel -> its loops, what running them takes, and LLVM IR.  A kernel from the disk needs none of this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from tenon.backends.cpu.codegen import buffers_of, emit_kernel, scratch_size
from tenon.backends.cpu.product_schedules import schedules_of
from tenon.config import config
from tenon.dims.symbolic_dim import symbols
from tenon.errors import ACCESSES, READS
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.text import key_of
from tenon.llvm.target_module import TargetModule
from tenon.loops.check_bounds import with_checks
from tenon.loops.expressions import CheckedIndex, Load
from tenon.loops.loop_ir import Contraction, Kernel, Store, roots, statements
from tenon.loops.loop_pipeline import LoopPassStep, finish
from tenon.loops.lower import lower
from tenon.loops.size_needs import size_needs
from tenon.loops.traversal import walk
from tenon.loops.validate_loops import reproducible
from tenon.loops.verify_bounds import verify_bounds
from tenon.passes.fusion.kernel_bodies import lowered
from tenon.program.kernel_metadata import Check, KernelMetadata, Shared
from tenon.records import replace
from tenon.target import GENERIC, Target


def kernel_of(body: Graph, name: str, text: str | None = None, schedule: str = "",
              target: Target = GENERIC) -> Kernel:
    """The loops of a body for a machine, with a schedule for its products."""
    with reproducible(body):
        kernel = replace(finish(lowered(body, text or key_of(body), target)), name=name, sizes=all_symbols(body))
    if always_verify or "bounds" in config().check:
        verify_bounds(kernel, size_needs(body))
    if "bounds" in config().check:
        kernel = with_checks(kernel, next((node.loc for node in reversed(body.nodes) if node.loc), None))
    return scheduled(kernel, schedule) if schedule else kernel


def loop_steps(body: Graph, name: str, target: Target) -> list[LoopPassStep]:
    """What each pass does to the loops of a body, from its compute rules on."""
    steps: list[LoopPassStep] = []
    with reproducible(body):
        finish(lower(body, name, steps, target), steps)
    return steps


always_verify = False       # tests set it: the positions of all kernels are proved, but for what data decide


def scheduled(kernel: Kernel, schedule: str) -> Kernel:
    """The same loops, in which the backend computes products by this schedule."""
    return replace(kernel, nests=tuple(
        replace(nest, body=tuple(replace(x, schedule=schedule) if isinstance(x, Contraction) else x for x in nest.body))
        for nest in kernel.nests))


def schedules(kernel: Kernel, target: Target) -> list[str]:
    """The schedules that claim the one product of a kernel, the model's choice first; none where there is no choice."""
    products = [x for nest in kernel.nests for x in nest.body if isinstance(x, Contraction)]
    return schedules_of(products[0], target) if len(products) == 1 and not kernel.sizes else []


def learn(body: Graph, kernel: Kernel, target: Target) -> KernelMetadata:
    """What running the kernel takes."""
    single = len(kernel.nests) == 1
    pairs = in_place_pairs(body) if single else stored_over(kernel) if adds_up(kernel) else copied_first(kernel)
    return KernelMetadata(
        len(kernel.nests), tuple(buffer.type for buffer in kernel.temporaries), scratch_size(kernel, target),
        frozenset(pairs), kernel.sizes, tuple(Check(_reader(body, check), check.operator) for check in kernel.checks))


def _reader(body: Graph, check: CheckedIndex) -> int:
    """The node of the body that reads at the index."""
    return next((k for k, node in enumerate(body.nodes) if node.loc is check.where
                 and (node.op.name == check.operator or check.operator.startswith((ACCESSES, READS)))), -1)


def all_symbols(body: Graph) -> tuple[str, ...]:
    """The symbolic sizes of all values; those of the parameters alone may lack the size of a broadcast."""
    found = dict.fromkeys(body.symbols())
    for node in body.nodes:
        for n in (n for x in node.outputs for n in x.shape):
            found.update(dict.fromkeys(sorted(symbols(n))))
    return tuple(found)


def module_of(kernel: Kernel, target: Target, shared: Shared = ()) -> TargetModule:
    """A module that defines the kernel's functions; raises where code cannot express the loops."""
    module, outputs = TargetModule(target, kernel.name), len(kernel.inputs)
    emit_kernel(module, kernel, {outputs + output: source for output, source in shared})
    return module


# ---------------------------------------------------------------- which memory it may share

def in_place_pairs(body: Graph) -> Iterator[tuple[int, int]]:
    """(result, parameter) pairs such that the parameter's element is not read after the result's is written.

    Everything from the parameter on is elementwise, in one shape, and the results that are stored after this one,
    element by element in the order of the body, do not depend on the parameter.
    """
    shape = body.results[0].shape
    if any(r.shape != shape for r in body.results):
        return
    users = body.users()
    for k, p in enumerate(body.params):
        if p not in body.results and p.shape == shape and _elementwise_after(p, users):
            reached = _reached(p, users)
            last = max((j for j, r in enumerate(body.results) if r in reached), default=0)
            yield from ((j, k) for j in range(last, len(body.results)))


def copied_first(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """(result, parameter) pairs such that the kernel begins by copying the parameter, which it reads no more.

    So writing a few rows costs no copy of the others, where the parameter's memory may be taken.
    """
    if not kernel.nests:
        return
    first, *rest = (nest.body for nest in kernel.nests)
    stores = [x for x in statements(first) if isinstance(x, Store)]
    later = set().union(*map(buffers_of, rest))
    for (k, out), (j, x) in product(enumerate(kernel.outputs), enumerate(kernel.inputs)):
        if stores and x not in later and all(
                store.buffer is out and isinstance(store.value, Load) and store.value.buffer is x
                and store.value.mask is None and store.value.offset is store.offset for store in stores):
            yield k, j


def adds_up(kernel: Kernel) -> bool:
    """Whether the kernel begins with a product along whose rows is added up what its epilogue stores."""
    first = kernel.nests[0].body[0] if kernel.nests else None
    return isinstance(first, Contraction) and first.chunk is not None


def stored_over(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """(result, parameter) pairs such that the epilogue of the product in the first nest stores the result's element
    where it has read the parameter's, and nobody else reads that."""
    first, *rest = (nest.body for nest in kernel.nests)
    (statement,) = first
    assert isinstance(statement, Contraction)
    factors = {x.buffer for x in walk(statement.left, statement.right) if isinstance(x, Load)}
    later = factors.union(*map(buffers_of, rest))
    loads = [x for s in statement.epilogue for x in walk(*roots(s)) if isinstance(x, Load)]
    stores = {s.buffer: s.offset for s in statement.epilogue if isinstance(s, Store)}
    for (k, out), (j, x) in product(enumerate(kernel.outputs), enumerate(kernel.inputs)):
        read = [load for load in loads if load.buffer is x]
        if out in stores and x not in later and read and x.type == out.type and all(
                load.offset is stores[out] and load.mask is None for load in read):
            yield k, j


def _elementwise_after(value: Value, users: Mapping[Value, list[Node]]) -> bool:
    return all(node.op.elementwise and node.output.shape == value.shape and _elementwise_after(node.output, users)
               for node in users[value])


def _reached(value: Value, users: Mapping[Value, list[Node]]) -> set[Value]:
    found, stack = {value}, [value]
    while stack:
        new = {node.output for node in users[stack.pop()]} - found
        found |= new
        stack += new
    return found

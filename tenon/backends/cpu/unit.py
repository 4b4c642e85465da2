"""Body of a kernel -> its loops and LLVM IR: one function for each stage between two barriers.

    void stage(ptr buffers, ptr sizes, i32 thread, i32 threads, ptr scratch, ptr status)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import ClassVar

from llvmlite import ir

from tenon.backends.cpu.codegen import buffers_of, emit_kernel, scratch_size
from tenon.backends.cpu.facts import Check, Facts, Shared
from tenon.backends.cpu.unit_cache import find, key_for
from tenon.backends.plain import text_of
from tenon.dims import Dim, evaluate, symbols
from tenon.errors import Location
from tenon.graph.ir import Graph, Node, Value
from tenon.loops.attention import attended, is_attention
from tenon.loops.expressions import CheckedIndex, Load
from tenon.loops.ir import Kernel, Store, statements
from tenon.loops.text import print_kernel
from tenon.observe import span
from tenon.ops.attention import attention
from tenon.passes.bodies import key_of, lowered

LONGEST_NAME = 40


@dataclass(eq=False)
class Unit:
    """A kernel: what it computes, how it is called, and, when somebody asks for them, its loops and its code."""

    body: Graph
    facts: Facts
    shared: Shared = ()
    key: str | None = None                  # under which it is kept on disk
    code: bytes | Future[bytes] | None = None   # what is not loaded yet; another thread may still be making it
    alone: ClassVar[bool] = False           # whether one thread does all of it

    @property
    def endless(self) -> bool:
        """Whether the data decide when it ends, if ever."""
        return False

    @cached_property
    def name(self) -> str:
        return name_of(self.body)

    @cached_property
    def kernel(self) -> Kernel:
        """The loops; made again for a kernel that came from the disk."""
        return kernel_of(self.body)

    @cached_property
    def ir(self) -> str:
        """The text of a module that defines the functions."""
        module = ir.Module(name=self.name)
        outputs = len(self.kernel.inputs)
        emit_kernel(module, self.kernel, {outputs + output: source for output, source in self.shared})
        return text_of(module)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The stages, in order."""
        return tuple(f"{self.name}_{k}" for k in range(self.facts.stages))

    @property
    def loops(self) -> str:
        """The loops as text, to be read."""
        return print_kernel(self.kernel)

    def forget(self) -> None:
        """Let go of what was only needed to load the code; who asks for it later makes it again."""
        self.code = None
        self.__dict__.pop("ir", None)
        self.__dict__.pop("kernel", None)

    def failed(self, number: int) -> tuple[str, Location | None]:
        """The operator, and the place in the user's program, of a check that failed."""
        check = self.facts.checks[number]
        return check.operator, self.body.nodes[check.node].loc if check.node >= 0 else None

    def work(self, sizes: Mapping[str, int]) -> int:
        """About how many elements are computed or read."""
        key = tuple([sizes[name] for name in self.facts.sizes])
        if key not in self._works:
            self._works[key] = sum(node_work(node, sizes) for node in self.body.nodes)
        return self._works[key]

    def sharing(self, shared: Shared) -> Unit:
        """The same kernel for outputs that have the memory of inputs."""
        if shared == self.shared:
            return self
        if shared not in self._variants:
            key = None if self.key is None else key_for(key_of(self.body), self.body, shared)
            self._variants[shared] = Unit(self.body, self.facts, shared, key)
            if "kernel" in vars(self):
                self._variants[shared].kernel = self.kernel
        return self._variants[shared]

    @cached_property
    def others(self) -> dict[str, Unit]:
        """Kernels that do parts of this one, by what they are called (`tenon.backends.cpu.prepack`)."""
        return {}

    @cached_property
    def _works(self) -> dict[tuple[int, ...], int]:
        return {}

    @cached_property
    def _variants(self) -> dict[Shared, Unit]:
        return {}


def make_unit(body: Graph, text: str | None = None) -> Unit:
    """The kernel of a body, remembered or lowered now; raises where loops cannot express it."""
    text = text or key_of(body)
    key = key_for(text, body)
    found = None if key is None else find(key)
    if found is not None:
        return Unit(body, found[0], (), key, found[1])
    with span("lower", kernel=name_of(body)):
        kernel = kernel_of(body, text)
    unit = Unit(body, learn(body, kernel), (), key)
    unit.kernel = kernel
    return unit


def kernel_of(body: Graph, text: str | None = None) -> Kernel:
    """The loops of a body."""
    return replace(lowered(body, text or key_of(body)), name=name_of(body), sizes=all_symbols(body))


def learn(body: Graph, kernel: Kernel) -> Facts:
    """What running the kernel takes."""
    single = len(kernel.nests) == 1
    return Facts(len(kernel.nests), tuple(buffer.type for buffer in kernel.temporaries), scratch_size(kernel),
                 frozenset(in_place_pairs(body) if single else copied_first(kernel)), kernel.sizes,
                 tuple(Check(_reader(body, check), check.operator) for check in kernel.checks))


def _reader(body: Graph, check: CheckedIndex) -> int:
    """The node of the body that reads at the index."""
    return next((k for k, node in enumerate(body.nodes)
                 if node.op.name == check.operator and node.loc is check.where), -1)


def all_symbols(body: Graph) -> tuple[str, ...]:
    """The symbolic sizes of all values; those of the parameters alone may lack the size of a broadcast."""
    found = dict.fromkeys(body.symbols())
    for node in body.nodes:
        for n in (n for x in node.outputs for n in x.shape):
            found.update(dict.fromkeys(sorted(symbols(n))))
    return tuple(found)


def name_of(body: Graph) -> str:
    """The operators in it, as far as they fit."""
    names = list(dict.fromkeys(node.op.name for node in body.nodes))
    text = "_".join(names)
    return text if len(text) <= LONGEST_NAME else f"{'_'.join(names[:3])}_and_{len(names) - 3}_more"


# ---------------------------------------------------------------- what a kernel costs

MULTIPLICATIONS = 32         # of a product of matrices that take as long as one element of other kernels


def node_work(node: Node, sizes: Mapping[str, int]) -> int:
    """Elements written or read, whichever is more; for a product of matrices, a part of the multiplications."""
    values = [*node.outputs, *(x for x in node.inputs if isinstance(x, Value))]
    most = max(count(x.size, sizes) for x in values)
    if node.op.name == "matmul":
        return count(node.output.size, sizes) * count(values[1].shape[-1], sizes) // MULTIPLICATIONS
    if is_attention(node):
        q, k, *_ = attended(node)
        products = 2 if node.op is attention else 5
        return products * count(q.size, sizes) * count(k.shape[-2], sizes) // MULTIPLICATIONS
    return most


def count(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The number that a size is."""
    return dim if isinstance(dim, int) else evaluate(dim, sizes)


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

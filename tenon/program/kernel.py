"""A kernel: the body that it computes, and one native function for each stage between two barriers.

    void stage(ptr buffers, ptr sizes, i32 first, i32 until, i32 threads, ptr scratch, ptr status)   (`work_partition`)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tenon.dims.symbolic_dim import Dim, evaluate
from tenon.errors import Location
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.text import key_of
from tenon.llvm.compile_pool import Job
from tenon.locks import cached_property
from tenon.loops.whole_operators import attended, is_attention
from tenon.ops.attention import attention
from tenon.program.kernel_cache import key_for
from tenon.program.kernel_metadata import KernelMetadata, Shared
from tenon.records import dataclass, replace
from tenon.target import Target

if TYPE_CHECKING:
    from tenon.loops.loop_ir import Kernel
    from tenon.loops.loop_pipeline import LoopPassStep

LONGEST_NAME = 40


@dataclass(eq=False)
class CompiledKernel:
    """What a kernel computes, and how it is called; a backend's subclass has its loops and its code."""

    body: Graph
    target: Target                          # the machine that its code is for
    facts: KernelMetadata
    shared: Shared = ()
    key: str | None = None                  # under which it is kept on disk
    code: bytes | Job[bytes] | None = None   # what is not loaded yet; another thread may still be making it
    schedule: str = ""                      # of its product, where that was chosen by measuring
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
        """The loops, which a backend lowers the body to."""
        raise NotImplementedError

    @cached_property
    def ir(self) -> str:
        """The text of a module that defines the functions."""
        raise NotImplementedError

    def require_code(self) -> None:
        """Raise where code cannot express the loops."""
        _ = self.ir

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The stages, in order."""
        return tuple(f"{self.name}_{k}" for k in range(self.facts.stages))

    @property
    def loops(self) -> str:
        """The loops as text, to be read."""
        raise NotImplementedError

    @property
    def loop_steps(self) -> list[LoopPassStep]:
        """What each pass over the loops did, from the compute rules on."""
        raise NotImplementedError

    @property
    def schedules(self) -> str:
        """The schedules that the kernel was offered, with costs and refusals, as text; none where there is no choice.
        """
        return ""

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
            stored = {id(x) for x in self.body.results}
            self._works[key] = sum(node_work(node, sizes) for node in self.body.nodes
                                   if node.op.moves != "view" or id(node.output) in stored)
        return self._works[key]

    def is_one_call(self, sizes: Mapping[str, int]) -> bool:
        """Whether a thread is done sooner if it does its share of the kernel in one call, though it may be late."""
        return False

    def repeated(self, sizes: Mapping[str, int]) -> int:
        """The part of the work that every thread does which has a share in the kernel: packing a factor."""
        products = (node.inputs for node in self.body.nodes if node.op.name == "matmul")
        return sum(min(count(x.type.size, sizes) for x in (left, right) if x is not None) // PACKED_PER_ELEMENT
                   for left, right in products)

    def sharing(self, shared: Shared) -> CompiledKernel:
        """The same kernel for outputs that have the memory of inputs."""
        if shared == self.shared:
            return self
        if shared not in self._variants:
            text = with_schedule(key_of(self.body), self.schedule)
            key = None if self.key is None else key_for(text, self.body, self.target, shared)
            self._variants[shared] = replace(self, shared=shared, key=key, code=None)
            if "kernel" in vars(self):
                self._variants[shared].kernel = self.kernel
        return self._variants[shared]

    @cached_property
    def others(self) -> dict[str, CompiledKernel]:
        """Kernels that do parts of this one, by what they are called (`tenon.backends.cpu.prepack`)."""
        return {}

    @cached_property
    def _works(self) -> dict[tuple[int, ...], int]:
        return {}

    @cached_property
    def _variants(self) -> dict[Shared, CompiledKernel]:
        return {}


def with_schedule(text: str, schedule: str) -> str:
    """What decides the code of a kernel, beside Tenon and the machine."""
    return f"# {schedule}\n{text}" if schedule else text


def name_of(body: Graph) -> str:
    """The operators in it, as far as they fit."""
    names = list(dict.fromkeys(node.op.name for node in body.nodes))
    text = "_".join(names)
    return text if len(text) <= LONGEST_NAME else f"{'_'.join(names[:3])}_and_{len(names) - 3}_more"


# ---------------------------------------------------------------- what a kernel costs

UNKNOWN_TRIP_COUNT = 30_000          # what a loop of unknown length counts as
MULTIPLY_ADDS_PER_ELEMENT = 32  # of a product of matrices that take as long as one element of other kernels
FACTOR_READS_PER_ELEMENT = 4  # elements of a product's factors that are read in that time
PACKED_PER_ELEMENT = 2       # and that are packed


def is_product(body: Graph) -> bool:
    """Whether a kernel is a product of matrices, or attention: much code."""
    return any(node.op.multiply_adds is not None or is_attention(node) for node in body.nodes)


def multiply_adds(node: Node, sizes: Mapping[str, int]) -> int:
    """Of a product; 0 for all other operators."""
    if node.op.multiply_adds is None:
        return 0
    values = (*node.inputs, node.output)
    return int(node.op.multiply_adds(*([count(n, sizes) for n in x.type.shape] for x in values if x is not None)))


def node_work(node: Node, sizes: Mapping[str, int]) -> int:
    """Elements written or read, whichever is more; for a product, a part of its multiplications."""
    values = [*node.outputs, *(x for x in node.inputs if isinstance(x, Value))]
    most = max(count(x.size, sizes) for x in values)
    if node.op.multiply_adds is not None:
        return max(multiply_adds(node, sizes) // MULTIPLY_ADDS_PER_ELEMENT, most // FACTOR_READS_PER_ELEMENT)
    if is_attention(node):
        q, k, *_ = attended(node)
        products = 2 if node.op is attention else 5
        return products * count(q.size, sizes) * count(k.shape[-2], sizes) // MULTIPLY_ADDS_PER_ELEMENT
    return most


def count(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The number that a size is."""
    return dim if isinstance(dim, int) else evaluate(dim, sizes)

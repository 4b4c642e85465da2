"""Kernels that users register: code of their own for an operator on a device, beside the operator's meaning.

An operator says what is computed; a kernel is one way to compute it.  A kernel that claims a node (`when`) is used
instead of the code that would be generated, eagerly and in compiled programs; the operator's reference stays the
oracle that the reference backend runs.  Of several kernels that claim a node, the one registered last is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon.graph.ir import Node
from tenon.graph.op import Op
from tenon.records import dataclass
from tenon.types import TensorType


@dataclass(frozen=True, eq=False)
class UserKernel:
    """`run(*arrays, **attrs)` gives the outputs as arrays; `when(*types, **attrs)` says which calls it takes."""

    op: Op
    device: str
    run: Callable[..., Any]
    when: Callable[..., bool]


KERNELS: dict[tuple[Op, str], list[UserKernel]] = {}


def add_kernel(kernel: UserKernel) -> None:
    """Let this kernel claim nodes from now on."""
    KERNELS.setdefault((kernel.op, kernel.device), []).insert(0, kernel)


def forget_kernel(kernel: UserKernel) -> None:
    """Let it claim none any more."""
    found = KERNELS[kernel.op, kernel.device]
    found.remove(kernel)
    if not found:
        del KERNELS[kernel.op, kernel.device]


def kernels_of(op: Op, device: str) -> tuple[UserKernel, ...]:
    """The kernels registered for an operator, the last first."""
    return tuple(KERNELS.get((op, device), ()))


def kernel_for(op: Op, types: Sequence[TensorType | None], attrs: Mapping[str, Any],
               device: str = "cpu") -> UserKernel | None:
    """The kernel that claims a call with these input types, None if there is none."""
    for kernel in KERNELS.get((op, device), ()):
        if kernel.when(*types, **attrs):
            return kernel
    return None


def has_kernel(node: Node) -> bool:
    """Whether a user's kernel claims the node."""
    return bool(KERNELS) and kernel_for(node.op, [None if x is None else x.type for x in node.inputs],
                                         node.attrs) is not None

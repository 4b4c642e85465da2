"""What type rules ask about the sizes of their operands: comparisons that hold for every size, or become guards."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from tenon.dims.symbolic_dim import Dim, PinnedSize, SymbolicDim, is_by_data
from tenon.dims.undecided_sizes import UndecidedSize, innermost


def is_zero(dim: Dim) -> bool:
    """Whether a size is 0, whatever symbols stand for: nothing is asked."""
    return isinstance(dim, int) and dim == 0


def is_one(dim: Dim) -> bool:
    """Whether an axis of this size is repeated where it meets a longer one; one whose size the data decide is not."""
    return dim == 1 if isinstance(dim, int) or not is_by_data(dim) else False


def same_sizes(*shapes: Sequence[Dim]) -> bool:
    """Whether shapes are spelled alike, whatever their symbols stand for: nothing is asked."""
    first = shapes[0] if shapes else ()
    if all(shape is first for shape in shapes):
        return True
    return all(len(shape) == len(first) and all(x is y or (type(x) is type(y) and (
        x.terms == y.terms if isinstance(x, SymbolicDim) and isinstance(y, SymbolicDim) else x == y))
        for x, y in zip(shape, first, strict=True)) for shape in shapes)


def comparable(left: Dim, right: Dim) -> tuple[Dim, Dim]:
    """Both sizes, as numbers unless it is known how far apart they are: for rules of types that ask which is less.

    An answer that holds for the sizes of one call would not be known when the graph is compiled for others.
    """
    return (left, right) if isinstance(left - right, int) else (index(left), index(right))


def least(left: Dim, right: Dim) -> Dim:
    """The less of two sizes that are `comparable`."""
    left, right = comparable(left, right)
    return right if right < left else left


def hold_where_natural(*needs: Dim) -> None:
    """Let a capture hold only where these are not negative; for what rules refuse, of sizes that are numbers.

    Where the sizes at hand say otherwise they become numbers in this capture, and the rules decide.  Outside of
    captures nothing is asked: kernels rely on what was answered.  Sizes that the data decide cannot become numbers:
    slices are made to fit them, and a run with others has a program of its own.
    """
    if innermost.get() is not None:
        for need in needs:
            if isinstance(need, SymbolicDim) and not is_by_data(need) and need < 0:
                raise PinnedSize(need, agreed=True)


def hold_for_data_where_natural(*needs: Dim) -> None:
    """The same, also of sizes that the data decide; where these say otherwise, the function is not captured."""
    hold_where_natural(*needs)
    if innermost.get() is not None and any(isinstance(n, SymbolicDim) and is_by_data(n) and n < 0 for n in needs):
        raise UndecidedSize("an operator is refused for what the data decide a size to be")

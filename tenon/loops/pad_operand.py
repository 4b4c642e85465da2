"""An image that windows reach over the ends of, along more axes than two -> a copy with zeros around the outer ones.

    sum(x[c, d + k - 1, ...] * w[o, c, k, ...])    ->    part[c, t, ...] = x[c, t - 1, ...] or 0;
                                                         sum(part[c, d + k, ...] * w[o, c, k, ...])

Then planes are images and taps across planes are channels, so that windows of 3 x 3 x 3 elements are as many of 3 x 3,
which Winograd's transforms multiply less for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.affine import Affine, affine, from_affine
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Binary, Buffer, Expr, Index, Load, Reduce, binary
from tenon.loops.loop_context import LoopContext
from tenon.loops.match_contraction import MatchedProduct
from tenon.loops.select_conv_schedule import sliding
from tenon.loops.simplify_expressions import simplify
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import replace
from tenon.loops.window_access import Slide, Windows, windows_of
from tenon.types import TensorType

WINOGRAD_AXES = 2       # axes that Winograd's windows slide along
MAX_PADDED_ELEMENTS = 1 << 24  # elements of a copy


def with_zeros_around(target: StoreTarget, context: LoopContext) -> list[StoreTarget]:
    """The target, after one for a copy of what windows slide over if that saves multiplications."""
    found = target.product
    if found is None:
        return [target]
    depth = found.sum.indices
    for factor, places in (found.left, found.rows), (found.right, found.columns):
        for windows in windows_of(factor, places, depth), windows_of(factor, depth, places):
            if windows is not None and windows.along_last(WINOGRAD_AXES) is windows and \
                    len(windows.slides) > WINOGRAD_AXES:
                changed = _with_copy(target, found, windows, context)
                if changed is not None:
                    return changed
    return [target]


def _with_copy(target: StoreTarget, found: MatchedProduct, windows: Windows,
               context: LoopContext) -> list[StoreTarget] | None:
    """The same with this factor's windows in a copy; None where nothing is saved."""
    copy = _PaddingCopy(windows)
    key = windows.load, copy.indices
    buffer = context.copies.get(key, Buffer("part", copy.type, "temporary"))
    read = copy.read(buffer)
    left, right = (replace(x, {windows.load: read}) for x in (found.left, found.right))
    way = sliding(left, right, found.batch, found.rows, found.columns, found.sum.indices, context.target)
    if copy.type.size > MAX_PADDED_ELEMENTS or way is None or not way.way.startswith("winograd"):
        return None
    made = key in context.copies
    if not made:
        buffer = context.copies[key] = context.temporary(copy.type)
        read = copy.read(buffer)
    sum_ = Reduce("add", found.sum.indices, replace(found.sum.body, {windows.load: read}), found.sum.extents)
    changed = StoreTarget(target.buffer, target.indices, target.offset, replace(target.value, {found.sum: sum_}))
    return [changed] if made else [StoreTarget(buffer, copy.indices, offset(copy.type.shape, copy.indices), copy.value),
                                   changed]


class _PaddingCopy:
    """What lies in a copy, and where: all that the outer slides cover, of the others what is in memory."""

    def __init__(self, windows: Windows) -> None:
        self.windows, self.axes = windows, (*windows.outside, *windows.channels)
        self.outer, self.inner = windows.slides[:-WINOGRAD_AXES], windows.slides[-WINOGRAD_AXES:]
        sizes = [s.covered(s.places) for s in self.outer] + [s.high - s.low for s in self.inner]
        self.along = tuple(Index(f"t{place}", n) for place, n in enumerate(sizes))
        self.indices = (*self.axes, *self.along)
        self.type = TensorType(windows.load.dtype, tuple(i.extent for i in self.indices))

    @property
    def value(self) -> Expr:
        """The element of each place."""
        at, conditions = affine(self.windows.base), list[Expr]()
        for slide, t in zip(self.windows.slides, self.along, strict=True):
            is_outer = slide in self.outer
            u = Affine({t: 1}, slide.first + slide.shift if is_outer else slide.low)
            at = at + u.scaled(slide.stride)
            conditions += _within(from_affine(u), slide) if is_outer else []
        return simplify(Load(self.windows.load.buffer, from_affine(at), _all(conditions)))

    def read(self, buffer: Buffer) -> Load:
        """The element that a tap meets at a place."""
        places, conditions = list[Expr](), list[Expr]()
        for slide in self.windows.slides:
            u, is_outer = slide.coordinate, slide in self.outer
            places.append(from_affine(u + Affine({}, -slide.shift - slide.first if is_outer else -slide.low)))
            conditions += [] if is_outer else _within(from_affine(u), slide)
        return Load(buffer, offset(self.type.shape, (*self.axes, *places)), _all(conditions))


def _within(u: Expr, slide: Slide) -> list[Expr]:
    """That an element is in memory."""
    return [binary(">=", u, slide.low), binary("<", u, slide.high)]


def _all(conditions: Sequence[Expr]) -> Expr | None:
    """All of them, if there are any."""
    found: Expr | None = None
    for condition in conditions:
        found = condition if found is None else Binary("&", found, condition)
    return None if found is None else simplify(found)

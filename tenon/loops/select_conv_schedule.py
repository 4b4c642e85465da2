"""A product one of whose factors is read in windows -> by which way its windows slide, if none else is as fast.

The ways have the names of the schedules that a backend has for them; how windows lie says tenon.loops.window_access.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Literal

from tenon.loops.affine import affine
from tenon.loops.expressions import Expr, Index, Load
from tenon.loops.refusal import Refusal
from tenon.loops.window_access import Axis, Windows, count, windows_of
from tenon.records import dataclass
from tenon.target import Target
from tenon.types import bfloat16

MAX_TAPS = 64           # are written out one by one
MAX_UNPACKED_FILTERS = 16   # of a group, for which putting columns together does not pay
MIN_PARALLEL_GROUPS = 8     # groups that keep threads busy
MIN_VECTOR_FILTERS = 16     # that fill a vector
MAX_SUMS = 1 << 24      # that wait in memory
MAX_FREQUENCIES = 2048 # of a block of tiles
MIN_TILES = 32          # of a block
SHORT_SUM_TIME_RATIO = 1.1  # times as long as one long sum products with short ones take
MAX_ACROSS = 16         # taps of a row, which are written out
MAX_AT_EDGES = 64       # places of a row whose windows reach over its ends, for each of which there is code
Way = Literal["depthwise_nhwc", "winograd_forward", "forward_few_filters", "winograd_weight_grad", "weight_grad_wide",
              "weight_grad_depthwise", "bf16_tap_by_tap"]
FORWARD: tuple[Way, ...] = "depthwise_nhwc", "winograd_forward", "forward_few_filters"
WEIGHT_GRAD: tuple[Way, ...] = "winograd_weight_grad", "weight_grad_wide", "weight_grad_depthwise"

NO_WINDOWS = Refusal("no factor is read in such windows")
NO_ARRAY = Refusal("the factor without windows is computed")


@dataclass(frozen=True)
class Sliding:
    """A product with a factor that is read in windows; `filters` are what only the other factor depends on.

    By `way`, a vector holds neighbouring places, each with a sum of its own (a convolution); or places that are added
    up (the gradient of a kernel with few filters), or filters (the same with many, or a convolution tap after tap); or
    channels that lie side by side, each with a kernel of its own.
    """

    windows: Windows
    other: Load
    filters: Axis
    way: Way


def sliding(left: Expr, right: Expr, batch: Axis, rows: Axis, columns: Axis, depth: Axis,
            target: Target) -> Sliding | None:
    """How windows slide in a product where nothing else is as fast; else None.  `adders`: the processor adds beside
    multiply-adds, in units of their own.

    Numbers of bfloat16 are multiplied in pairs, or have been widened (tenon.passes.lower_bf16_convolutions), unless
    they are those of groups: these are widened as a window's block is copied.
    """
    ways = considered(left, right, batch, rows, columns, depth, target)
    return next((found for _, found in ways if isinstance(found, Sliding)), None)


def considered(left: Expr, right: Expr, batch: Axis, rows: Axis, columns: Axis, depth: Axis,
               target: Target) -> Iterator[tuple[Way, Sliding | Refusal]]:
    """Each way in which windows may slide, those before others that are to be preferred; or why it does not do.  Either
    factor may be the one that is read in windows."""
    def refused(ways: Iterable[Way], reason: Refusal) -> Iterator[tuple[Way, Refusal]]:
        return ((way, reason) for way in ways)

    if left.dtype is bfloat16 and not batch:
        yield from refused((*FORWARD, *WEIGHT_GRAD), Refusal("numbers of bfloat16 are multiplied in pairs"))
        return
    for one, other, places, filters in (left, right, rows, columns), (right, left, columns, rows):
        if not isinstance(other, Load) or other.mask is not None or not _are_known(batch, filters):
            yield from refused((*FORWARD, *WEIGHT_GRAD), NO_ARRAY)
            continue
        few = count(filters) <= MAX_UNPACKED_FILTERS
        windows = windows_of(one, places, depth)
        if windows is None:
            yield from refused(FORWARD, NO_WINDOWS)
        else:
            last = not filters and _has_channels_last(windows, other, batch)
            yield "depthwise_nhwc", Sliding(windows, other, filters, "depthwise_nhwc") if last else Refusal(
                "channels are not the last axis of both factors, or are added up")
            yield "winograd_forward", _in_tiles(windows, other, filters, target.separate_add_ports)
            yield "forward_few_filters", Sliding(windows, other, filters, "forward_few_filters") if few and _lies_well(
                windows, other) else Refusal("neighbours do not lie side by side" if few else "there are many filters")
        windows = windows_of(one, depth, places)
        if windows is None or not _lies_well(windows, other) or not _follows(windows, other):
            yield from refused(WEIGHT_GRAD, NO_WINDOWS)
            continue
        sums = count(windows.channels) * count(windows.taps) * count(filters)
        flat, many = windows.along_last(2), count(filters) >= MIN_VECTOR_FILTERS
        tiled = many and _has_tiles(flat) and saves_multiplications(flat, filters, whole_channels=True)
        yield "winograd_weight_grad", Sliding(flat, other, filters, "winograd_weight_grad") if tiled else Refusal(
            "tiles of 2 x 2 windows save no time" if many else "filters fill no vector")
        wide = many and sums <= MAX_SUMS and _are_long(windows)
        yield "weight_grad_wide", Sliding(windows, other, filters, "weight_grad_wide") if wide else Refusal(
            "lines are shorter than taps, or sums too many" if many else "filters fill no vector")
        several = count(batch) >= MIN_PARALLEL_GROUPS and few
        yield "weight_grad_depthwise", Sliding(windows, other, filters, "weight_grad_depthwise") if several else \
            Refusal("groups are few, or have many filters")


def _in_tiles(windows: Windows, other: Load, filters: Axis, adders: bool) -> Sliding | Refusal:
    """Tiles of 2 x 2 windows of a convolution."""
    flat = windows.along_last(2)
    if not _lies_well(flat, other) or not _has_tiles(flat) or not _has_taps_beside(flat, other):
        return Refusal("windows are no plane of taps that lie side by side")
    if not saves_multiplications(flat, filters, adders=adders):
        return Refusal("tiles of 2 x 2 windows save no time")
    return Sliding(flat, other, filters, "winograd_forward")


def _are_known(*axes: Axis) -> bool:
    return all(isinstance(i.extent, int) for axis in axes for i in axis)


def _lies_well(windows: Windows, other: Load) -> bool:
    """Whether neighbouring places are neighbours in memory, both factors in one type, and taps not too many."""
    if windows.load.dtype is not other.dtype or windows.slides[-1].stride != 1:
        return False
    if prod(slide.taps for slide in windows.slides) > MAX_TAPS:
        return False
    return all(isinstance(atom, Index) and isinstance(c, int) for atom, c in affine(other.offset).terms.items())


def _has_channels_last(windows: Windows, other: Load, batch: Axis) -> bool:
    """Whether both factors lie along the last index that both depend on, and no sum goes over channels."""
    load, (*_, last) = windows.load, windows.slides
    if not batch or windows.channels or load.dtype is not other.dtype or load.dtype.kind != "f" or load.dtype.bits < 32:
        return False
    if last.taps > MAX_ACROSS or any(slide.spread > 1 or slide.reach < 0 for slide in windows.slides):
        return False
    if last.places - len(last.whole) > MAX_AT_EDGES:
        return False
    offsets = affine(windows.base), affine(other.offset)
    return all(x.terms.get(batch[-1], 0) == 1 and all(isinstance(atom, Index) and isinstance(c, int) for atom, c
                                                      in x.terms.items()) for x in offsets)


def _follows(windows: Windows, other: Load) -> bool:
    """Whether neighbouring places are neighbours in the other factor."""
    last = windows.slides[-1]
    return affine(other.offset).terms.get(last.place, 0) == 1 and last.spread == 1


def _are_long(windows: Windows) -> bool:
    """Whether lines of places are no shorter than those of taps, so that what is added up is the longer side.

    In a convolution with a long step places and taps may change their parts: 3 x 3 places, and a tap for every result.
    """
    last = windows.slides[-1]
    return last.places >= last.taps


def _has_tiles(windows: Windows) -> bool:
    """Whether windows slide along two axes, and tiles of 2 x 2 windows can stand there."""
    return len(windows.slides) == 2 and windows.load.dtype.kind == "f" and all(
        s.tap is not None and 1 in (s.step, abs(s.reach)) and s.spread == 1 and s.high > s.low for s in windows.slides)


def _has_taps_beside(windows: Windows, other: Load) -> bool:
    """Whether the other factor's taps lie side by side, row after row or column after column."""
    terms, (down, across) = affine(other.offset).terms, (slide.taps for slide in windows.slides)
    return [terms.get(tap, 0) for tap in windows.taps] in ([across, 1], [1, down])


def saves_multiplications(windows: Windows, filters: Axis, whole_channels: bool = False, adders: bool = False) -> bool:
    """Whether tiles of 2 x 2 windows take less time than one window after the other, by what a vector unit does.

    Filters fill whole vectors, and so do channels where both are sides of what is added up.  Adders transform while
    others multiply: half of the time that takes is hidden.
    """
    images, channels, outputs = count(windows.outside), count(windows.channels), count(filters)
    if min(channels, outputs) < MIN_VECTOR_FILTERS:
        return False
    plain = prod(s.taps * s.places for s in windows.slides) * images * channels * outputs / 2
    channels, outputs = _whole(channels) if whole_channels else channels, _whole(outputs)
    tiles = prod(s.tiling.tiles(s.places) for s in windows.slides) * images
    number = frequencies(windows)
    # to transform elements, sums and taps; and to load and store sums that are added to block after block
    beside = tiles * (channels * 2.5 + outputs * 3.75) + channels * outputs * 7.5
    beside += tiles / tiles_of_block(number) * channels * outputs * 6 if whole_channels else 0
    return number * (tiles * channels * outputs / 2 + beside * (0.5 if adders else 1)) * SHORT_SUM_TIME_RATIO < plain


def tiles_of_block(number: int) -> int:
    """About how many tiles are transformed at a time, so that all their frequencies stay in the second cache."""
    return max(MAX_FREQUENCIES // number, MIN_TILES)


def frequencies(windows: Windows) -> int:
    """Multiplications for a tile of 2 x 2 windows and a channel."""
    return prod(s.tiling.frequencies for s in windows.slides)


def _whole(filters: int) -> int:
    return -(-filters // MIN_VECTOR_FILTERS) * MIN_VECTOR_FILTERS

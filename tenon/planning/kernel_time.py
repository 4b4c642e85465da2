"""A kernel's work and a chip -> seconds: a roofline (Williams et al., 2009) whose roofs are what the chip reaches.

A product's result is computed in tiles, as many at once as the chip has units, so the last wave may be half empty; and
short sums do not keep a unit busy.  What else a kernel does is bound by memory, or by plain arithmetic.
"""

from __future__ import annotations

from math import ceil

from tenon.planning.cluster import Chip
from tenon.planning.node_work import KernelWork, ProductShape


def kernel_seconds(work: KernelWork, chip: Chip) -> float:
    """How long the kernel takes on the chip."""
    reached = chip.efficiency
    moving = work.bytes / (chip.memory_bandwidth * reached.bandwidth)
    if work.product is None:
        computing = work.operations / (chip.operations("float32") * reached.arithmetic)
    else:
        computing = work.operations / (chip.operations(work.dtype) * product_efficiency(work.product, chip))
    return (computing + moving if chip.moves_apart else max(computing, moving)) + reached.launch


def product_efficiency(shape: ProductShape, chip: Chip) -> float:
    """Which part of its peak a chip reaches in a product of this shape."""
    depth = max(1, shape.depth)
    filled = depth / (depth + chip.efficiency.product_depth)
    return chip.efficiency.product * filled * tiles_used(shape, chip)


def tiles_used(shape: ProductShape, chip: Chip) -> float:
    """The part of all tiles' elements, in waves of as many tiles as there are units, that are elements of the result.

    A library has smaller tiles too, for small results: down to a quarter in each direction.
    """
    return max((_used(shape, chip.units, chip.tile[0] / part, chip.tile[1] / part) for part in (1, 2, 4)
                if min(chip.tile) >= part), default=1.0)


def _used(shape: ProductShape, units: int, rows: float, columns: float) -> float:
    tiles = shape.batch * ceil(shape.rows / rows) * ceil(shape.columns / columns)
    waves = ceil(tiles / units)
    return shape.batch * shape.rows * shape.columns / (waves * units * rows * columns) if waves else 1.0

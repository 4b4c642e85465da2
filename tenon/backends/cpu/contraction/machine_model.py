"""How long a register tile takes on a target: the sizes of tiles that suit a product.

    >>> best_tile(Target(vector_bytes=64, registers=32), lanes=16)
    (9, 3)
    >>> best_tile(Target(vector_bytes=32, registers=16), lanes=8)
    (4, 3)
    >>> best_tile(Target(vector_bytes=64, registers=32), lanes=16, rows=64, columns=768)    # nothing is left over
    (8, 3)
"""
from functools import lru_cache
from math import ceil

from tenon.target import Target

FMA_UNITS = 2           # vector multiply-adds, and loads, that start in a cycle
FMA_LATENCY = 4         # cycles until one can be added to
FREE_LOADS = 0.75       # of the places for loads can be used while nothing but multiply-adds is waited for
TILE_START = 12         # cycles until a tile's first sums are on their way
LOAD_CYCLES = 0.05      # by how much one a cycle holds up the others; they may share their core with another program
L2_LOAD_CYCLES = 0.3    # and a vector a cycle from the second cache
SUM_END = 0.5           # cycles to clear and store a sum
MAX_KNOWN = 1024        # sizes of products whose tiles are remembered: a kernel asks twenty times
L2_BYTE_CYCLES = 0.0015  # cycles a byte of right, which comes from the second cache, holds up the others


def best_tile(machine: Target, lanes: int, rows: int | None = None, columns: int | None = None) -> tuple[int, int]:
    """(rows, vectors) of the register tile that does a product of these sizes, as far as they are known, in least time.
    """
    return tiles_by_time(machine, lanes, rows, columns)[0]


@lru_cache(MAX_KNOWN)
def tiles_by_time(machine: Target, lanes: int, rows: int | None = None, columns: int | None = None,
                  narrowed: bool = False) -> tuple[tuple[int, int], ...]:
    """(rows, vectors) of all register tiles, the fastest for a product of these sizes first.

    Registers hold the sums, the vectors of right and one factor of left.  The last tiles are as dear as the others, but
    for those of the last columns where they are `narrowed`: to the vectors that there are.
    """
    found = []
    for vectors in range(1, 5):
        for height in range(1, (machine.registers - vectors - 1) // vectors + 1):
            sums, loads = height * vectors, height + vectors
            down = ceil(rows / height) if rows else 1 / height
            panels, rest = divmod(ceil(columns / lanes), vectors) if columns else (1 / (vectors * lanes), 0)
            across = panels * _step(machine, height, vectors)
            if rest:
                across += _step(machine, height, rest if narrowed else vectors)
            found.append((round(down * across, 9), loads / sums, (height, vectors)))
    return tuple(tile for *_, tile in sorted(found))


def _step(machine: Target, height: int, vectors: int) -> float:
    """Cycles of a step of a tile: as many as its multiply-adds take, or the sums' latency, and a little for what is
    loaded."""
    sums, loads = height * vectors, height + vectors
    step = max(sums / FMA_UNITS, FMA_LATENCY)
    step += max(loads / FMA_UNITS - FREE_LOADS * step, 0) + L2_BYTE_CYCLES * vectors * machine.vector_bytes
    return step + LOAD_CYCLES * loads ** 2 / step


def product_cycles(machine: Target, tile: tuple[int, int], lanes: int, rows: int, columns: int, depth: int) -> float:
    """About how long a register tile takes for all sums of a product, packing and the epilogue left out.

    >>> product_cycles(Target(vector_bytes=64, registers=32), (8, 3), 16, 64, 96, 100)
    20449
    """
    height, vectors = tile
    return round(ceil(rows / height) * ceil(ceil(columns / lanes) / vectors) * depth * _step(machine, height, vectors))


def exact_tile(machine: Target, lanes: int, rows: int, columns: int, depth: int,
               places: int | None = None) -> tuple[int, int]:
    """(rows, vectors) of the largest tile where rows and columns are shared out evenly, in the least time.

    The first cache may have `places` only for the lines that rows of left, and one of right, lie in.

    >>> exact_tile(Target(vector_bytes=64, registers=32), 16, 64, 64, 64)
    (6, 4)
    >>> exact_tile(Target(vector_bytes=64, registers=32), 16, 1, 128, 128)
    (1, 7)
    >>> exact_tile(Target(vector_bytes=64, registers=32), 16, 1024, 16, 1024, places=12)
    (11, 1)
    """
    def cost(height: int, vectors: int) -> float:
        sums, loads = height * vectors, height + vectors
        step = max(sums / FMA_UNITS, FMA_LATENCY, loads / FMA_UNITS / FREE_LOADS)
        held_up = LOAD_CYCLES * (loads / step) ** 2
        if depth * vectors * machine.vector_bytes > machine.l1_bytes:
            held_up += L2_LOAD_CYCLES * (vectors / step) ** 2
        return depth * step * (1 + held_up) + TILE_START + sums * SUM_END

    found, across = [], ceil(columns / lanes)
    widest = 4 if rows >= FMA_LATENCY else machine.registers // 2 - 1
    for vectors in range(1, min(widest, across) + 1):
        most = min((machine.registers - vectors - 1) // vectors, rows, max((places or machine.registers) - vectors, 1))
        for height in range(1, most + 1):
            total = sum(down * panels * cost(h, v) for h, down in shares(rows, height)
                        for v, panels in shares(across, vectors))
            found.append((round(total, 6), -height * vectors, (shares(rows, height)[0][0], vectors)))
    return min(found)[2]


def shares(count: int, most: int) -> list[tuple[int, int]]:
    """[(size, how many), ...] of the fewest parts of at most `most`, as equal as can be, the larger first.

    >>> shares(64, 6), shares(12, 6)
    ([(6, 9), (5, 2)], [(6, 2)])
    """
    parts = max(ceil(count / most), 1)
    size, larger = divmod(count, parts)
    found = [(size + 1, larger), (size, parts - larger)]
    return [(size, parts) for size, parts in found if size and parts]

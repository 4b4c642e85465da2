"""A TOML file -> a cluster: what a device computes and holds, and what joins devices, level by level.

    name = "two boards"
    [chip]
    name = "board"
    memory = 16e9                       # bytes
    memory_bandwidth = 900e9            # bytes a second
    peak = { float32 = 15e12, bfloat16 = 120e12 }       # operations a second
    [[level]]                           # innermost first
    name = "bus"
    size = 2                            # devices of the first level; groups of the level before of each further one
    bandwidth = 32e9                    # bytes a second from a device, one way
    latency = 5e-6                      # seconds a message

What a file leaves out has a default, except these.  Files are data: they are read by `tomllib` and checked.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from tenon.errors import ArgumentError
from tenon.planning.checked_table import MAX_DEVICES, CheckedTable
from tenon.records import dataclass
from tenon.types import as_dtype

SHIPPED = Path(__file__).parent / "clusters"


@dataclass(frozen=True)
class Efficiencies:
    """Which part of its peaks a chip reaches; the same numbers for every model and plan.

    `product` is that of a product of large matrices, and `product_depth` the length of its sums that reaches half of
    it; `arithmetic` is that of other operators, and `bandwidth` theirs of the memory's.  `launch` are the seconds that
    a kernel costs, and `fresh` the bytes a second of memory that a step asks the system for, 0 where that is free.
    """

    product: float = 0.8
    product_depth: float = 0.0
    bandwidth: float = 0.8
    launch: float = 5e-6
    arithmetic: float = 1.0
    fresh: float = 0.0


@dataclass(frozen=True)
class Chip:
    """One device.

    A product's result is computed in tiles of `tile` elements, of which `units` are computed at once.  `reserved` bytes
    of memory are the system's.  Where `fused_products` is set, operators after a product are a part of its kernel;
    where `fused_attention` is set, scores are never stored.  A kernel moves memory while it computes, or before and
    after, where `moves_apart` is set.
    """

    name: str
    memory: float
    memory_bandwidth: float
    peak: tuple[tuple[str, float], ...]         # operations a second by element type
    units: int = 1
    tile: tuple[int, int] = (1, 1)
    reserved: float = 0.0
    fused_products: bool = False
    fused_attention: bool = False
    moves_apart: bool = False
    efficiency: Efficiencies = Efficiencies()

    @property
    def room(self) -> float:
        """Bytes that a program may use."""
        return self.memory - self.reserved

    def operations(self, dtype: str) -> float:
        """Operations a second at best; raises ArgumentError for an element type that the file does not name."""
        peaks = dict(self.peak)
        if dtype not in peaks:
            raise ArgumentError(f"the chip {self.name} has no peak for {dtype}", hint=f"one of {', '.join(peaks)}")
        return peaks[dtype]


@dataclass(frozen=True)
class Interconnect:
    """What joins `size` groups of the level before it, or devices; `bandwidth` is a device's, one way."""

    name: str
    size: int
    bandwidth: float
    latency: float
    efficiency: float = 1.0

    @property
    def rate(self) -> float:
        """Bytes a second that a device's long messages have."""
        return self.bandwidth * self.efficiency


@dataclass(frozen=True)
class Cluster:
    """Devices and what joins them.  Device k is next to k + 1: the innermost level joins the first `size` of them.

    >>> from tenon.planning.cluster import load_cluster
    >>> cluster = load_cluster("a100")
    >>> cluster.chip.name, [(level.name, level.size) for level in cluster.levels]
    ('A100-SXM4-80GB', [('NVLink', 8), ('InfiniBand', 2048)])
    """

    name: str
    chip: Chip
    levels: tuple[Interconnect, ...]

    @property
    def devices(self) -> int:
        """How many there are."""
        return prod(level.size for level in self.levels)

    def joined(self, level: int) -> int:
        """How many devices a group of this level has."""
        return prod(x.size for x in self.levels[:level + 1])


def load_cluster(source: str | Path | Cluster) -> Cluster:
    """The cluster of a TOML file, or of one that comes with Tenon: "a100", "h100".

    Raises ArgumentError where there is no such file, or where it says something that no cluster has: the message names
    the key, what was found and what is expected.
    """
    if isinstance(source, Cluster):
        return source
    if not isinstance(source, (str, Path)):
        raise ArgumentError(f"load_cluster: a name or the path of a .toml file is expected, not {source!r}")
    path = Path(source)
    if path.suffix != ".toml":
        path = SHIPPED / f"{source}.toml"
        if not path.is_file() or path.parent != SHIPPED:
            raise ArgumentError(f"load_cluster: there is no cluster {str(source)!r}",
                                hint=f"one of {', '.join(shipped())}, or the path of a .toml file")
    try:
        text = path.read_text(encoding="utf-8")
        return cluster_of(tomllib.loads(text), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"load_cluster: {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"load_cluster: {path} is no TOML: {error}") from None


def cluster_text(cluster: Cluster) -> str:
    """A TOML file that says this cluster."""
    chip, reached = cluster.chip, cluster.chip.efficiency
    lines = [f"name = {json.dumps(cluster.name)}", "", "[chip]"]
    lines += [f"{name} = {_toml(getattr(chip, name))}" for name in type(chip).__annotations__
              if name not in ("peak", "efficiency")]
    lines += [f"peak = {{ {', '.join(f'{name} = {rate!r}' for name, rate in chip.peak)} }}", "", "[chip.efficiency]"]
    lines += [f"{name} = {_toml(getattr(reached, name))}" for name in type(reached).__annotations__]
    for level in cluster.levels:
        lines += ["", "[[level]]", *(f"{name} = {_toml(getattr(level, name))}" for name in type(level).__annotations__)]
    return "\n".join(lines) + "\n"


def _toml(x: Any) -> str:
    return json.dumps(list(x) if isinstance(x, tuple) else x)


def shipped() -> list[str]:
    """The names of the clusters that come with Tenon."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def cluster_of(table: Mapping[str, Any], where: str = "the cluster") -> Cluster:
    """The cluster that a table describes; raises ArgumentError as `load_cluster` does."""
    top = CheckedTable(table, where)
    levels = top.tables("level")
    cluster = Cluster(top.text("name"), _chip(top.table("chip")), tuple(_level(level) for level in levels))
    top.text("source", "")
    top.done()
    if cluster.devices > MAX_DEVICES:
        raise ArgumentError(f"{where}: {cluster.devices} devices, and at most {MAX_DEVICES} are planned for")
    return cluster


def _chip(read: CheckedTable) -> Chip:
    peak, efficiency = read.table("peak"), read.table("efficiency", {})
    peaks = tuple((as_dtype(name).name, peak.number(name)) for name in peak.names("an element type"))
    tile = read.value("tile", [1, 1])
    if not isinstance(tile, list) or len(tile) != 2 or not all(type(n) is int and n >= 1 for n in tile):
        raise read.wrong("tile", tile, "two whole numbers of elements")
    chip = Chip(read.text("name"), read.number("memory"), read.number("memory_bandwidth"), peaks,
                read.whole("units", 1), (tile[0], tile[1]), read.number("reserved", 0.0, low=0.0),
                read.truth("fused_products"), read.truth("fused_attention"), read.truth("moves_apart"),
                Efficiencies(efficiency.share("product", 0.8), efficiency.number("product_depth", 0.0, low=0.0),
                             efficiency.share("bandwidth", 0.8), efficiency.number("launch", 5e-6, low=0.0),
                             efficiency.share("arithmetic", 1.0), efficiency.number("fresh", 0.0, low=0.0)))
    efficiency.done()
    read.done()
    if chip.room <= 0:
        raise read.wrong("reserved", chip.reserved, f"less than the memory, {chip.memory:g} bytes")
    return chip


def _level(read: CheckedTable) -> Interconnect:
    level = Interconnect(read.text("name"), read.whole("size"), read.number("bandwidth"),
                         read.number("latency", low=0.0), read.share("efficiency", 1.0))
    read.done()
    return level

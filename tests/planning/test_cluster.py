"""Cluster files: what ships, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from tenon.errors import ArgumentError
from tenon.planning.cluster import load_cluster, shipped

SMALL = """
name = "two boards"
[chip]
name = "board"
memory = 16e9
memory_bandwidth = 900e9
peak = { float32 = 15e12, bf16 = 120e12 }
[[level]]
name = "bus"
size = 2
bandwidth = 32e9
latency = 5e-6
[[level]]
name = "net"
size = 3
bandwidth = 4e9
latency = 50e-6
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", shipped())
def test_what_ships_is_read(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.devices >= 2 and cluster.chip.room > 1e9 and cluster.chip.operations("float32") > 1e9


def test_a_file_is_read(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, SMALL))
    assert cluster.devices == 6 and cluster.joined(0) == 2 and cluster.chip.operations("bfloat16") == 120e12
    with pytest.raises(ArgumentError, match="no peak for float16"):
        cluster.chip.operations("float16")


@pytest.mark.parametrize(("old", "new", "complaint"), [
    ("memory = 16e9", "memory = -1", "chip: memory is -1, and a number above 0"),
    ("memory = 16e9", "memory = true", "memory is True"),
    ("memory = 16e9", "memory = nan", "memory is nan"),
    ("memory = 16e9", "", "chip: memory is missing"),
    ("memory = 16e9", "memory = 16e9\nreserved = 17e9", "less than the memory"),
    ("size = 2", "size = 0", "level 1: size is 0, and a whole number"),
    ("size = 2", "size = 2.5", "size is 2.5"),
    ("size = 2", "size = 10000000\n", "devices, and at most"),
    ("latency = 5e-6", "latency = 5e-6\nlatnecy = 1", "'latnecy' is no key here"),
    ("latency = 5e-6", "latency = 5e-6\nefficiency = 1.5", "efficiency is 1.5, and a part of 1"),
    ("peak = { float32 = 15e12, bf16 = 120e12 }", "peak = { float33 = 15e12 }", "'float33' is not an element type"),
    ("peak = { float32 = 15e12, bf16 = 120e12 }", "peak = 15e12", "a table is expected"),
    ("peak = { float32 = 15e12, bf16 = 120e12 }", "peak = {}", "an element type is missing"),
    ("[chip]", "[chip", "is no TOML"),
    ("[chip]", "[[chip]]", "a table is expected"),
    ("[[level]]", "[level]", "is no TOML"),
    ("memory = 16e9", "memory = 16e9\ntile = [0, 1]", "two whole numbers"),
    ("[[level]]\nname = \"bus\"", "[chip.efficiency]\nproduct = 2\n[[level]]\nname = \"bus\"", "product is 2.0, and a part of 1"),
])
def test_what_no_cluster_has_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint.replace("[", r"\[")):
        load_cluster(written(tmp_path, SMALL.replace(old, new)))


@pytest.mark.parametrize("name", ["nowhere", "../planning/clusters/a100", "/tmp", "missing.toml", "", 3])
def test_no_such_cluster(name: Any) -> None:
    with pytest.raises(ArgumentError, match="load_cluster: "):
        load_cluster(name)

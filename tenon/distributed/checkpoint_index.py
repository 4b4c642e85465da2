"""The index of a checkpoint: which file holds which part of which tensor.  A file that may come from anybody.

    {"format": 1, "processes": 2, "structures": ["{...}"],
     "parts": [{"tensor": "w", "whole": [4, 3], "start": [2, 0], "shape": [2, 3], "dtype": "f32",
                "file": "7-1.safetensors", "key": "w@1", "crc": 1234, "of": null}]}

`of` is the process whose own a part is; null for what all have alike.  The parts of a tensor tile it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from tenon import tensor_file
from tenon.errors import ArgumentError
from tenon.records import dataclass, replace
from tenon.types import DTYPES, as_dtype

FORMAT = 1
NAME = "index.json"
FILE = re.compile(r"\d+-\d+\.safetensors")
MAX_BYTES = 1 << 28         # of an index
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class StoredPart:
    """A part of a tensor: where it begins in the whole, its elements (their type, in an index that was read)."""

    tensor: str
    whole: tuple[int, ...]
    start: tuple[int, ...]
    array: Array
    key: str                # its name in its file
    of: int | None = None
    file: str = ""
    crc: int = 0

    def written(self, file: str) -> StoredPart:
        """The part as it is in this file."""
        return replace(self, file=file, crc=checksum(self.array))

    def as_json(self) -> dict[str, Any]:
        """What the index says of it."""
        return {"tensor": self.tensor, "whole": list(self.whole), "start": list(self.start), "of": self.of,
                "shape": list(self.array.shape), "dtype": as_dtype(self.array.dtype).short, "file": self.file,
                "key": self.key, "crc": self.crc}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> StoredPart:
        """The part that an index tells of; raises DamagedFile where it makes no sense."""
        whole, start, shape = (_counts(found.get(name)) for name in ("whole", "start", "shape"))
        texts = [found.get(name) for name in ("tensor", "key", "file", "dtype")]
        crc, of = found.get("crc"), found.get("of")
        if not all(isinstance(x, str) for x in texts) or type(crc) is not int or not (of is None or type(of) is int):
            raise tensor_file.DamagedFile(f"a part is told as {str(found)[:200]}")
        name, key, file, short = map(str, texts)
        inside = len(whole) == len(start) == len(shape) <= tensor_file.MAX_AXES and all(
            a + n <= size for a, n, size in zip(start, shape, whole, strict=True))
        if not inside or not FILE.fullmatch(file) or short not in SHORT:
            raise tensor_file.DamagedFile(f"a part of {name!r} is told as {str(found)[:200]}")
        kind = np.broadcast_to(np.zeros((), SHORT[short]), shape)       # of no memory
        return StoredPart(name, whole, start, kind, key, of, file, crc)


def checksum(array: Array) -> int:
    """A number that nearly every change of the elements changes."""
    return crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


SHORT = {dtype.short: dtype.numpy for dtype in DTYPES if dtype.kind in "buifc"}


@dataclass(frozen=True, eq=False)
class PartIndex:
    """All parts of a state, and the structures of the nests: one for all processes, or one for each."""

    processes: int
    structures: Sequence[str]
    parts: Sequence[StoredPart]

    @cached_property
    def by_name(self) -> dict[tuple[str, int | None], list[StoredPart]]:
        """The parts of each tensor, for all processes or for one."""
        found: dict[tuple[str, int | None], list[StoredPart]] = {}
        for part in self.parts:
            found.setdefault((part.tensor, part.of), []).append(part)
        return found

    @property
    def names(self) -> list[str]:
        """The tensors."""
        return list(dict.fromkeys(name for name, _ in self.by_name))

    @property
    def own(self) -> set[str]:
        """The tensors of which each process has its own."""
        return {name for name, of in self.by_name if of is not None}

    def parts_of(self, name: str, process: int) -> list[StoredPart] | None:
        """The parts of a tensor as a process has it; None where it has none of this name."""
        return self.by_name.get((name, None)) or self.by_name.get((name, process))


def write_index(folder: str, index: PartIndex) -> None:
    """Put an index in the place of the one before, when it is on the disk."""
    text = json.dumps({"format": FORMAT, "processes": index.processes, "structures": list(index.structures),
                       "parts": [part.as_json() for part in index.parts]})
    with tensor_file.replacing(os.path.join(os.path.realpath(folder), NAME)) as file:
        file.write(text.encode())


def read_index(folder: str) -> PartIndex:
    """The index of a folder.  Raises ArgumentError where there is none, or where it is damaged."""
    path = os.path.join(folder, NAME)
    try:
        if os.path.getsize(path) > MAX_BYTES:
            raise tensor_file.DamagedFile("it is too large")
        with open(path, "rb") as file:
            found = json.loads(file.read().decode(), object_pairs_hook=tensor_file.distinct)
        return _checked(found)
    except OSError as error:
        raise ArgumentError(f"load: {folder!r} holds no checkpoint: {error.strerror}",
                            hint="tn.distributed.save(state, folder) writes one") from None
    except (ValueError, RecursionError) as error:
        why = error.what if isinstance(error, tensor_file.DamagedFile) else str(error)[:200]
        raise tensor_file.DamagedFile(f"load: {path!r} is damaged: {why}") from None


def _checked(found: Any) -> PartIndex:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise tensor_file.DamagedFile(f"it is no index of format {FORMAT}")
    processes, structures, parts = found.get("processes"), found.get("structures"), found.get("parts")
    if type(processes) is not int or not isinstance(structures, list) or not isinstance(parts, list) \
            or len(structures) not in (1, processes) or not all(isinstance(x, str) for x in structures) \
            or not all(isinstance(x, dict) for x in parts):
        raise tensor_file.DamagedFile("its entries are not those of an index")
    index = PartIndex(processes, structures, [StoredPart.of_json(part) for part in parts])
    for (name, _), tiles in index.by_name.items():
        _check_tiles(name, tiles)
    return index


def _check_tiles(name: str, parts: Sequence[StoredPart]) -> None:
    """Raise DamagedFile unless these parts are all cells of one grid over the whole tensor."""
    whole = parts[0].whole
    alike = all(part.whole == whole and part.array.dtype == parts[0].array.dtype for part in parts)
    tiles = {tuple(zip(part.start, part.array.shape, strict=True)) for part in parts}
    cuts = [sorted({tile[k] for tile in tiles}) for k in range(len(whole))]
    joined = all(sum(n for _, n in cut) == size and [a for a, _ in cut] == list(itertools.accumulate(
        (n for _, n in cut[:-1]), initial=0)) for cut, size in zip(cuts, whole, strict=True))
    if not alike or not joined or len(tiles) != prod(map(len, cuts)) or len(tiles) != len(parts):
        raise tensor_file.DamagedFile(f"the parts of {name!r} do not make it up")


def _counts(found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(n) is int and 0 <= n < 1 << 48 for n in found):
        raise tensor_file.DamagedFile(f"{found!r:.100} is no shape")
    return tuple(found)

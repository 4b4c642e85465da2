"""A state whose tensors lie in several processes <-> a folder: each process writes its parts, an index says where.

    tn.distributed.save({"model": net, "step": 3}, "run")       # called by all processes
    state = tn.distributed.load("run")                          # on any mesh, or in one process

    run/index.json                  types, shapes, and of every part: file, place in the whole, checksum
    run/4-0.safetensors             what process 0 wrote in save number 4

The index takes the place of the one before it when all files are on the disk; then the files of the save before go.
So the folder holds a whole state at any moment, whatever is killed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

import numpy as np

from tenon import tensor_file
from tenon.distributed.checkpoint_index import PartIndex, StoredPart, checksum, read_index, write_index
from tenon.distributed.world import gather_texts, rank, size
from tenon.eager.on_mesh import OnMesh
from tenon.errors import ArgumentError
from tenon.serialization.nested_tensors import nest_from, structure_of
from tenon.sharding.sharded_array import ShardedArray
from tenon.tensor import Tensor
from tenon.types import as_dtype

Leaf = np.ndarray[Any, np.dtype[Any]] | ShardedArray
Path = str | os.PathLike[str]
LEFT = re.compile(r"\.?(\d+)-\d+\.safetensors(\.[0-9a-f]{16}\.part)?")     # what a save leaves that was broken off


def save(state: Any, folder: Path) -> None:
    """Write a state to a folder; all processes call it together, and see the same folder.

    `state` is a module, or nested dicts and lists of tensors, arrays, numbers, strings and None.  A tensor in parts is
    written by those who have them; one that all processes have alike, by one of them; numbers and whole tensors that
    differ between processes are kept for each.  Raises ArgumentError, on every process, where one cannot write; the
    folder holds what it held before then.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> tn.distributed.save({"w": tn.ones(2), "step": 3}, folder)
    >>> tn.distributed.load(folder)
    {'w': tensor([1., 1.]), 'step': 3}
    """
    folder = os.fspath(folder)
    leaves: dict[str, Any] = {}
    structure = json.dumps(structure_of(state, leaves, _leaf))
    told = _agreed({"structure": structure, "number": _last_number(folder) + 1,
                    "leaves": {name: _described(x) for name, x in leaves.items()}}, "a state that can be saved")
    own = _own_names(told)
    file = f"{told[0]['number']}-{rank()}.safetensors"
    parts = _own_parts(leaves, own)
    _agreed(_tried(lambda: _write(folder, file, parts)), "written its part")
    reports = _agreed([part.written(file).as_json() for part in parts], "a part")
    structures = [t["structure"] for t in told]
    index = PartIndex(size(), structures if len(set(structures)) > 1 else structures[:1], [
        StoredPart.of_json(part) for report in reports for part in report])
    _agreed(_tried(lambda: _publish(folder, index) if rank() == 0 else None), "written the index")
    if rank() == 0:
        _remove_others(folder, {part.file for part in index.parts})


def load(folder: Path, like: Any = None) -> Any:
    """What `save` wrote; each process reads what it needs.

    Tensors come whole, but where `like`, a state of the same form, has a tensor in parts: then its parts are read.  The
    number of processes may be another one than it was, unless each had numbers or tensors of its own.  Raises
    ArgumentError where the folder holds no whole state, or where a checksum tells of damage.
    """
    folder = os.fspath(folder)
    index = read_index(folder)
    wanted: dict[str, Any] = {}
    if like is not None:
        structure_of(like, wanted, _leaf)
    if index.processes != size() and (index.own or len(index.structures) > 1):
        which = f" of {sorted(index.own)[0]!r}" if index.own else ""
        raise ArgumentError(f"load: {folder!r} holds a state{which} for each of {index.processes} processes, and there "
                            f"are {size()}", hint="start as many, or save only what all processes have alike")
    reader, tensors = Reader(folder), {}
    for name in index.names:
        if (parts := index.parts_of(name, rank())) is not None:
            tensors[name] = _tensor(parts, wanted.get(name), reader)
    structure = index.structures[rank() if len(index.structures) > 1 else 0]
    return nest_from(structure, tensors, folder)


# ---------------------------------------------------------------- saving

def _leaf(x: Any) -> Leaf:
    """A tensor or array as it lies here: in parts, or whole and contiguous."""
    parts = parts_of(x)
    if parts is not None:
        return parts
    array = np.asarray(x)
    return np.ascontiguousarray(array).reshape(array.shape)


def parts_of(x: Any) -> ShardedArray | None:
    """The parts of a tensor that lies in parts."""
    parts = getattr(x.own.payload, "parts", None) if isinstance(x, Tensor) else None
    return parts if isinstance(parts, ShardedArray) else None


def _described(x: Leaf) -> dict[str, Any]:
    dtype = x.dtype if isinstance(x, ShardedArray) else as_dtype(x.dtype)
    crc = None if isinstance(x, ShardedArray) else checksum(x)
    return {"dtype": dtype.short, "shape": list(x.shape), "crc": crc}


def _own_names(told: list[Any]) -> set[str]:
    """The tensors that differ between processes; raises ArgumentError where one in parts does."""
    own: set[str] = set()
    for name in {name: None for one in told for name in one["leaves"]}:
        seen = [one["leaves"].get(name) for one in told]
        if any(x != seen[0] for x in seen):
            if any(x is not None and x["crc"] is None for x in seen):
                raise ArgumentError(f"save: {name!r} is in parts, and not the same tensor in all processes")
            own.add(name)
    return own


def _own_parts(leaves: Mapping[str, Leaf], own: set[str]) -> list[StoredPart]:
    """What this process writes."""
    found: list[StoredPart] = []
    for name, x in leaves.items():
        chosen = crc32(name.encode())
        if isinstance(x, ShardedArray):
            for bounds, ranks in x.sharding.owners(x.shape).items():
                writer = ranks[chosen % len(ranks)]
                if writer in x.shards:
                    start = tuple(first for first, _ in bounds)
                    found.append(StoredPart(name, x.shape, start, x.shards[writer], f"{name}@{writer}"))
        elif name in own or chosen % size() == rank():
            found.append(StoredPart(name, x.shape, (0,) * x.ndim, x, name, rank() if name in own else None))
    return found


def _write(folder: str, file: str, parts: list[StoredPart]) -> None:
    os.makedirs(folder, exist_ok=True)
    if parts:
        tensor_file.write(os.path.join(folder, file), {part.key: part.array for part in parts}, {})


def _publish(folder: str, index: PartIndex) -> None:
    """Let the index take the place of the one before, if all that it names is here."""
    for file in sorted({part.file for part in index.parts}):
        if not os.path.exists(os.path.join(folder, file)):
            raise FileNotFoundError(f"{file!r} is not in {folder!r}; all processes write to one folder, which all see")
    write_index(folder, index)


def _tried(run: Callable[[], object]) -> dict[str, str]:
    """What went wrong, to be told to all."""
    try:
        run()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def _agreed(mine: Any, what: str) -> list[Any]:
    """What every process says; raises ArgumentError in all where one failed."""
    told = [json.loads(text) for text in gather_texts(json.dumps(mine))]
    for k, x in enumerate(told):
        if isinstance(x, dict) and "error" in x:
            raise ArgumentError(f"save: process {k} has not {what}: {x['error']}")
    return told


def _last_number(folder: str) -> int:
    """The number of the save that the folder holds."""
    with suppress(ArgumentError):
        return max((int(part.file.partition("-")[0]) for part in read_index(folder).parts), default=0)
    return 0


def _remove_others(folder: str, files: set[str]) -> None:
    """Remove the files of saves that the index does not name."""
    for name in os.listdir(folder):
        if name not in files and LEFT.fullmatch(name):
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))


# ---------------------------------------------------------------- loading

class Reader:
    """The files of a folder, each looked at once; every part is compared with its checksum before it is used."""

    def __init__(self, folder: str):
        self.folder = folder
        self.files: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
        self.checked: set[tuple[str, str]] = set()

    def array(self, part: StoredPart) -> np.ndarray[Any, Any]:
        """The elements of a part.  Raises DamagedFile where they are not what was written."""
        path = os.path.join(self.folder, part.file)
        if part.file not in self.files:
            try:
                self.files[part.file] = tensor_file.mapped(path)[0]
            except OSError as error:
                raise tensor_file.DamagedFile(f"load: {path!r} cannot be read: {error.strerror}") from None
            except tensor_file.DamagedFile as error:
                raise tensor_file.DamagedFile(f"load: {path!r} is damaged: {error.what}") from None
        found = self.files[part.file].get(part.key)
        if found is None or found.shape != part.array.shape or found.dtype != part.array.dtype:
            raise tensor_file.DamagedFile(f"load: {path!r} does not hold {part.key!r} as the index says")
        if (part.file, part.key) not in self.checked:
            if checksum(found) != part.crc:
                raise tensor_file.DamagedFile(f"load: {path!r} is damaged: the checksum of {part.key!r} is another",
                                              hint="a byte changed on the disk; use a copy, or an older save")
            self.checked.add((part.file, part.key))
        return found


def _tensor(parts: list[StoredPart], wanted: Any, reader: Reader) -> Tensor:
    """The tensor of these parts: in parts where such a one is wanted, else whole."""
    shape, dtype = parts[0].whole, parts[0].array.dtype
    if isinstance(wanted, ShardedArray) and wanted.shape == shape:
        shards = {k: _region(parts, [(s.start, s.stop) for s in wanted.sharding.slices(shape, k)], dtype, reader)
                  for k in wanted.shards}
        return sharded_tensor(ShardedArray(shape, as_dtype(dtype), wanted.sharding, shards))
    return Tensor(_region(parts, [(0, n) for n in shape], dtype, reader))


def _region(parts: list[StoredPart], bounds: list[tuple[int, int]], dtype: Any, reader: Reader) -> np.ndarray[Any, Any]:
    """These rows, columns ... of the whole tensor."""
    out = np.empty([stop - start for start, stop in bounds], dtype)
    for part in parts:
        meets = [(max(a, p), min(b, p + n)) for (a, b), p, n in zip(bounds, part.start, part.array.shape, strict=True)]
        if all(first < last for first, last in meets):
            there = tuple(slice(first - p, last - p) for (first, last), p in zip(meets, part.start, strict=True))
            here = tuple(slice(first - a, last - a) for (first, last), (a, _) in zip(meets, bounds, strict=True))
            out[here] = reader.array(part)[there]
    return out


def sharded_tensor(parts: ShardedArray) -> Tensor:
    """A tensor that lies in these parts."""
    return Tensor(OnMesh(parts))

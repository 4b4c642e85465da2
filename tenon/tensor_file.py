"""Named arrays <-> one file in the safetensors format: the length of a header, the header in JSON, the elements.

    write(path, arrays, metadata)       the file is there as a whole, or the one before it still is
    arrays, metadata = read(path)       raises DamagedFile where anything is not as the format says

Reading trusts nothing: every name stands once, and the elements of all tensors lie side by side, to the last byte.
Each tensor is read into its own memory, so a file takes little more memory than its tensors.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from math import prod
from typing import IO, Any

import ml_dtypes
import numpy as np

from tenon.errors import ArgumentError, DTypeError

LOCKS: Any = import_module("fcntl") if os.name == "posix" else None     # elsewhere what was half written stays
DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
          "I64": "<i8", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "F32": "<f4", "F64": "<f8", "C64": "<c8"}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
# Read as bfloat16, which has all their numbers.
NARROW = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
          "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz}
STORED = DTYPES | NARROW
OTHERS = ("F4", "F6_E2M3", "F6_E3M2")
METADATA = "__metadata__"
LONGEST_HEADER = 100_000_000    # bytes: what other readers take
MAX_AXES = 64                   # of NumPy's arrays
LENGTH, ALIGNMENT = 8, 8
Array = np.ndarray[Any, Any]


class DamagedFile(ArgumentError):
    """A file that is not what the format says."""


# ---------------------------------------------------------------- reading

def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """(the arrays by name, in the order of the header; the metadata)."""
    with regular_file(path) as (file, size):
        entries, metadata, start = _header(file, size)
        return {name: _elements(file, start, name, entry) for name, entry in entries.items()}, metadata


def mapped(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The same without reading: the arrays are read-only, and their elements come from the file when they are needed.

    What does not lie at a multiple of its elements' size is read.  The file may be replaced, but not be cut off, as
    long as an array is in use.
    """
    with regular_file(path) as (file, size):
        entries, metadata, start = _header(file, size)
        memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        views = {name: _view(memory, start, entry) for name, entry in entries.items()}
        return {name: _elements(file, start, name, entries[name]) if view is None else view
                for name, view in views.items()}, metadata


def _view(memory: mmap.mmap, start: int, entry: Mapping[str, Any]) -> Array | None:
    """A tensor as it lies in the file; None where it cannot be looked at there."""
    if entry["dtype"] in NARROW:
        return None
    dtype, first = np.dtype(DTYPES[entry["dtype"]]), start + entry["data_offsets"][0]
    if first % dtype.itemsize or dtype.kind == "b" or not dtype.isnative or not prod(entry["shape"]):
        return None
    return np.frombuffer(memory, dtype, prod(entry["shape"]), first).reshape(entry["shape"])


@contextmanager
def regular_file(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], int]]:
    """A file to read, and its size; raises DamagedFile for a device or a pipe."""
    with open(path, "rb", opener=_open_to_read) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFile("it is no regular file")
        yield file, found.st_size


def _open_to_read(path: str, flags: int) -> int:
    """Without waiting for somebody to write to a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _header(file: IO[bytes], size: int) -> tuple[dict[str, Any], dict[str, str], int]:
    """(what the header says of every tensor, the metadata, where the elements begin)."""
    length = int.from_bytes(file.read(LENGTH), "little")
    if size < LENGTH or not 2 <= length <= min(size - LENGTH, LONGEST_HEADER):
        raise DamagedFile(f"its header is said to take {length} of {size} bytes")
    text = file.read(length)
    if not text.startswith(b"{"):
        raise DamagedFile("its header does not begin with {")
    try:
        header = json.loads(text.decode(), object_pairs_hook=distinct, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"its header is no JSON: {str(error)[:200]}") from None
    if not isinstance(header, dict):
        raise DamagedFile("its header is no object")
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise DamagedFile("its metadata are no texts")
    _check_layout({name: _checked(name, entry) for name, entry in header.items()}, size - LENGTH - length)
    return header, metadata, LENGTH + length


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    for name in found:
        name.encode()           # half of a pair of UTF-16 is no text
    return found


def no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _checked(name: str, entry: Any) -> tuple[int, int]:
    """Where the elements of a tensor lie; raises DamagedFile where its entry does not say so, or not in one way."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise DamagedFile(f"the tensor {name!r} has no type, shape and place")
    dtype, shape, places = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype in OTHERS:
        raise DTypeError(f"load: the tensor {name!r} has elements of type {dtype}, and Tenon has no such type",
                         hint="convert the file with the program that wrote it")
    if not isinstance(dtype, str) or dtype not in STORED:
        raise DamagedFile(f"the tensor {name!r} has elements of type {dtype!r}, which does not exist")
    if not _are_counts(shape) or len(shape) > MAX_AXES:
        raise DamagedFile(f"the tensor {name!r} has the shape {shape!r}")
    itemsize = np.dtype(STORED[dtype]).itemsize
    if prod(n for n in shape if n) * itemsize >= 1 << 63:
        raise DamagedFile(f"the tensor {name!r} of shape {shape} is larger than any memory")
    if not _are_counts(places) or len(places) != 2 or places[1] - places[0] != prod(shape) * itemsize:
        raise DamagedFile(f"the tensor {name!r} of type {dtype} and shape {shape} does not lie at {places!r}")
    return places[0], places[1]


def _are_counts(listed: Any) -> bool:
    return isinstance(listed, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in listed)


def _check_layout(places: Mapping[str, tuple[int, int]], size: int) -> None:
    """Raise DamagedFile unless the tensors lie side by side in so many bytes."""
    end = 0
    for name, (first, last) in sorted(places.items(), key=lambda item: item[1]):
        if first != end:
            raise DamagedFile(f"the tensor {name!r} begins at byte {first}, and the one before it ends at {end}")
        end = last
    if end != size:
        raise DamagedFile(f"its tensors take {end} bytes, and it has {size}")


def _elements(file: IO[bytes], start: int, name: str, entry: Mapping[str, Any]) -> Array:
    array: Array = np.empty(entry["shape"], STORED[entry["dtype"]])
    raw = array.reshape(-1).view(np.uint8)
    file.seek(start + entry["data_offsets"][0])
    if file.readinto(raw) != raw.size:      # type: ignore[attr-defined]
        raise DamagedFile(f"it ends within the tensor {name!r}")
    if array.dtype == np.bool_ and raw.size and raw.max() > 1:
        raise DamagedFile(f"the tensor {name!r} has booleans that are neither 0 nor 1")
    new = ml_dtypes.bfloat16 if entry["dtype"] in NARROW else array.dtype.newbyteorder("=")
    return array.astype(new, copy=False)


# ---------------------------------------------------------------- writing

def write(path: str | os.PathLike[str], arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write a file: under another name, which becomes its own once all of it is on the disk.

    A link is followed.  Raises ArgumentError where something else than a file is there.
    """
    target = os.path.realpath(path)
    if os.path.lexists(target) and not os.path.isfile(target):
        raise ArgumentError(f"save: {os.fspath(path)!r} is no regular file")
    with replacing(target) as file:
        for part in _parts(arrays, metadata):
            file.write(part)


def _parts(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> Iterator[Any]:
    """The header, in the order given, and the elements; the largest ones first, so that all are aligned."""
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    places, end = {}, 0
    for name, array in ordered:
        places[name], end = [end, end + array.nbytes], end + array.nbytes
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for name, array in arrays.items():
        header[name] = {"dtype": NAMES[array.dtype.newbyteorder("<")], "shape": list(array.shape),
                        "data_offsets": places[name]}
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"save: a name or metadata are no text: {error}") from None
    text += b" " * (-len(text) % ALIGNMENT)
    yield len(text).to_bytes(LENGTH, "little") + text
    for _, array in ordered:
        yield array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8)


@contextmanager
def replacing(target: str) -> Iterator[IO[bytes]]:
    """A file that takes the place of another at the end of the block; in an error it is gone."""
    folder, name = os.path.split(target)
    _clear(folder, name)
    partial, file = _claimed(folder, name)
    try:
        with file:
            with suppress(OSError):
                os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))    # that of the file before
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
    _settle(folder)


def _claimed(folder: str, name: str) -> tuple[str, IO[bytes]]:
    """A new file beside another, locked as long as it is open: so it is seen that somebody writes it."""
    while True:
        partial = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.part")
        file = open(partial, "xb")      # noqa: SIM115  who calls closes it
        if LOCKS is None:
            return partial, file
        LOCKS.flock(file, LOCKS.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(partial), os.fstat(file.fileno())):
                return partial, file
        file.close()        # somebody took it for one that was left behind, in the moment before it was locked


def _clear(folder: str, name: str) -> None:
    """Remove what killed processes left of this file: the system has given up their locks."""
    if LOCKS is None:
        return
    begin = f".{name}."
    for other in os.listdir(folder or "."):
        if other.startswith(begin) and other.endswith(".part") and len(other) == len(begin) + 16 + len(".part"):
            path = os.path.join(folder, other)
            with suppress(OSError), open(path, "rb", opener=_open_to_read) as file:
                LOCKS.flock(file, LOCKS.LOCK_EX | LOCKS.LOCK_NB)
                os.unlink(path)


def _settle(folder: str) -> None:
    """Let the new name be on the disk too, where the system knows how."""
    with suppress(OSError):
        descriptor = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

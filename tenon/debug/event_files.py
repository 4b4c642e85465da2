"""Values -> records of TensorBoard's event files: protocol buffers, written by hand, between check sums.

    record  = length (8 bytes), check of the length, message, check of the message
    check   = CRC-32C, turned and shifted, 4 bytes
    message = fields, each (number, kind of value) as a varint and the value

The messages are those of TensorFlow's event.proto, summary.proto and graph.proto, as far as they are used here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np

POLYNOMIAL = 0x82F63B78         # of CRC-32C, reversed
MASK = 0xA282EAD8
STRING = 7                      # the number of the element type in TensorFlow
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def _table() -> tuple[int, ...]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


TABLE = _table()


def crc32c(data: bytes) -> int:
    """
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc, table = 0xFFFFFFFF, TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def record(message: bytes) -> bytes:
    """A message as it stands in the file."""
    length = struct.pack("<Q", len(message))
    return length + _masked(length) + message + _masked(message)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF)


# ---------------------------------------------------------------- fields

def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1              # negative numbers as two's complement
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | FIXED64) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    with np.errstate(over="ignore"):    # beyond float32 it is an infinity
        return _varint(number << 3 | FIXED32) + np.float32(value).tobytes()


def _bytes(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | BYTES) + _varint(len(data)) + data


def _doubles(number: int, values: Sequence[float] | np.ndarray) -> bytes:
    return _bytes(number, np.asarray(values, "<f8").tobytes())


# ---------------------------------------------------------------- messages

def version_event(wall_time: float) -> bytes:
    """The first event of a file."""
    return _double(1, wall_time) + _bytes(3, "brain.Event:2")


def summary_event(wall_time: float, step: int, values: Iterable[bytes]) -> bytes:
    """An event of these values."""
    return _double(1, wall_time) + _integer(2, step) + _bytes(5, b"".join(_bytes(1, value) for value in values))


def graph_event(wall_time: float, graph: bytes) -> bytes:
    """An event of a graph."""
    return _double(1, wall_time) + _bytes(4, graph)


def scalar(tag: str, value: float) -> bytes:
    """A number under a tag."""
    return _bytes(1, tag) + _float(2, value)


def image(tag: str, png: bytes, height: int, width: int, channels: int) -> bytes:
    """A picture in PNG."""
    return _bytes(1, tag) + _bytes(4, _integer(1, height) + _integer(2, width) + _integer(3, channels) + _bytes(4, png))


def text(tag: str, words: str) -> bytes:
    """Text, which TensorBoard takes for Markdown."""
    tensor = _integer(1, STRING) + _bytes(2, _bytes(2, _integer(1, 1))) + _bytes(8, words)
    return _bytes(1, tag) + _bytes(8, tensor) + _bytes(9, _bytes(1, _bytes(1, "text")))


def histogram(tag: str, values: np.ndarray, bins: int = 64) -> bytes:
    """How often numbers are how large; NaN and infinities are left out."""
    numbers = values[np.isfinite(values)].astype(np.float64).ravel()
    counts, edges = np.histogram(numbers, bins) if numbers.size else (np.zeros(1), np.zeros(2))
    with np.errstate(over="ignore"):
        ends = (numbers.min(), numbers.max()) if numbers.size else (0.0, 0.0)
        fields = (*ends, numbers.size, numbers.sum(), (numbers * numbers).sum())
    data = b"".join(_double(k, float(x)) for k, x in enumerate(fields, 1))
    return _bytes(1, tag) + _bytes(5, data + _doubles(6, edges[1:]) + _doubles(7, counts))


def graph_node(name: str, op: str, inputs: Iterable[str], shapes: Iterable[Sequence[int]],
               attributes: Iterable[tuple[str, str]]) -> bytes:
    """A node of a graph: inputs are names of others, sizes that are not known are -1."""
    listed = b"".join(_bytes(7, b"".join(_bytes(2, _integer(1, n)) for n in shape)) for shape in shapes)
    fields = [("_output_shapes", _bytes(1, listed)), *((key, _bytes(2, value)) for key, value in attributes)]
    entries = b"".join(_bytes(5, _bytes(1, key) + _bytes(2, value)) for key, value in fields)
    return _bytes(1, name) + _bytes(2, op) + b"".join(_bytes(3, x) for x in inputs) + entries


def graph(nodes: Iterable[bytes]) -> bytes:
    """Nodes, in an order that respects their inputs."""
    return b"".join(_bytes(1, node) for node in nodes)

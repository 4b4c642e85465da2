"""Sequences of different lengths in one batch, of which recurrent layers compute only what is there.

    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, h = lstm(packed)
    out, lengths = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)

A `PackedSequence` holds the padded steps [L, N, ...] and the lengths [N], in the order of the batch: a captured graph
then has the same shapes for all lengths.  PyTorch's `data` and `batch_sizes` are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.op import at_once
from tenon.ops.comparison import where
from tenon.ops.creation import arange, full
from tenon.ops.indexing import take
from tenon.ops.joining_and_axes import concat, expand_dims, reshape, stack, swapaxes
from tenon.ops.splitting import narrow
from tenon.tensor import Tensor, asarray, tensor
from tenon.types import int64

__all__ = ["PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
           "unpack_sequence", "unpad_sequence"]


class PackedSequence:
    """The steps of sequences of different lengths; made by `pack_padded_sequence`, or of PyTorch's parts of one.

    >>> packed = nn.utils.rnn.pack_sequence([tn.tensor([1, 2, 3]), tn.tensor([4])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 3]), tensor([2, 1, 1]))
    """

    def __init__(self, data: Any, batch_sizes: Any, sorted_indices: Any = None, unsorted_indices: Any = None):
        sizes = np.asarray(batch_sizes)
        if sizes.ndim != 1 or not len(sizes) or (np.diff(sizes) > 0).any() or sizes.sum() != data.shape[0]:
            raise ShapeError(f"PackedSequence: batch sizes that fall and sum to {data.shape[0]} were expected, not "
                             f"{sizes.tolist()}")
        most = int(sizes[0])
        there = np.arange(most) < sizes[:, None]                                    # [L, N], the longest first
        rows = np.where(there, (np.cumsum(sizes) - sizes)[:, None] + np.arange(most), 0)
        order = np.arange(most) if unsorted_indices is None else np.asarray(unsorted_indices)
        self.padded = take(data, tensor(rows[:, order], device=data.device), axis=0)
        self.lengths, self.sorts = tensor(there.sum(0)[order], device=data.device), unsorted_indices is not None

    @classmethod
    def of(cls, padded: Any, lengths: Any, sorts: bool) -> PackedSequence:
        """Of padded steps [L, N, ...] and lengths [N]; `sorts` where the lengths need not fall."""
        made: PackedSequence = object.__new__(cls)
        made.padded, made.lengths, made.sorts = padded, lengths, sorts
        return made

    def mask(self, ndim: int) -> Any:
        """Where there is a step: [L, N, 1, ...]."""
        there = expand_dims(arange(self.padded.shape[0], device=self.padded.device), 1) < self.lengths
        return reshape(there, (*there.shape, *(1,) * (ndim - 2)))

    @property
    def sorted_indices(self) -> Any:
        """The places of the sequences in the batch, the longest first; None where they came in this order."""
        return tensor(self._order()) if self.sorts else None

    @property
    def unsorted_indices(self) -> Any:
        """The places of the batch's sequences among the sorted ones; None where they came in this order."""
        return tensor(np.argsort(self._order())) if self.sorts else None

    @property
    def batch_sizes(self) -> Tensor:
        """How many sequences have a first step, a second ..."""
        lengths = self._known()
        return tensor((np.arange(lengths.max(initial=0))[:, None] < lengths).sum(1))

    @property
    def data(self) -> Any:
        """All first steps, longest sequence first, then all second steps ..."""
        order, lengths = self._order(), self._known()
        steps, which = np.nonzero(np.arange(lengths.max(initial=0))[:, None] < lengths[order])
        flat = reshape(self.padded, (-1, *self.padded.shape[2:]))
        return take(flat, tensor(steps * len(order) + order[which], device=flat.device), axis=0)

    def with_data(self, data: Any) -> PackedSequence:
        """The same sequences of other steps, which stand in the order of `data`."""
        return PackedSequence(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *given: Any, **named: Any) -> PackedSequence:
        """Converted, as `Tensor.to`."""
        return PackedSequence.of(self.padded.to(*given, **named), self.lengths, self.sorts)

    def _known(self) -> np.ndarray:
        return np.asarray(self.lengths.tolist(), np.int64)

    def _order(self) -> np.ndarray:
        lengths = self._known()
        return np.argsort(-lengths, kind="stable") if self.sorts else np.arange(len(lengths))

    def __repr__(self) -> str:
        return f"PackedSequence(padded={self.padded.type}, lengths={self.lengths})"


def pack_padded_sequence(input: Any, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Padded sequences [L, N, ...], or [N, L, ...] with `batch_first`, without what is beyond their lengths [N].

    Raises ArgumentError for lengths that are known and no lengths of these sequences, or do not fall while
    `enforce_sorted` is True.
    """
    if input.ndim < 2:
        raise ShapeError(f"pack_padded_sequence: sequences [L, N, ...] were expected, not {input.type}")
    steps = swapaxes(input, 0, 1) if batch_first else input
    count = lengths if isinstance(lengths, Tensor) else asarray(np.asarray(lengths, np.int64))
    if count.ndim != 1 or count.shape[0] != steps.shape[1]:
        raise ShapeError(f"pack_padded_sequence: {steps.shape[1]} lengths were expected, not {count.type}")
    if at_once():
        _check(np.asarray(count.tolist(), np.int64), steps.shape[0], enforce_sorted)
    return PackedSequence.of(steps, count.astype(int64), not enforce_sorted)


def _check(lengths: np.ndarray, most: int, falling: bool) -> None:
    if len(lengths) and (lengths.min() < 1 or lengths.max() > most):
        raise ArgumentError(f"pack_padded_sequence: lengths must lie between 1 and {most}, got {lengths.tolist()}")
    if falling and (np.diff(lengths) > 0).any():
        raise ArgumentError(f"pack_padded_sequence: the lengths do not fall: {lengths.tolist()}",
                            hint="enforce_sorted=False")


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Any, Any]:
    """The sequences padded to the longest of them, or to `total_length`, and their lengths."""
    steps = where(sequence.mask(sequence.padded.ndim), sequence.padded, padding_value).astype(sequence.padded.dtype)
    here = steps.shape[0]
    wanted: Any = total_length
    if at_once():
        longest = int(sequence._known().max(initial=0))
        if wanted is not None and wanted < longest:
            raise ArgumentError(f"pad_packed_sequence: total_length={wanted}, and a sequence has {longest} steps")
        wanted = longest if wanted is None else wanted
    elif wanted is None:
        steps = steps[:sequence.lengths.max()]
    if wanted is not None and wanted > here:
        more = full((wanted - here, *steps.shape[1:]), padding_value, dtype=steps.dtype, device=steps.device)
        steps = concat([steps, more], axis=0)
    elif wanted is not None and wanted < here:
        steps = narrow(steps, 0, 0, wanted)
    return swapaxes(steps, 0, 1) if batch_first else steps, sequence.lengths


def pad_sequence(sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Any:
    """Sequences [l, ...] of different lengths as one tensor [L, N, ...], or [N, L, ...] with `batch_first`.

    >>> nn.utils.rnn.pad_sequence([tn.tensor([1, 2]), tn.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"pad_sequence: padding_side={padding_side!r} is neither left nor right")
    listed = [asarray(x) for x in sequences]
    if not listed or any(x.ndim < 1 or x.shape[1:] != listed[0].shape[1:] for x in listed):
        raise ShapeError("pad_sequence: sequences that differ in their first axis were expected, not "
                         f"{', '.join(str(x.type) for x in listed) or 'none'}")
    longest = max(x.shape[0] for x in listed)

    def padded(x: Any) -> Any:
        rest = full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype, device=x.device)
        return concat([x, rest] if padding_side == "right" else [rest, x], axis=0) if rest.shape[0] else x
    return stack([padded(x) for x in listed], axis=0 if batch_first else 1)


def unpad_sequence(padded: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The sequences of a padded batch, each of its length."""
    rows = padded if batch_first else swapaxes(padded, 0, 1)
    return [rows[k, :int(n)] for k, n in enumerate(np.asarray(lengths).tolist())]


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences [l, ...] of different lengths, packed."""
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], False, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The sequences [l, ...] that were packed, in the order of the batch.

    >>> nn.utils.rnn.unpack_sequence(nn.utils.rnn.pack_sequence([tn.tensor([1, 2]), tn.tensor([3])]))
    [tensor([1, 2]), tensor([3])]
    """
    return unpad_sequence(packed_sequences.padded, packed_sequences.lengths)

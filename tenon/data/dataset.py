"""Datasets: things with a length whose items are samples, and streams of samples."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, OutOfRange, ShapeError
from tenon.ops.placing import on_device
from tenon.random import Generator, randperm
from tenon.tensor import Tensor, tensor


class Dataset:
    """Base of datasets: a subclass defines `__len__` and `__getitem__`.

    A subclass may define `batch(indices)`, which returns a whole batch at once and spares the loader to collate it.
    """

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")

    def __add__(self, other: Dataset) -> Dataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Base of streams: a subclass defines `__iter__`."""

    def __add__(self, other: Dataset) -> Dataset:
        return ChainDataset([self, other])

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} is a stream, whose length is not known")    # list() expects this type


class TensorDataset(Dataset):
    """Samples are tuples of the rows of tensors of equal length.

    >>> data = tn.data.TensorDataset(tn.arange(3), tn.arange(3) * 2)
    >>> len(data), data[1]
    (3, (tensor(1), tensor(2)))
    """

    def __init__(self, *tensors: Any):
        if not tensors:
            raise ArgumentError("TensorDataset: no tensors were given")
        self.tensors = tuple(x if isinstance(x, Tensor) else tensor(x) for x in tensors)
        lengths = [x.shape[0] if x.ndim else None for x in self.tensors]
        if None in lengths or len(set(lengths)) > 1:
            raise ShapeError(f"TensorDataset: the tensors {', '.join(str(x.type) for x in self.tensors)} "
                             "do not have the same length")

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        """The rows at an index, or at several: a slice, a list, a tensor."""
        rows = checked(index, len(self)) if isinstance(index, int) else \
            index if isinstance(index, slice) else np.asarray(index)
        return tuple(_rows(x, rows) for x in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def batch(self, indices: Sequence[int]) -> list[Any]:
        """The rows of every tensor at these indices, copied out at once."""
        rows = np.asarray(indices, np.intp)
        return [_rows(x, rows) for x in self.tensors]


def _rows(x: Tensor, rows: Any) -> Tensor:
    """These rows of a tensor, copied out, where it is."""
    found: Tensor = on_device(Tensor(np.asarray(x.numpy()[rows])), x.device)
    return found


class Subset(Dataset):
    """The samples of a dataset at some indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, list(map(int, indices))

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index if isinstance(index, slice) else checked(index, len(self))]]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def batch(self) -> Any:
        """The `batch` of the dataset; absent where it has none."""
        inner = getattr(self.dataset, "batch", None)
        if inner is None:
            raise AttributeError("the dataset has no batch")
        return lambda indices: inner([self.indices[k] for k in indices])


class ConcatDataset(Dataset):
    """The samples of several datasets, one after another."""

    def __init__(self, datasets: Sequence[Dataset]):
        self.datasets = list(datasets)
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        index = checked(index, len(self))
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.cumulative_sizes else 0


def random_split(dataset: Dataset, lengths: Sequence[float], generator: Generator | None = None,
                 seed: int | None = None) -> list[Subset]:
    """Disjoint random parts of these lengths, or of these shares if they sum to 1.

    >>> parts = tn.data.random_split(tn.data.TensorDataset(tn.arange(10)), [0.7, 0.3], seed=0)
    >>> [len(part) for part in parts]
    [7, 3]
    """
    total = len(dataset)
    if any(isinstance(n, float) for n in lengths) and math.isclose(sum(lengths), 1):
        sizes = [math.floor(share * total) for share in lengths]
        for k in range(total - sum(sizes)):
            sizes[k % len(sizes)] += 1
    else:
        sizes = [int(n) for n in lengths]
    if sum(sizes) != total:
        raise ArgumentError(f"random_split: the lengths {list(lengths)} sum to {sum(sizes)}, the dataset has {total}")
    order = randperm(total, generator=Generator(seed) if seed is not None else generator).tolist()
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - size:end]) for end, size in zip(ends, sizes, strict=True)]


def checked(index: int, size: int) -> int:
    """The index counted from the front; raises OutOfRange outside."""
    if not -size <= index < size:
        raise OutOfRange(f"sample {index} of a dataset of {size}")
    return index % size


class StackDataset(Dataset):
    """Samples are tuples, or dictionaries, of those of datasets of the same length.

    >>> data = tn.data.StackDataset(image=[10, 11], label=[0, 1])
    >>> data[1]
    {'image': 11, 'label': 1}
    """

    def __init__(self, *datasets: Any, **named: Any):
        if bool(datasets) == bool(named) or len({len(data) for data in (*datasets, *named.values())}) > 1:
            raise ArgumentError("StackDataset: datasets of one length were expected, all with names or all without")
        self.datasets: Any = datasets or named

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: data[index] for name, data in self.datasets.items()}
        return tuple(data[index] for data in self.datasets)

    def __len__(self) -> int:
        every = self.datasets.values() if isinstance(self.datasets, dict) else self.datasets
        return len(next(iter(every)))


class ChainDataset(IterableDataset):
    """Streams one after another."""

    def __init__(self, datasets: Any):
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for data in self.datasets:
            yield from data

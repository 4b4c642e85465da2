"""Samplers: the order in which a loader reads a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from importlib import import_module
from typing import Any

from tenon.errors import ArgumentError
from tenon.random import Generator, multinomial, randint, randperm
from tenon.tensor import tensor


class Sampler:
    """Base of samplers: a subclass defines `__iter__`, which gives indices, and `__len__`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")


class SequentialSampler(Sampler):
    """0, 1, 2 ..."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """A new random order every time, or `num_samples` draws with replacement."""

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
                 generator: Generator | None = None):
        if num_samples is not None and not replacement and num_samples > len(data_source):
            raise ArgumentError(f"RandomSampler: {num_samples} of {len(data_source)} samples without replacement")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[int]:
        if self.replacement:
            return iter(randint(0, len(self.data_source), (self.num_samples,), generator=self.generator).tolist())
        return iter(randperm(len(self.data_source), generator=self.generator).tolist()[:self.num_samples])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """These indices, in a new random order every time."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = list(map(int, indices)), generator

    def __iter__(self) -> Iterator[int]:
        return iter([self.indices[k] for k in randperm(len(self.indices), generator=self.generator).tolist()])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Draws with probabilities proportional to these weights."""

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True,
                 generator: Generator | None = None):
        self.weights, self.num_samples = tensor(list(weights), dtype="float32"), num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        return iter(multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` indices; `drop_last` leaves out a last one that is shorter."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ArgumentError(f"batch_size must be a positive integer, not {batch_size!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler):
    """The share of one of several processes: every `num_replicas`-th index from `rank` on, of a new random order.
    They are those of `tenon launch` unless told.

    All shares have the same length: some indices are there twice, or `drop_last` leaves the last ones out.  The order
    is that of the epoch, which `set_epoch` says, the same in all processes.
    """

    def __init__(self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False):
        self.dataset, self.shuffle, self.seed, self.epoch, self.drop_last = dataset, shuffle, seed, 0, drop_last
        if num_replicas is None or rank is None:
            world = import_module("tenon.distributed.world")        # loaded where there may be processes
        self.num_replicas = world.size() if num_replicas is None else num_replicas
        self.rank = world.rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(f"DistributedSampler: rank {self.rank} is not one of {self.num_replicas}")
        short = len(dataset) % self.num_replicas
        self.num_samples = len(dataset) // self.num_replicas + (1 if short and not drop_last else 0)
        self.total_size = self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Let the next order be that of this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        generator = Generator(self.seed + self.epoch)
        order = randperm(count, generator=generator).tolist() if self.shuffle else list(range(count))
        around = order * -(-self.total_size // max(count, 1))
        return iter(around[:self.total_size][self.rank::self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

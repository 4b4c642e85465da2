"""The loader: a dataset -> batches, in a fixed order, made ahead of time by worker threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from tenon.data.dataset import IterableDataset
from tenon.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from tenon.errors import ArgumentError, ShapeError
from tenon.random import Generator
from tenon.tensor import Tensor, tensor


class DataLoader:
    """Batches of a dataset.

    `shuffle` draws a new order every epoch from Tenon's generator, or from one of its own with `seed` or `generator`.
    `num_workers` threads make up to `num_workers * prefetch_factor` batches ahead; the order is the same for any
    number, and an error in a worker is raised where the loader is read, with the worker's traceback.

    >>> data = tn.data.TensorDataset(tn.arange(5))
    >>> [x.tolist() for x, in tn.data.DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool = False, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable[[list[Any]], Any] | None = None,
                 drop_last: bool = False, generator: Generator | None = None, seed: int | None = None,
                 prefetch_factor: int = 2):
        stream = isinstance(dataset, IterableDataset)
        if stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("DataLoader: a stream (IterableDataset) has an order of its own; it takes no shuffle, "
                                "sampler or batch_sampler")
        if sampler is not None and shuffle:
            raise ArgumentError("DataLoader: give either shuffle or a sampler")
        if batch_sampler is not None and (batch_size not in (None, 1) or shuffle or sampler is not None or drop_last):
            raise ArgumentError("DataLoader: a batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if num_workers < 0 or prefetch_factor < 1:
            raise ArgumentError("DataLoader: num_workers must be 0 or more, prefetch_factor 1 or more")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ArgumentError(f"DataLoader: batch_size must be a positive integer, not {batch_size!r}")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        self.collate_fn = collate_fn
        generator = Generator(seed) if seed is not None else generator
        if not stream and sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        if not stream and batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            count = len(self.dataset)
            return count if self.batch_size is None else \
                count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            batches = self._of_stream(self.dataset)
            return batches if not self.num_workers else _ahead(batches, self.prefetch_factor)
        jobs: Iterable[Any] = self.sampler if self.batch_sampler is None else self.batch_sampler
        if not self.num_workers:
            return map(self._load, jobs)
        return _in_order(self._load, iter(jobs), self.num_workers, self.num_workers * self.prefetch_factor)

    def _load(self, job: Any) -> Any:
        """The batch of a list of indices, or the sample of one."""
        if self.batch_sampler is None:
            return self.dataset[job]
        whole = getattr(self.dataset, "batch", None)
        if whole is not None and self.collate_fn is None:
            return whole(job)
        return (self.collate_fn or collate)([self.dataset[index] for index in job])

    def _of_stream(self, stream: IterableDataset) -> Iterator[Any]:
        samples = iter(stream)
        if self.batch_size is None:
            yield from samples
            return
        while batch := list(islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield (self.collate_fn or collate)(batch)


def _in_order(load: Callable[[Any], Any], jobs: Iterator[Any], workers: int, most: int) -> Iterator[Any]:
    """The results of `load`, in the order of the jobs, at most `most` of them made ahead."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tenon-loader")

    def begin(job: Any) -> Callable[[], Any]:
        try:
            return pool.submit(load, job).result
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            return partial(load, job)       # pools close just before the main thread counts as ended

    try:
        ahead = deque(map(begin, islice(jobs, most)))
        while ahead:
            result = ahead.popleft()()
            ahead.extend(map(begin, islice(jobs, 1)))
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ahead(items: Iterator[Any], most: int) -> Iterator[Any]:
    """The same items, made by one thread, up to `most` of them ahead."""
    end = object()
    yield from _until(end, _in_order(lambda _: next(items, end), iter(int, 1), 1, most))


def _until(end: object, items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        if item is end:
            return
        yield item


def collate(samples: list[Any]) -> Any:
    """Samples as a batch: tensors, arrays and numbers stacked, tuples and dicts part by part, other things listed."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        if len({len(sample) for sample in samples}) > 1:
            raise ShapeError("collate: the samples have different numbers of parts", hint="give a collate_fn")
        parts = [collate(list(part)) for part in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    if isinstance(first, (Tensor, np.ndarray, np.generic)):
        arrays = [np.asarray(sample) for sample in samples]
        if len({array.shape for array in arrays}) > 1:
            shown = sorted({str(list(array.shape)) for array in arrays})
            raise ShapeError(f"collate: samples of different shapes {', '.join(shown)} do not stack",
                             hint="give a collate_fn that pads them")
        return Tensor(np.stack(arrays))
    if isinstance(first, (bool, int, float, complex)):
        return tensor(samples)
    return samples

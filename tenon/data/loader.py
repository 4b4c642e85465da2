"""The loader: a dataset -> batches, in a fixed order, made ahead of time by worker threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np

from tenon.data.dataset import IterableDataset
from tenon.data.sampler import BatchSampler, RandomSampler, SequentialSampler, WeightedRandomSampler
from tenon.errors import ArgumentError, ShapeError
from tenon.random import Generator, default_generator
from tenon.records import dataclass
from tenon.tensor import Tensor, tensor


@dataclass
class Place:
    """Where in an epoch a loader is: the batches that were given, and the state of its generator at the start."""

    taken: int = 0
    start: Tensor | None = None


class DataLoader:
    """Batches of a dataset.

    `shuffle` draws a new order every epoch from Tenon's generator, or from one of its own with `seed` or `generator`.
    `num_workers` threads make up to `num_workers * prefetch_factor` batches ahead; the order is the same for any
    number, and an error in a worker is raised where the loader is read, with the worker's traceback.
    `worker_init_fn(k)` is called by each thread first.  What PyTorch's takes for processes and GPUs means nothing.
    `progress` is what a bar on the terminal is called, while an epoch is read; a log file gets none.
    `state_dict()` says where in an epoch it is: one that takes it over goes on with the next batch, in the same order.

    >>> data = tn.data.TensorDataset(tn.arange(5))
    >>> [x.tolist() for x, in tn.data.DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool = False, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable[[list[Any]], Any] | None = None,
                 drop_last: bool = False, generator: Generator | None = None, seed: int | None = None,
                 prefetch_factor: int | None = 2, progress: str | None = None, pin_memory: bool = False,
                 worker_init_fn: Callable[[int], Any] | None = None, timeout: float = 0,
                 multiprocessing_context: Any = None, persistent_workers: bool = False, pin_memory_device: str = "",
                 in_order: bool = True):
        prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
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
        self.collate_fn, self.progress, self.worker_init_fn = collate_fn, progress, worker_init_fn
        generator = Generator(seed) if seed is not None else generator
        if not stream and sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        if not stream and batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_sampler = batch_sampler
        self._place = Place()
        self._resumed: Place | None = None

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            count = len(self.dataset)
            return count if self.batch_size is None else \
                count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, None
        generator = self._generator
        self._place = place = resumed or Place(start=None if generator is None else generator.get_state())
        batches = self._batches(place.taken, generator if resumed else None, place.start)
        for batch in batches if self.progress is None else self._shown(batches, place.taken):
            place.taken += 1
            yield batch
        if self._place is place:
            self._place = Place()

    def _shown(self, batches: Iterator[Any], passed: int) -> Iterator[Any]:
        """The batches, with a bar."""
        from tenon.debug.console import progress  # local: what looks inside of Tenon is loaded when it is asked for

        try:
            total = len(self) - passed
        except TypeError:           # a stream of unknown length
            total = None
        return progress(batches, self.progress or "", total)

    def _batches(self, passed: int, generator: Generator | None, start: Tensor | None) -> Iterator[Any]:
        """The batches of an epoch behind the first ones; its order is drawn from a generator as it was at the start."""
        if isinstance(self.dataset, IterableDataset):
            batches = islice(self._of_stream(self.dataset), passed, None)
            return batches if not self.num_workers else _ahead(batches, self.prefetch_factor)
        jobs = iter(self.sampler if self.batch_sampler is None else self.batch_sampler) if generator is None \
            else self._jobs_again(passed, generator, start)
        if generator is None:
            jobs = islice(jobs, passed, None)
        if not self.num_workers:
            return map(self._load, jobs)
        return _in_order(self._load, jobs, self.num_workers, self.num_workers * self.prefetch_factor,
                         self.worker_init_fn)

    def _jobs_again(self, passed: int, generator: Generator, start: Tensor | None) -> Iterator[Any]:
        """The jobs of an epoch that had begun, behind those that are done; the generator stays where it is."""
        now = generator.get_state()
        generator.set_state(start)
        jobs: Iterator[Any] = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        for _ in range(passed):
            next(jobs, None)
        generator.set_state(now)
        return jobs

    @property
    def _generator(self) -> Generator | None:
        """What the order of an epoch is drawn from."""
        sampler = self.sampler if self.sampler is not None else getattr(self.batch_sampler, "sampler", None)
        if isinstance(sampler, (RandomSampler, WeightedRandomSampler)):
            return sampler.generator or default_generator
        return None

    def state_dict(self) -> dict[str, Any]:
        """How many batches of this epoch were given, and the generator at its start; `tn.save` takes it."""
        place, generator = self._resumed or self._place, self._generator
        return {"taken": place.taken, "start": place.start if place.taken else None,
                "generator": None if generator in (None, default_generator) else generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, where a loader is read next."""
        if not isinstance(state, Mapping) or state.keys() != {"taken", "start", "generator"}:
            raise ArgumentError("DataLoader.load_state_dict: what state_dict() gives was expected")
        taken, start, own = state["taken"], state["start"], state["generator"]
        if type(taken) is not int or taken < 0 or not all(
                x is None or (isinstance(x, Tensor) and str(x.type) == "u64[2]") for x in (start, own)):
            raise ArgumentError("DataLoader.load_state_dict: a number of batches and states of a generator were "
                                f"expected, not {taken!r}")
        if own is not None and self._generator is not None:
            self._generator.set_state(own)
        self._place, self._resumed = Place(), Place(taken, start) if taken else None

    def _load(self, job: Any) -> Any:
        """The batch of a list of indices, or the sample of one."""
        if self.batch_sampler is None:
            return self._alone(self.dataset[job])
        whole = getattr(self.dataset, "batch", None)
        if whole is not None and self.collate_fn is None:
            return whole(job)
        return (self.collate_fn or collate)([self.dataset[index] for index in job])

    def _alone(self, sample: Any) -> Any:
        """What a loader without batches gives of a sample."""
        return convert(sample) if self.collate_fn is None else self.collate_fn(sample)

    def _of_stream(self, stream: IterableDataset) -> Iterator[Any]:
        samples = iter(stream)
        if self.batch_size is None:
            yield from map(self._alone, samples)
            return
        while batch := list(islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield (self.collate_fn or collate)(batch)


def _in_order(load: Callable[[Any], Any], jobs: Iterator[Any], workers: int, most: int,
              begins: Callable[[int], Any] | None = None) -> Iterator[Any]:
    """The results of `load`, in the order of the jobs, at most `most` of them made ahead."""
    numbers = count()
    pool = ThreadPoolExecutor(workers, "tenon-loader", None if begins is None else lambda: begins(next(numbers)))

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


def collate(batch: Sequence[Any]) -> Any:
    """Samples as a batch: tensors, arrays and numbers stacked, tuples and dicts part by part, other things listed."""
    first = batch[0]
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, (tuple, list)):
        if len({len(sample) for sample in batch}) > 1:
            raise ShapeError("collate: the samples have different numbers of parts", hint="give a collate_fn")
        parts = [collate(part) for part in zip(*batch, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    if isinstance(first, (str, bytes)):         # also NumPy's
        return batch
    if isinstance(first, (Tensor, np.ndarray, np.generic)):
        arrays = [np.asarray(sample) for sample in batch]
        if len({array.shape for array in arrays}) > 1:
            shown = sorted({str(list(array.shape)) for array in arrays})
            raise ShapeError(f"collate: samples of different shapes {', '.join(shown)} do not stack",
                             hint="give a collate_fn that pads them")
        return Tensor(np.stack(arrays))
    if isinstance(first, (bool, int, float, complex)):
        return tensor(batch)
    return batch


def convert(data: Any) -> Any:
    """A sample with tensors for the arrays in it: what a loader with `batch_size=None` gives.

    >>> tn.data.convert({"x": np.zeros(2, np.int32), "name": "a"})
    {'x': tensor([0, 0], dtype=int32), 'name': 'a'}
    """
    if isinstance(data, Mapping):
        return {key: convert(part) for key, part in data.items()}
    if isinstance(data, (tuple, list)):
        parts = map(convert, data)
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "USO":
        return tensor(data)
    return data

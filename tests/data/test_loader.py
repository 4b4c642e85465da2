"""Datasets and the loader: order, batches, workers, errors; files of real data."""

import sys
import threading
import time
import traceback
from collections import namedtuple
from collections.abc import Iterator

import numpy as np
import pytest

import tenon as tn
from tenon import data
from tenon.errors import ArgumentError, OutOfRange, ShapeError, TenonError


class Squares(data.Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, np.ndarray]:
        if index == 7 and self.broken:
            raise ValueError("sample 7 is broken")
        time.sleep(0.002 * (index % 3))
        return index, np.full(2, index * index, np.float32)

    broken = False


def labels(loader: data.DataLoader) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


def test_batches_in_order_with_a_short_last_one() -> None:
    loader = data.DataLoader(Squares(), batch_size=4)
    assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    loader = data.DataLoader(Squares(), batch_size=4, drop_last=True)
    assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2
    index, square = next(iter(loader))
    assert (index.type, square.type) == (tn.tensor([0, 0, 0, 0]).type, tn.zeros((4, 2)).type)


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_keep_the_order(workers: int) -> None:
    assert labels(data.DataLoader(Squares(), batch_size=3, num_workers=workers)) == \
        labels(data.DataLoader(Squares(), batch_size=3))


def test_shuffling_follows_the_seed_and_changes_every_epoch() -> None:
    one, two = (data.DataLoader(Squares(), batch_size=10, shuffle=True, seed=3, num_workers=w) for w in (0, 2))
    first, second = labels(one), labels(one)
    assert sorted(first[0]) == list(range(10)) and first != second
    assert labels(two) == first and labels(two) == second
    tn.manual_seed(5)
    third = labels(data.DataLoader(Squares(), batch_size=10, shuffle=True))
    tn.manual_seed(5)
    assert labels(data.DataLoader(Squares(), batch_size=10, shuffle=True)) == third


def test_an_error_in_a_worker_is_raised_with_its_traceback() -> None:
    class Broken(Squares):
        broken = True
    loader = iter(data.DataLoader(Broken(), batch_size=2, num_workers=2))
    assert [next(loader)[0].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match="sample 7 is broken") as caught:
        next(loader)
    assert "__getitem__" in "".join(traceback.format_tb(caught.value.__traceback__))


def test_a_loader_left_early_stops_its_threads() -> None:
    for batch in data.DataLoader(Squares(), batch_size=1, num_workers=2):
        assert batch[0].tolist() == [0]
        break
    deadline = time.monotonic() + 60
    while any(t.name.startswith("tenon-loader") for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_tensor_dataset_gives_whole_batches() -> None:
    x, y = tn.tensor(np.arange(12.0).reshape(6, 2)), tn.arange(6)
    part = data.Subset(data.TensorDataset(x, y), [5, 3, 1])
    a, b = next(iter(data.DataLoader(part, batch_size=2)))
    assert a.tolist() == [[10, 11], [6, 7]] and b.tolist() == [5, 3]
    assert part[-1][1].item() == 1
    both = data.Subset(data.TensorDataset(y), [0]) + data.TensorDataset(y)
    assert len(both) == 7 and both[6][0].item() == 5 and both[0][0].item() == 0


class Stream(data.IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


@pytest.mark.parametrize("workers", [0, 2])
def test_streams(workers: int) -> None:
    loader = data.DataLoader(Stream(), batch_size=2, num_workers=workers)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    assert list(data.DataLoader(Stream(), batch_size=None, num_workers=workers)) == [0, 1, 2, 3, 4]


def test_without_batches_samples_are_converted_or_given_to_the_collate_fn() -> None:
    samples = [(np.float64(k), {"x": np.full(2, k, np.int32), "name": np.str_("a")}) for k in range(3)]

    class Stream(data.IterableDataset):
        def __iter__(self) -> Iterator[object]:
            return iter(samples)
    for source in (samples, Stream()):
        number, parts = list(data.DataLoader(source, batch_size=None))[2]
        assert (str(number.type), number.item()) == ("f64", 2.0)
        assert (str(parts["x"].type), parts["name"]) == ("i32[2]", "a")
        assert list(data.DataLoader(source, batch_size=None, collate_fn=lambda s: s[0] * 2)) == [0, 2, 4]
    assert data.collate([np.array(["a"])[0], "b"]) == ["a", "b"]


def test_collate_keeps_the_structure() -> None:
    Pair = namedtuple("Pair", "x name")
    batch = data.collate([{"p": Pair(tn.tensor([1.0]), "a"), "n": 1}, {"p": Pair(tn.tensor([2.0]), "b"), "n": 2}])
    assert batch["p"].x.tolist() == [[1], [2]] and batch["p"].name == ("a", "b") and batch["n"].tolist() == [1, 2]


def test_random_split() -> None:
    parts = data.random_split(Squares(), [6, 4], seed=1)
    assert sorted(parts[0].indices + parts[1].indices) == list(range(10))
    assert [p.indices for p in data.random_split(Squares(), [0.6, 0.4], seed=1)] == [p.indices for p in parts]
    assert [len(p) for p in data.random_split(Squares(), [0.55, 0.45], seed=1)] == [6, 4]


def test_samplers() -> None:
    tn.manual_seed(0)
    assert len(list(data.RandomSampler(Squares(), replacement=True, num_samples=25))) == 25
    assert set(data.WeightedRandomSampler([0.0, 1.0, 0.0], 20)) == {1}
    loader = data.DataLoader(Squares(), batch_sampler=[[1, 2], [3]])
    assert labels(loader) == [[1, 2], [3]]
    assert labels(data.DataLoader(Squares(), batch_size=2, sampler=[5, 6, 8])) == [[5, 6], [8]]


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="DataLoader: batch_size must be a positive integer, not 0"):
        data.DataLoader(Squares(), batch_size=0)
    with pytest.raises(ArgumentError, match="DataLoader: give either shuffle or a sampler"):
        data.DataLoader(Squares(), shuffle=True, sampler=[1])
    with pytest.raises(ArgumentError, match="has an order of its own"):
        data.DataLoader(Stream(), shuffle=True)
    with pytest.raises(ShapeError, match=r"the tensors i64\[2\], i64\[3\] do not have the same length"):
        data.TensorDataset(tn.arange(2), tn.arange(3))
    with pytest.raises(ShapeError, match=r"collate: samples of different shapes \[1\], \[2\] do not stack"):
        data.collate([tn.zeros(1), tn.zeros(2)])
    with pytest.raises(OutOfRange, match="sample 3 of a dataset of 3"):
        data.TensorDataset(tn.arange(3))[3]
    with pytest.raises(ArgumentError, match=r"random_split: the lengths \[3, 3\] sum to 6, the dataset has 10"):
        data.random_split(Squares(), [3, 3])


def test_digits_are_images_and_labels() -> None:
    pytest.importorskip("sklearn")
    images, labels = data.digits()
    assert (str(images.type), str(labels.type)) == ("f32[1797, 1, 8, 8]", "i64[1797]")
    assert float(images.max()) == 1 and float(images.min()) == 0 and set(labels.tolist()) == set(range(10))


def test_stdlib_text_is_the_same_every_time() -> None:
    text = data.stdlib_text(200_000)
    assert len(text) == 200_000 and text == data.stdlib_text(200_000) and "def " in text


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(TenonError, match="scikit-learn, which is not installed") as caught:
        data.digits()
    assert caught.value.hint == "pip install tenon-graph[data]"


def test_a_distributed_sampler_shares_out_every_index() -> None:
    shares = [list(tn.data.DistributedSampler(range(7), 3, rank, shuffle=False)) for rank in range(3)]
    assert shares == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    dropped = [list(tn.data.DistributedSampler(range(7), 3, rank, drop_last=True, seed=5)) for rank in range(3)]
    assert len({index for share in dropped for index in share}) == 6
    alone = tn.data.DistributedSampler(range(3))
    assert alone.num_replicas == 1 and sorted(alone) == [0, 1, 2]
    with pytest.raises(ArgumentError, match="rank 3 is not one of 3"):
        tn.data.DistributedSampler(range(7), 3, 3)

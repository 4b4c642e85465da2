"""`tenon.data` as PyTorch calls it; its paths `data.distributed`, `data.dataloader` are this module too."""

import sys as _sys

from tenon.data import BatchSampler as BatchSampler
from tenon.data import ChainDataset as ChainDataset
from tenon.data import ConcatDataset as ConcatDataset
from tenon.data import DataLoader as DataLoader
from tenon.data import Dataset as Dataset
from tenon.data import DistributedSampler as DistributedSampler
from tenon.data import IterableDataset as IterableDataset
from tenon.data import RandomSampler as RandomSampler
from tenon.data import Sampler as Sampler
from tenon.data import SequentialSampler as SequentialSampler
from tenon.data import StackDataset as StackDataset
from tenon.data import Subset as Subset
from tenon.data import SubsetRandomSampler as SubsetRandomSampler
from tenon.data import TensorDataset as TensorDataset
from tenon.data import WeightedRandomSampler as WeightedRandomSampler
from tenon.data import collate as default_collate
from tenon.data import convert as default_convert
from tenon.data import random_split as random_split


def get_worker_info() -> None:
    """None: datasets are read by threads of this process, which share them."""


dataloader = dataset = distributed = sampler = _sys.modules[__name__]

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
           "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
           "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "default_collate", "default_convert",
           "get_worker_info", "random_split"]

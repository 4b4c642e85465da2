"""Datasets, samplers and the loader; real data that a machine already has."""

from tenon.data.builtin_datasets import digits as digits
from tenon.data.builtin_datasets import stdlib_text as stdlib_text
from tenon.data.dataset import ChainDataset as ChainDataset
from tenon.data.dataset import ConcatDataset as ConcatDataset
from tenon.data.dataset import Dataset as Dataset
from tenon.data.dataset import IterableDataset as IterableDataset
from tenon.data.dataset import StackDataset as StackDataset
from tenon.data.dataset import Subset as Subset
from tenon.data.dataset import TensorDataset as TensorDataset
from tenon.data.dataset import random_split as random_split
from tenon.data.loader import DataLoader as DataLoader
from tenon.data.loader import collate as collate
from tenon.data.loader import convert as convert
from tenon.data.sampler import BatchSampler as BatchSampler
from tenon.data.sampler import DistributedSampler as DistributedSampler
from tenon.data.sampler import RandomSampler as RandomSampler
from tenon.data.sampler import Sampler as Sampler
from tenon.data.sampler import SequentialSampler as SequentialSampler
from tenon.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from tenon.data.sampler import WeightedRandomSampler as WeightedRandomSampler

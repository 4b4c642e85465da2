"""PyTorch's names for modules that are elsewhere here: `tn.utils.data`, `.checkpoint`, `.hub`, `.tensorboard`."""

from tenon.utils import checkpoint as checkpoint
from tenon.utils import data as data

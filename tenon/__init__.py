"""Tenon: ordinary imperative Python, made into one optimised, compiled computational graph."""

from tenon import ops as _ops
from tenon.jit import jit
from tenon.tensor import Tensor, asarray, enable_grad, is_grad_enabled, no_grad, tensor

globals().update(_ops.PUBLIC)
__version__ = "0.1.0"

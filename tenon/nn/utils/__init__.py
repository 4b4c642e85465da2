"""Helpers for modules: gradient clipping, parameters as one vector, packed sequences, weight and spectral norm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenon.dims.symbolic_dim import product
from tenon.eager.grad_mode import no_grad
from tenon.errors import ShapeError
from tenon.nn.utils import parametrizations as parametrizations
from tenon.nn.utils import parametrize as parametrize
from tenon.nn.utils import prune as prune
from tenon.nn.utils import rnn as rnn
from tenon.nn.utils.parametrizations import old_spectral_norm as spectral_norm
from tenon.nn.utils.parametrizations import old_weight_norm as weight_norm
from tenon.nn.utils.parametrizations import remove_spectral_norm, remove_weight_norm
from tenon.ops.joining_and_axes import concat, reshape
from tenon.optim.clipping import clip_grad_norm, clip_grad_value, clip_grads_with_norm, get_total_norm
from tenon.tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value", "clip_grad_value_", "clip_grads_with_norm_",
           "get_total_norm", "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "spectral_norm",
           "vector_to_parameters", "weight_norm"]

clip_grad_norm_, clip_grad_value_ = clip_grad_norm, clip_grad_value
clip_grads_with_norm_ = clip_grads_with_norm


def parameters_to_vector(parameters: Iterable[Tensor]) -> Any:
    """All elements of the parameters, one after another.

    >>> nn.utils.parameters_to_vector([tn.ones(2), tn.zeros(1, 2)])
    tensor([1., 1., 0., 0.])
    """
    return concat([reshape(p, -1) for p in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Tensor]) -> None:
    """Assign the elements of a vector to the parameters, in order."""
    listed = list(parameters)
    total = sum(int(product(p.shape)) for p in listed)
    if vec.shape != (total,):
        raise ShapeError(f"vector_to_parameters: the parameters have {total} elements, the vector is {vec.type}")
    start = 0
    with no_grad():
        for p in listed:
            size = int(product(p.shape))
            p.assign(reshape(vec[start:start + size], p.shape))
            start += size

"""Tenon: ordinary imperative Python, made into one optimised, compiled computational graph."""

from tenon import linalg, nn, optim, random
from tenon import ops as _ops
from tenon.debug import notebook as _notebook
from tenon.graph.ir import Graph
from tenon.jit import jit
from tenon.nn.functional import alpha_dropout, scaled_dot_product_attention
from tenon.ops.extend import op
from tenon.random import (
    bernoulli,
    categorical,
    dropout,
    manual_seed,
    multinomial,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    uniform,
)
from tenon.tensor import Tensor, asarray, enable_grad, is_grad_enabled, no_grad, tensor
from tenon.transforms import (
    checkpoint,
    custom_vjp,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    value_and_grad,
    vjp,
    vmap,
)

globals().update(_ops.PUBLIC)
Tensor._repr_html_ = _notebook.tensor_html      # type: ignore[attr-defined]
Graph._repr_html_ = _notebook.graph_html        # type: ignore[attr-defined]
__version__ = "0.1.0"

"""Tenon: ordinary imperative Python, made into one optimised, compiled computational graph."""

from tenon import fft, linalg, nn, optim, random
from tenon import ops as _ops
from tenon.array_api import VERSION as __array_api_version__
from tenon.array_api import can_cast, e, finfo, iinfo, inf, isdtype, nan, newaxis, pi, result_type
from tenon.array_api import namespace_info as __array_namespace_info__
from tenon.debug import notebook as _notebook
from tenon.graph.ir import Graph
from tenon.jit import jit
from tenon.nn.functional import alpha_dropout, scaled_dot_product_attention
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
from tenon.tensor import Tensor, asarray, from_dlpack, enable_grad, is_grad_enabled, no_grad, tensor
from tenon.types import (
    bfloat16,
    broadcast_shapes,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tenon.types import DType as dtype
from tenon.types import bool_ as bool
from tenon.transforms import grad, jvp, value_and_grad, vjp, vmap

globals().update(_ops.PUBLIC)
Tensor._repr_html_ = _notebook.tensor_html      # type: ignore[attr-defined]
Graph._repr_html_ = _notebook.graph_html        # type: ignore[attr-defined]
__version__ = "0.1.0"

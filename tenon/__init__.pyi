"""Written by tools/generate_stubs.py from the operators' definitions."""

from typing import Any
from tenon.ops.public import *
from tenon.types import DType
from tenon.pytorch_names import BoolTensor as BoolTensor
from tenon.serialization.run_checkpoint import Checkpoint as Checkpoint
from tenon.pytorch_names import DoubleTensor as DoubleTensor
from tenon.pytorch_names import FloatTensor as FloatTensor
from tenon.random import Generator as Generator
from tenon.graph.ir import Graph as Graph
from tenon.pytorch_names import IntTensor as IntTensor
from tenon.pytorch_names import LongTensor as LongTensor
from tenon.tensor import Tensor as Tensor
from tenon.pytorch_names import cuda as _accelerator
from tenon.nn.dropout import alpha_dropout as alpha_dropout
from tenon import amp as amp
from tenon.tensor import asarray as _as_tensor
from tenon.tensor import asarray as asarray
from tenon.autocast import autocast as autocast
from tenon import autograd as autograd
from tenon import backends as backends
from tenon.random import bernoulli as bernoulli
from tenon.types import broadcast_shapes as broadcast_shapes
from tenon.array_api import can_cast as can_cast
from tenon.random import categorical as categorical
from tenon.pytorch_names import channels_last as channels_last
from tenon.pytorch_names import channels_last_3d as channels_last_3d
from tenon.transforms.checkpoint import checkpoint as checkpoint
from tenon.pytorch_methods import clamp_max as clamp_max
from tenon.pytorch_methods import clamp_min as clamp_min
from tenon.capture.cond_switch import cond as cond
from tenon.pytorch_names import contiguous_format as contiguous_format
from tenon.pytorch_names import cuda as cuda
from tenon.transforms.custom_gradient import custom_vjp as custom_vjp
from tenon import data as data
from tenon import debug as debug
from tenon.devices import Device as _device
from tenon.devices import devices as devices
from tenon import distributed as distributed
from tenon import distributions as distributions
from tenon.random import dropout as dropout
from tenon.types import DType as _dtype
from tenon.array_api import e as e
from tenon.eager.grad_mode import enable_grad as enable_grad
from tenon.debug.explain import explain as explain
from tenon import fft as fft
from tenon.array_api import finfo as finfo
from tenon.capture.while_scan import fori_loop as fori_loop
from tenon.tensor import from_dlpack as from_dlpack
from tenon.pytorch_names import from_numpy as from_numpy
from tenon import func as func
from tenon.autocast import get_autocast_dtype as get_autocast_dtype
from tenon.pytorch_names import get_default_dtype as get_default_dtype
from tenon.runtime.thread_pool import get_num_threads as get_num_threads
from tenon.pytorch_names import get_rng_state as get_rng_state
from tenon.transforms.gradients import grad as grad
from tenon.extend import graph_pass as graph_pass
from tenon.transforms.jacobians import hessian as hessian
from tenon.transforms.jacobians import hvp as hvp
from tenon.array_api import iinfo as iinfo
from tenon.array_api import inf as inf
from tenon.pytorch_names import inference_mode as inference_mode
from tenon.pytorch_names import initial_seed as initial_seed
from tenon.ops.solving import inv as _inverse
from tenon.autocast import is_autocast_enabled as is_autocast_enabled
from tenon.pytorch_names import is_complex as is_complex
from tenon.pytorch_names import is_floating_point as is_floating_point
from tenon.eager.grad_mode import is_grad_enabled as is_grad_enabled
from tenon.pytorch_names import is_tensor as is_tensor
from tenon.array_api import isdtype as isdtype
from tenon.transforms.jacobians import jacfwd as jacfwd
from tenon.transforms.jacobians import jacobian as jacobian
from tenon.transforms.jacobians import jacrev as jacrev
from tenon.jit import jit as jit
from tenon.transforms.gradients import jvp as jvp
from tenon.extend import kernel as kernel
from tenon import linalg as linalg
from tenon.serialization.files import load as load
from tenon.serialization.weight_files import load_weights as load_weights
from tenon.random import manual_seed as manual_seed
from tenon.capture.while_scan import map as map
from tenon.pytorch_names import memory_format as memory_format
from tenon import models as models
from tenon.pytorch_names import cuda as _mps
from tenon.random import multinomial as multinomial
from tenon.array_api import nan as nan
from tenon.array_api import newaxis as newaxis
from tenon import nn as nn
from tenon.eager.grad_mode import no_grad as no_grad
from tenon.random import normal as normal
from tenon.pytorch_names import numel as numel
from tenon import onnx as onnx
from tenon.ops.user_operators import op as op
from tenon import optim as optim
from tenon.pytorch_names import pca_lowrank as pca_lowrank
from tenon.array_api import pi as pi
from tenon.random import poisson as poisson
from tenon.pytorch_names import preserve_format as preserve_format
from tenon.random import rand as rand
from tenon.random import rand_like as rand_like
from tenon.random import randint as randint
from tenon.random import randint_like as randint_like
from tenon.random import randn as randn
from tenon.random import randn_like as randn_like
from tenon import random as random
from tenon.random import randperm as randperm
from tenon.extend import register_backend as register_backend
from tenon.extend import remove_backend as remove_backend
from tenon.extend import remove_kernel as remove_kernel
from tenon.extend import remove_pass as remove_pass
from tenon.array_api import result_type as result_type
from tenon.serialization.files import save as save
from tenon.pytorch_names import scalar_tensor as scalar_tensor
from tenon.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from tenon.capture.while_scan import scan as scan
from tenon.pytorch_names import set_default_device as set_default_device
from tenon.pytorch_names import set_default_dtype as set_default_dtype
from tenon.devices import set_devices as set_devices
from tenon.pytorch_names import set_float32_matmul_precision as set_float32_matmul_precision
from tenon.pytorch_names import set_grad_enabled as set_grad_enabled
from tenon.runtime.thread_pool import set_num_threads as set_num_threads
from tenon.pytorch_names import set_printoptions as set_printoptions
from tenon.pytorch_names import set_rng_state as set_rng_state
from tenon import special as special
from tenon.tensor import stop_gradient as stop_gradient
from tenon.pytorch_names import svd_lowrank as svd_lowrank
from tenon.capture.cond_switch import switch as switch
from tenon.ops.indexing import take_along_axis as _take_along_dim
from tenon.tensor import tensor as tensor
from tenon import testing as testing
from tenon import torch as torch
from tenon.transforms import pytrees as _tree
from tenon.pytorch_names import typename as typename
from tenon.random import uniform as uniform
from tenon.pytorch_names import use_deterministic_algorithms as use_deterministic_algorithms
from tenon import utils as utils
from tenon.transforms.gradients import value_and_grad as value_and_grad
from tenon.transforms.gradients import vjp as vjp
from tenon.transforms.vmap_interpreter import vmap as vmap
from tenon.capture.while_scan import while_loop as while_loop
from tenon.pytorch_names import cuda as _xpu
Size = tuple[Any, ...]
accelerator = _accelerator
as_tensor = _as_tensor
bfloat16: DType
bool: DType
cdouble: DType
cfloat: DType
complex128: DType
complex64: DType
device = _device
double: DType
dtype = _dtype
float: DType
float16: DType
float32: DType
float64: DType
half: DType
int: DType
int16: DType
int32: DType
int64: DType
int8: DType
inverse = _inverse
long: DType
mps = _mps
short: DType
take_along_dim = _take_along_dim
tree = _tree
uint16: DType
uint32: DType
uint64: DType
uint8: DType
xpu = _xpu
__version__: str
__array_api_version__: str

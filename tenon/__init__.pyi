"""Written by tools/generate_stubs.py from the operators' definitions."""

from typing import Any
from tenon.ops.public import *
from tenon.types import DType
from tenon.pytorch_names import BFloat16Tensor as BFloat16Tensor
from tenon.pytorch_names import BoolTensor as BoolTensor
from tenon.pytorch_names import ByteTensor as ByteTensor
from tenon.pytorch_names import CharTensor as CharTensor
from tenon.serialization.run_checkpoint import Checkpoint as Checkpoint
from tenon.pytorch_names import DoubleTensor as DoubleTensor
from tenon.pytorch_names import FloatTensor as FloatTensor
from tenon.random import Generator as Generator
from tenon.amp import GradScaler as GradScaler
from tenon.graph.ir import Graph as Graph
from tenon.pytorch_names import HalfTensor as HalfTensor
from tenon.pytorch_names import IntTensor as IntTensor
from tenon.pytorch_names import LongTensor as LongTensor
from tenon.pytorch_names import ShortTensor as ShortTensor
from tenon.tensor import Tensor as Tensor
from tenon.pytorch_functions import abs_ as abs_
from tenon.pytorch_names import cuda as _accelerator
from tenon.pytorch_functions import acos_ as acos_
from tenon.pytorch_functions import acosh_ as acosh_
from tenon.pytorch_functions import addmv_ as addmv_
from tenon.pytorch_methods import adjoint as adjoint
from tenon.nn.functional import alpha_dropout as alpha_dropout
from tenon import amp as amp
from tenon.pytorch_functions import arccos_ as arccos_
from tenon.pytorch_functions import arccosh_ as arccosh_
from tenon.pytorch_functions import arcsin_ as arcsin_
from tenon.pytorch_functions import arcsinh_ as arcsinh_
from tenon.pytorch_functions import arctan_ as arctan_
from tenon.pytorch_functions import arctanh_ as arctanh_
from tenon.pytorch_functions import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from tenon.tensor import asarray as _as_tensor
from tenon.tensor import asarray as asarray
from tenon.pytorch_functions import asin_ as asin_
from tenon.pytorch_functions import asinh_ as asinh_
from tenon.pytorch_functions import atan_ as atan_
from tenon.pytorch_functions import atanh_ as atanh_
from tenon.autocast import autocast as autocast
from tenon import autograd as autograd
from tenon import backends as backends
from tenon.random import bernoulli as bernoulli
from tenon.pytorch_functions import binomial as binomial
from tenon.types import broadcast_shapes as broadcast_shapes
from tenon.array_api import can_cast as can_cast
from tenon.random import categorical as categorical
from tenon.pytorch_functions import ceil_ as ceil_
from tenon.pytorch_functions import chain_matmul as chain_matmul
from tenon.pytorch_names import channels_last as channels_last
from tenon.pytorch_names import channels_last_3d as channels_last_3d
from tenon.transforms.checkpoint import checkpoint as checkpoint
from tenon.pytorch_functions import clamp_ as clamp_
from tenon.pytorch_methods import clamp_max as clamp_max
from tenon.pytorch_functions import clamp_max_ as clamp_max_
from tenon.pytorch_methods import clamp_min as clamp_min
from tenon.pytorch_functions import clamp_min_ as clamp_min_
from tenon.pytorch_functions import clip_ as clip_
from tenon.pytorch_functions import compile as compile
from tenon.pytorch_names import compiler as compiler
from tenon.capture.cond_switch import cond as cond
from tenon.pytorch_functions import conj_physical_ as conj_physical_
from tenon.pytorch_names import contiguous_format as contiguous_format
from tenon.pytorch_functions import cos_ as cos_
from tenon.pytorch_functions import cosh_ as cosh_
from tenon.pytorch_names import cuda as cuda
from tenon.transforms.custom_gradient import custom_vjp as custom_vjp
from tenon import data as data
from tenon import debug as debug
from tenon.random import default_generator as default_generator
from tenon.pytorch_functions import deg2rad_ as deg2rad_
from tenon.pytorch_functions import detach as detach
from tenon.pytorch_functions import detach_ as detach_
from tenon.devices import Device as _device
from tenon.devices import devices as devices
from tenon import distributed as distributed
from tenon import distributions as distributions
from tenon.random import dropout as dropout
from tenon.types import DType as _dtype
from tenon.array_api import e as e
from tenon.eager.grad_mode import enable_grad as enable_grad
from tenon.pytorch_functions import erf_ as erf_
from tenon.pytorch_functions import erfc_ as erfc_
from tenon.pytorch_functions import exp2_ as exp2_
from tenon.pytorch_functions import exp_ as exp_
from tenon.debug.explain import explain as explain
from tenon.pytorch_functions import expm1_ as expm1_
from tenon.pytorch_functions import fake_quantize_per_channel_affine as fake_quantize_per_channel_affine
from tenon.pytorch_functions import fake_quantize_per_tensor_affine as fake_quantize_per_tensor_affine
from tenon import fft as fft
from tenon.pytorch_functions import fill as fill
from tenon.pytorch_functions import fill_ as fill_
from tenon.array_api import finfo as finfo
from tenon.pytorch_functions import fix_ as fix_
from tenon.pytorch_functions import floor_ as floor_
from tenon.capture.while_scan import fori_loop as fori_loop
from tenon.pytorch_functions import frac_ as frac_
from tenon.pytorch_functions import frobenius_norm as frobenius_norm
from tenon.tensor import from_dlpack as from_dlpack
from tenon.pytorch_names import from_numpy as from_numpy
from tenon.pytorch_functions import frombuffer as frombuffer
from tenon import func as func
from tenon.pytorch_functions import gcd_ as gcd_
from tenon.ops.vector_products import outer as _ger
from tenon.autocast import get_autocast_dtype as get_autocast_dtype
from tenon.pytorch_functions import get_default_device as get_default_device
from tenon.pytorch_names import get_default_dtype as get_default_dtype
from tenon.pytorch_methods import get_device as get_device
from tenon.pytorch_functions import get_float32_matmul_precision as get_float32_matmul_precision
from tenon.runtime.thread_pool import get_num_threads as get_num_threads
from tenon.random import get_rng_state as get_rng_state
from tenon.transforms.gradients import grad as grad
from tenon.extend import graph_pass as graph_pass
from tenon.transforms.jacobians import hessian as hessian
from tenon.pytorch_functions import histogram as histogram
from tenon.transforms.jacobians import hvp as hvp
from tenon.pytorch_functions import i0_ as i0_
from tenon.pytorch_methods import igamma as igamma
from tenon.pytorch_methods import igammac as igammac
from tenon.array_api import iinfo as iinfo
from tenon.pytorch_functions import index_put_ as index_put_
from tenon.array_api import inf as inf
from tenon.pytorch_names import inference_mode as inference_mode
from tenon.random import initial_seed as initial_seed
from tenon.ops.solving import inv as _inverse
from tenon.autocast import is_autocast_enabled as is_autocast_enabled
from tenon.pytorch_names import is_complex as is_complex
from tenon.pytorch_functions import is_conj as is_conj
from tenon.pytorch_functions import is_conj as _is_distributed
from tenon.pytorch_names import is_floating_point as is_floating_point
from tenon.eager.grad_mode import is_grad_enabled as is_grad_enabled
from tenon.pytorch_functions import is_conj as _is_inference
from tenon.pytorch_functions import is_conj as _is_neg
from tenon.pytorch_methods import is_nonzero as is_nonzero
from tenon.pytorch_methods import is_same_size as is_same_size
from tenon.pytorch_methods import is_signed as is_signed
from tenon.tensor import is_tensor as is_tensor
from tenon.array_api import isdtype as isdtype
from tenon.transforms.jacobians import jacfwd as jacfwd
from tenon.transforms.jacobians import jacobian as jacobian
from tenon.transforms.jacobians import jacrev as jacrev
from tenon.jit import jit as jit
from tenon.transforms.gradients import jvp as jvp
from tenon.extend import kernel as kernel
from tenon.pytorch_names import layout as layout
from tenon.pytorch_functions import lcm_ as lcm_
from tenon.pytorch_functions import ldexp_ as ldexp_
from tenon import linalg as linalg
from tenon.serialization.save_load import load as load
from tenon.serialization.weight_files import load_weights as load_weights
from tenon.pytorch_functions import log10_ as log10_
from tenon.pytorch_functions import log1p_ as log1p_
from tenon.pytorch_functions import log2_ as log2_
from tenon.pytorch_functions import log_ as log_
from tenon.pytorch_functions import logit_ as logit_
from tenon.random import manual_seed as manual_seed
from tenon.capture.while_scan import map as map
from tenon.pytorch_names import memory_format as memory_format
from tenon import models as models
from tenon.pytorch_names import cuda as _mps
from tenon.pytorch_methods import msort as msort
from tenon.random import multinomial as multinomial
from tenon import multiprocessing as multiprocessing
from tenon.array_api import nan as nan
from tenon.pytorch_functions import nan_to_num_ as nan_to_num_
from tenon.pytorch_methods import narrow_copy as narrow_copy
from tenon.pytorch_functions import neg_ as neg_
from tenon.pytorch_functions import negative_ as negative_
from tenon.array_api import newaxis as newaxis
from tenon import nn as nn
from tenon.eager.grad_mode import no_grad as no_grad
from tenon.pytorch_functions import norm_except_dim as norm_except_dim
from tenon.random import normal as normal
from tenon.pytorch_functions import nuclear_norm as nuclear_norm
from tenon.pytorch_names import numel as numel
from tenon import onnx as onnx
from tenon.ops.user_operators import op as op
from tenon import optim as optim
from tenon.pytorch_names import pca_lowrank as pca_lowrank
from tenon.array_api import pi as pi
from tenon.ops.solving import pinv as _pinverse
from tenon.random import poisson as poisson
from tenon.pytorch_names import preserve_format as preserve_format
from tenon.types import promote_types as promote_types
from tenon.pytorch_functions import rad2deg_ as rad2deg_
from tenon.random import rand as rand
from tenon.random import rand_like as rand_like
from tenon.random import randint as randint
from tenon.random import randint_like as randint_like
from tenon.random import randn as randn
from tenon.random import randn_like as randn_like
from tenon import random as random
from tenon.random import randperm as randperm
from tenon.pytorch_functions import reciprocal_ as reciprocal_
from tenon.extend import register_backend as register_backend
from tenon.pytorch_functions import relu_ as relu_
from tenon.extend import remove_backend as remove_backend
from tenon.extend import remove_kernel as remove_kernel
from tenon.extend import remove_pass as remove_pass
from tenon.pytorch_functions import resolve_conj as resolve_conj
from tenon.pytorch_functions import resolve_conj as _resolve_neg
from tenon.array_api import result_type as result_type
from tenon.pytorch_functions import round_ as round_
from tenon.pytorch_functions import rsqrt_ as rsqrt_
from tenon.pytorch_functions import rsub as rsub
from tenon.serialization.save_load import save as save
from tenon.pytorch_names import scalar_tensor as scalar_tensor
from tenon.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from tenon.capture.while_scan import scan as scan
from tenon.pytorch_functions import seed as seed
from tenon.pytorch_functions import set_anomaly_enabled as set_anomaly_enabled
from tenon.pytorch_names import set_default_device as set_default_device
from tenon.pytorch_names import set_default_dtype as set_default_dtype
from tenon.pytorch_names import set_default_dtype as _set_default_tensor_type
from tenon.devices import set_devices as set_devices
from tenon.pytorch_names import set_float32_matmul_precision as set_float32_matmul_precision
from tenon.pytorch_names import set_flush_denormal as set_flush_denormal
from tenon.pytorch_names import set_grad_enabled as set_grad_enabled
from tenon.runtime.thread_pool import set_num_threads as set_num_threads
from tenon.pytorch_names import set_printoptions as set_printoptions
from tenon.random import set_rng_state as set_rng_state
from tenon.pytorch_functions import sigmoid_ as sigmoid_
from tenon.pytorch_functions import sin_ as sin_
from tenon.pytorch_functions import sinc_ as sinc_
from tenon.pytorch_functions import sinh_ as sinh_
from tenon import special as special
from tenon.pytorch_functions import sqrt_ as sqrt_
from tenon.pytorch_functions import square_ as square_
from tenon.tensor import stop_gradient as stop_gradient
from tenon.pytorch_names import strided as strided
from tenon.pytorch_names import svd_lowrank as svd_lowrank
from tenon.capture.cond_switch import switch as switch
from tenon.pytorch_functions import t as t
from tenon.ops.indexing import take_along_axis as _take_along_dim
from tenon.pytorch_functions import tan_ as tan_
from tenon.pytorch_functions import tanh_ as tanh_
from tenon.tensor import tensor as tensor
from tenon import testing as testing
from tenon import torch as torch
from tenon.ops.cumulative import trapezoid as _trapz
from tenon.transforms import pytrees as _tree
from tenon.pytorch_functions import trunc_ as trunc_
from tenon.pytorch_names import typename as typename
from tenon.random import uniform as uniform
from tenon.pytorch_names import use_deterministic_algorithms as use_deterministic_algorithms
from tenon import utils as utils
from tenon.transforms.gradients import value_and_grad as value_and_grad
from tenon.pytorch_names import version as version
from tenon.transforms.gradients import vjp as vjp
from tenon.transforms.vmap_interpreter import vmap as vmap
from tenon.capture.while_scan import while_loop as while_loop
from tenon.pytorch_functions import xlogy_ as xlogy_
from tenon.pytorch_names import cuda as _xpu
from tenon.pytorch_functions import zero_ as zero_
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
ger = _ger
half: DType
int: DType
int16: DType
int32: DType
int64: DType
int8: DType
inverse = _inverse
is_distributed = _is_distributed
is_inference = _is_inference
is_neg = _is_neg
long: DType
mps = _mps
pinverse = _pinverse
resolve_neg = _resolve_neg
set_default_tensor_type = _set_default_tensor_type
short: DType
take_along_dim = _take_along_dim
trapz = _trapz
tree = _tree
uint16: DType
uint32: DType
uint64: DType
uint8: DType
xpu = _xpu
__version__: str
__array_api_version__: str

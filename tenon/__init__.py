"""Tenon: ordinary imperative Python, made into one optimised, compiled computational graph."""

import gc as _gc

_collecting = _gc.isenabled()
_gc.disable()       # nothing of what is loaded becomes garbage, and looking for it takes a tenth of the time

from collections.abc import Callable as _Callable
from importlib import import_module as _import_module
from os import environ as _environ
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

try:
    from tenon import linalg, random
    from tenon import ops as _ops
    from tenon.array_api import VERSION as __array_api_version__
    from tenon.array_api import can_cast, e, finfo, iinfo, inf, isdtype, nan, newaxis, pi, result_type
    from tenon.array_api import namespace_info as __array_namespace_info__
    from tenon.autocast import autocast, get_autocast_dtype, is_autocast_enabled
    from tenon.capture.code_monitor import unwatched as _unwatched
    from tenon.config import VERSION as __version__
    from tenon.config import read_show as _read_show
    from tenon.config import read_traceback as _read_traceback
    from tenon.devices import Device as device
    from tenon.devices import devices, set_devices
    from tenon.eager import on_device as _on_device
    from tenon.eager.grad_mode import enable_grad, is_grad_enabled, no_grad
    from tenon.extend import graph_pass, kernel, register_backend, remove_backend, remove_kernel, remove_pass
    from tenon.graph.ir import Graph
    from tenon.interop.after_import import after_import as _after_import
    from tenon.jit import jit
    from tenon.locks import unforked as _unforked
    from tenon.migration_hints import TENON as _NAMES
    from tenon.migration_hints import missing as _missing
    from tenon.ops.user_operators import op
    from tenon.pytorch_in_place import FUNCTIONS as _FUNCTIONS_IN_PLACE
    from tenon.pytorch_methods import METHODS as _METHODS
    from tenon.pytorch_scripting import SCRIPTING as _SCRIPTING
    from tenon.random import (
        bernoulli,
        categorical,
        dropout,
        manual_seed,
        multinomial,
        normal,
        poisson,
        rand,
        rand_like,
        randint,
        randint_like,
        randn,
        randn_like,
        randperm,
        uniform,
    )
    from tenon.tensor import Tensor, asarray, from_dlpack, stop_gradient, tensor
    from tenon.types import DType as dtype
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
    from tenon.types import bool_ as bool
finally:
    if _collecting:
        _gc.enable()

if _TYPE_CHECKING:
    from tenon import (
        amp,
        data,
        debug,
        distributions,
        fft,
        func,
        models,
        multiprocessing,
        nn,
        optim,
        special,
        testing,
        utils,
    )
    from tenon.transforms import pytrees as tree

globals().update(_ops.PUBLIC)
vars(jit).update(_SCRIPTING)
for _name, _method in _METHODS.items():
    setattr(Tensor, _name, _method)

_MODULES = ("amp", "autograd", "backends", "data", "debug", "distributed", "distributions", "fft", "func", "models",
            "multiprocessing", "nn", "onnx", "optim", "special", "testing", "torch", "utils")
_LATER = dict.fromkeys(("alpha_dropout", "scaled_dot_product_attention"), "tenon.nn.functional")
_LATER |= dict.fromkeys(("cond", "switch"), "tenon.capture.cond_switch")
_LATER |= dict.fromkeys(("fori_loop", "map", "scan", "while_loop"), "tenon.capture.while_scan")
_LATER |= {"save": "tenon.serialization.save_load", "load": "tenon.serialization.save_load",
           "load_weights": "tenon.serialization.weight_files",
           "Checkpoint": "tenon.serialization.run_checkpoint", "explain": "tenon.debug.explain"}
_LATER |= dict.fromkeys((
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "Generator",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "Size", "accelerator",
    "as_tensor", "cdouble", "cfloat", "channels_last", "channels_last_3d", "clamp_max", "clamp_min", "compiler",
    "contiguous_format", "cuda", "double", "float", "from_numpy", "get_default_dtype", "get_rng_state", "half",
    "inference_mode", "initial_seed", "int", "inverse", "is_complex", "is_floating_point", "is_tensor",
    "layout", "long", "memory_format", "mps", "numel", "pca_lowrank", "preserve_format", "scalar_tensor",
    "set_default_device", "set_default_dtype", "set_default_tensor_type", "set_float32_matmul_precision",
    "set_flush_denormal", "set_grad_enabled", "set_printoptions", "set_rng_state", "short", "strided", "svd_lowrank",
    "take_along_dim", "typename", "use_deterministic_algorithms", "version", "xpu"), "tenon.pytorch_names")
_LATER |= dict.fromkeys((
    "adjoint", "are_deterministic_algorithms_enabled", "binomial", "chain_matmul", "compile", "detach", "fill",
    "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
    "frobenius_norm", "frombuffer", "ger", "get_default_device", "get_device", "get_float32_matmul_precision",
    "histogram", "igamma", "igammac", "is_conj", "is_distributed", "is_inference", "is_neg", "is_nonzero",
    "is_same_size", "is_signed", "msort", "narrow_copy", "norm_except_dim", "nuclear_norm", "pinverse", "promote_types",
    "resolve_conj", "resolve_neg", "rsub", "seed", "set_anomaly_enabled", "t", "trapz", *_FUNCTIONS_IN_PLACE),
    "tenon.pytorch_functions")
_LATER |= dict.fromkeys(("get_num_threads", "set_num_threads"), "tenon.runtime.thread_pool")
_LATER |= {"tree": "tenon.transforms", "default_generator": "tenon.random", "GradScaler": "tenon.amp"}
_LATER |= dict.fromkeys(("checkpoint", "custom_vjp", "grad", "hessian", "hvp", "jacfwd", "jacobian",
                         "jacrev", "jvp", "value_and_grad", "vjp", "vmap"), "tenon.transforms")


def __getattr__(name: str) -> _Any:
    """What is loaded when it is asked for.  (Type checkers find the operators here too.)"""
    if name.startswith("_foreach_") and hasattr(Tensor, name.removeprefix("_foreach_")):
        return _import_module("tenon.pytorch_functions").foreach(name)
    if name not in _MODULES and name not in _LATER:
        raise _missing("tenon", name, _NAMES)
    with _unwatched(), _unforked:       # a captured function may be the first to ask
        return _import_module(f"tenon.{name}") if name in _MODULES else getattr(_import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    from importlib.util import find_spec  # local: rarely asked
    loaded = {name for name, value in globals().items() if isinstance(value, _ModuleType)}
    missing = {"torch"} if find_spec("torch") is None else set()
    return sorted({*globals(), *_LATER} - loaded | {*_MODULES, "linalg", "random"} - missing)


def _html(view: str) -> _Callable[[object], str]:
    """How a notebook shows a class; what draws it is loaded when a notebook asks."""
    def show(value: object) -> str:
        from tenon.debug import notebook  # local: see above
        text: str = getattr(notebook, view)(value)
        return text
    return show


Tensor._repr_html_ = _html("tensor_html")       # type: ignore[attr-defined]
Graph._repr_html_ = _html("graph_html")         # type: ignore[attr-defined]

_after_import("einops._backends", "tenon.interop.einops_backend")
if _words := _read_show(_environ):
    _import_module("tenon.debug.show").show(_words)
if _read_traceback(_environ) == "short":
    _import_module("tenon.tracebacks").shorten_uncaught()

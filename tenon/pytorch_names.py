"""Names that PyTorch's users write at the top level, made of what Tenon has: `tn.device`, `tn.long`, `tn.from_numpy`.

There is no GPU, so `tn.cuda.is_available()` is False.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from tenon import amp
from tenon.config import VERSION
from tenon.devices import Device
from tenon.eager.grad_mode import enable_grad, no_grad, recording_variable
from tenon.errors import ArgumentError
from tenon.ops.creation import zeros
from tenon.ops.decompositions import svd
from tenon.ops.indexing import take_along_axis
from tenon.ops.matrix_factorizations import qr
from tenon.ops.solving import inv as inverse
from tenon.pytorch_methods import clamp_max, clamp_min
from tenon.random import Generator, get_rng_state, initial_seed, randn, set_rng_state
from tenon.tensor import Tensor, asarray, is_tensor, tensor
from tenon.tensor_state import recorder
from tenon.tensor_views import PRINT_PROFILES, print_options
from tenon.types import (
    DType,
    as_dtype,
    bfloat16,
    bool_,
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
)

__all__ = ["BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "Generator",
           "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "Size", "accelerator",
           "as_tensor", "cdouble", "cfloat", "channels_last", "channels_last_3d", "clamp_max", "clamp_min", "compiler",
           "contiguous_format", "cuda", "device", "double", "float", "from_numpy", "get_default_dtype", "get_rng_state",
           "half", "inference_mode", "initial_seed", "int", "inverse", "is_complex", "is_floating_point", "is_tensor",
           "layout", "long", "memory_format", "mps", "numel", "pca_lowrank", "preserve_format", "scalar_tensor",
           "set_default_device", "set_default_dtype", "set_default_tensor_type", "set_float32_matmul_precision",
           "set_flush_denormal", "set_grad_enabled", "set_printoptions", "set_rng_state", "short", "strided",
           "svd_lowrank", "take_along_dim", "typename", "use_deterministic_algorithms", "version", "xpu"]

double, half, long, short = float64, float16, int64, int16
cfloat, cdouble = complex64, complex128
Size: type = tuple
as_tensor = asarray
device = Device
take_along_dim = take_along_axis


class cuda:
    """What programs ask before they use a GPU: there is none."""

    amp = amp

    @staticmethod
    def is_available() -> Any:
        """False."""
        return False

    is_built = is_initialized = is_available

    @staticmethod
    def current_accelerator(check_available: Any = False) -> Any:
        """None: there is none."""

    @staticmethod
    def is_bf16_supported(including_emulation: Any = True) -> Any:
        """False."""
        return False

    @staticmethod
    def memory_allocated(device: Any = None) -> Any:
        """None of it: 0."""
        return 0

    max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated

    @staticmethod
    def reset_peak_memory_stats(device: Any = None) -> None:
        """Nothing: there is no memory of GPUs."""

    @staticmethod
    def device_count() -> Any:
        """None of them: 0."""
        return 0

    @staticmethod
    def manual_seed(seed: Any) -> None:
        """Nothing: there are no generators of GPUs."""

    manual_seed_all = manual_seed

    @staticmethod
    def synchronize(device: Any = None) -> None:
        """Nothing: there is nobody to wait for."""

    @staticmethod
    def empty_cache() -> None:
        """Nothing: there is no cache."""


accelerator = mps = xpu = cuda


class compiler:
    """What programs say to PyTorch's compiler."""

    @staticmethod
    def is_compiling() -> Any:
        """Whether a function is being captured here."""
        return recorder.get() is not None

    is_dynamo_compiling = is_exporting = is_compiling

    @staticmethod
    def disable(fn: Any = None, recursive: Any = True, *, reason: Any = None) -> Any:
        """The function itself: what cannot be captured is found out."""
        return compiler.disable if fn is None else fn

    @staticmethod
    def allow_in_graph(fn: Any) -> Any:
        """The function itself."""
        return fn

    @staticmethod
    def reset() -> None:
        """Nothing: compiled functions stay."""


class version:
    """Which version this is; of GPUs there is none."""

    __version__ = VERSION
    cuda = hip = None


class memory_format(str):
    """What `memory_format=` may be; it is ignored: how elements lie in memory is not part of a tensor."""


class layout(str):
    """What `layout=` may be, and `x.layout` is: elements one after another."""


strided = layout("strided")
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")


def set_float32_matmul_precision(precision: Any) -> None:
    """Nothing: products of float32 are computed in float32."""


def use_deterministic_algorithms(mode: Any, *, warn_only: Any = False) -> None:
    """Nothing: all of them are."""


def set_flush_denormal(mode: Any) -> Any:
    """False: numbers near 0 are computed as they are."""
    return False


def set_default_device(device: Any) -> None:
    """Nothing for the CPU, where tensors are made; raises ArgumentError for another device."""
    if device is not None and not str(Device(device) if isinstance(device, str) else device).startswith("cpu"):
        raise ArgumentError(f"set_default_device: tensors are made on the CPU, not on {device}",
                            hint="device= where tensors are made, or x.to(device)")


def typename(x: Any) -> Any:
    """What kind of object this is, by PyTorch's name for tensors."""
    kind = type(x)
    return f"tenon.{kind.__name__}" if isinstance(x, Tensor) else f"{kind.__module__}.{kind.__qualname__}"


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor of an array, of the same memory.

    >>> tn.from_numpy(np.ones(2))
    tensor([1., 1.], dtype=float64)
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"from_numpy: an array was expected, not {type(array).__name__}",
                            hint="tn.tensor takes lists and numbers")
    return asarray(array)


def is_floating_point(x: Tensor) -> Any:
    """Whether the elements of a tensor are floating point numbers."""
    return x.dtype.is_floating


def is_complex(x: Tensor) -> Any:
    """Whether the elements of a tensor are complex numbers."""
    return x.dtype.kind == "c"


def numel(x: Tensor) -> Any:
    """How many elements a tensor has."""
    return x.size


def scalar_tensor(value: Any, dtype: Any = float32) -> Tensor:
    """A tensor without axes."""
    return tensor(value, dtype=dtype)


# ---------------------------------------------------------------- old constructors

class TensorKind:
    """`FloatTensor` and its kin: makes tensors of data, or of zeros of these sizes; `isinstance` asks for the type."""

    def __init__(self, name: str, dtype: DType):
        self.__name__, self.dtype = name, dtype

    def __call__(self, *given: Any) -> Tensor:
        if not given or type(given[0]) is not builtins.int:
            return tensor(given[0] if given else [], self.dtype)
        made: Tensor = zeros(*given, dtype=self.dtype)
        return made

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is self.dtype

    def __repr__(self) -> str:
        return f"tenon.{self.__name__}"


FloatTensor, DoubleTensor = TensorKind("FloatTensor", float32), TensorKind("DoubleTensor", float64)
HalfTensor, BFloat16Tensor = TensorKind("HalfTensor", float16), TensorKind("BFloat16Tensor", bfloat16)
LongTensor, IntTensor = TensorKind("LongTensor", int64), TensorKind("IntTensor", int32)
ShortTensor, CharTensor = TensorKind("ShortTensor", int16), TensorKind("CharTensor", int8)
ByteTensor, BoolTensor = TensorKind("ByteTensor", uint8), TensorKind("BoolTensor", bool_)


# ---------------------------------------------------------------- matrices of few singular values

def svd_lowrank(A: Any, q: Any = 6, niter: Any = 2, M: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V of about the q largest singular values of A (of A - M), from products with random vectors (Halko 2009).

    >>> x = tn.outer(tn.arange(1.0, 4.0), tn.ones(5))
    >>> u, s, v = tn.svd_lowrank(x, q=2)
    >>> bool(tn.allclose((u * s) @ v.mT, x, atol=1e-5))
    True
    """
    x = A if M is None else A - M
    wide = x.shape[-2] < x.shape[-1]
    x = x.mH if wide else x
    basis = qr(x @ randn(x.shape[-1], q, dtype=x.dtype))[0]
    for _ in range(niter):
        basis = qr(x @ qr(x.mH @ basis)[0])[0]
    u, s, vh = svd(basis.mH @ x, full_matrices=False)
    return (vh.mH, s, basis @ u) if wide else (basis @ u, s, vh.mH)


def pca_lowrank(A: Any, q: Any = None, center: Any = True, niter: Any = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of the rows without their mean: the q main directions stand in the columns of V."""
    most = min(A.shape[-2:])
    q = min(6, most) if q is None else q
    if not 0 <= q <= most or niter < 0:
        raise ArgumentError(f"pca_lowrank: q from 0 to {most} and niter >= 0 were expected, not {q} and {niter}")
    return svd_lowrank(A - A.mean(axis=-2, keepdims=True) if center else A, q, niter)


# ---------------------------------------------------------------- what is printed

def set_printoptions(precision: Any = None, threshold: Any = None, edgeitems: Any = None, linewidth: Any = None,
                     profile: Any = None, sci_mode: Any = None) -> None:
    """How tensors are printed from now on: digits, most elements, elements at the ends of an axis, letters a line.

    `profile` is "default", "short" or "full"; `sci_mode` says whether numbers have exponents, None lets them decide.

    >>> tn.set_printoptions(precision=2); print(tn.tensor(1 / 3)); tn.set_printoptions(profile="default")
    tensor(0.33)
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    if profile is not None and profile not in PRINT_PROFILES:
        raise ArgumentError(f"set_printoptions: no profile {profile!r}", hint="default, short or full")
    print_options.update(PRINT_PROFILES.get(profile, {}))
    print_options.update({name: value for name, value in given.items() if value is not None})
    if sci_mode is not None or profile is not None:
        print_options["sci_mode"] = sci_mode


# ---------------------------------------------------------------- modes and random states

class set_grad_enabled:
    """Record operators for `backward` from now on, or not; as a context, until its end.

    >>> with tn.set_grad_enabled(False):
    ...     tn.is_grad_enabled()
    False
    """

    def __init__(self, mode: Any):
        self._token = recording_variable.set(bool(mode))

    def __enter__(self) -> None:
        """It is set already."""

    def __exit__(self, *_: object) -> None:
        recording_variable.reset(self._token)


def inference_mode(mode: Any = True) -> Any:
    """`no_grad()`; with False, `enable_grad()`."""
    return no_grad() if mode else enable_grad()


def get_default_dtype() -> DType:
    """What Python floats become: float32."""
    return float32


def set_default_dtype(d: Any) -> None:
    """Nothing for float32, which it is; raises ArgumentError for another one."""
    if as_dtype(d) is not float32:
        raise ArgumentError(f"set_default_dtype: Python floats become float32, not {as_dtype(d).name}",
                            why="captured graphs and remembered calls do not depend on a type for the whole process",
                            hint="net.double() or net.to(dtype), and dtype= where tensors are made")


set_default_tensor_type = set_default_dtype
float, int = float32, int32     # last: above they are Python's

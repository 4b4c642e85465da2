"""Names that PyTorch and NumPy have and Tenon has not -> how the same is written in Tenon.

Values are code (`x` is the tensor, `y` another one, `n` a number), or a sentence where there is nothing to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenon.errors import TenonError

NO_GPU = "there are no GPUs, only devices of the CPU: leave it out"
NO_SPARSE = "there are no sparse tensors"

TENSOR = {
    "squeeze_": "x = x.squeeze()", "unsqueeze_": "x = x.unsqueeze(0)", "t_": "x = x.T", "transpose_": "x = x.T",
    "cuda": NO_GPU, "xpu": NO_GPU, "pin_memory": NO_GPU, "share_memory_": NO_GPU,
    "get_device": "x.device",
    "grad_fn": "x.node",
    "itemsize": "x.dtype.bits // 8",
    "nbytes": "x.size * x.dtype.bits // 8",
    "strides": "x.numpy().strides", "data_ptr": "x.numpy().ctypes.data",
    "resize": "x.reshape(-1)", "resize_": "x.reshape(-1)", "flat": "x.reshape(-1)",
    "set_": "x.assign(y)",
    "fill": "x.assign(tn.full_like(x, n))",
    "bernoulli": "tn.bernoulli(x)",
    "narrow_copy": "x.narrow(1, 0, 2)", "msort": "x.sort(axis=0)",
    "ger": "tn.outer(x[0], y[0])",
    "indices": "x.argmax(axis=1), x.argsort(axis=1): max, min, sort and median give the values alone",
    "values": "x.max(axis=1) itself: max, min, sort and median give the values alone",
    "hsplit": "tn.split(x, 1, axis=1)", "vsplit": "tn.split(x, 1, axis=0)", "compress": "x[x > n]",
    "partition": "x.sort()", "argpartition": "x.argsort()", "tobytes": "x.numpy().tobytes()",
    "to_sparse": NO_SPARSE, "to_dense": NO_SPARSE,
}
MODULE = {
    "cuda": NO_GPU, "share_memory": NO_GPU, "compile": "tn.jit(net)",
}
TENON = {
    "array": "tn.tensor(x)",
    "compile": "tn.jit", "seed": "tn.manual_seed(n)", "promote_types": "tn.result_type(x, y)", "size": "x.size",
    "shape": "x.shape", "ndim": "x.ndim", "t": "x.T", "transpose_copy": "x.swapaxes(0, 1)", "detach": "x.detach()",
    "pinverse": "tn.linalg.pinv(x)", "ger": "tn.outer(x[0], y[0])",
    "range": "tn.arange(n)", "msort": "tn.sort(x, axis=0)", "trapz": "tn.trapezoid(x)",
    "bool_": "tn.bool",
}
NN = {
    "LazyLinear": "nn.Linear(3, 2)", "LazyConv2d": "nn.Conv2d(3, 2, 1)", "LazyBatchNorm2d": "nn.BatchNorm2d(3)",
    "SyncBatchNorm": "nn.BatchNorm2d(3)", "DataParallel": NO_GPU, "NLLLoss2d": "nn.NLLLoss()",
    "Buffer": "net.register_buffer('name', x)",
}
FUNCTIONAL = {
    "relu_": "x = F.relu(x)", "leaky_relu_": "x = F.leaky_relu(x)", "elu_": "x = F.elu(x)", "selu_": "x = F.selu(x)",
    "celu_": "x = F.celu(x)", "hardtanh_": "x = F.hardtanh(x)",
    "upsample_nearest": "F.interpolate(image, scale_factor=2)",
    "upsample_bilinear": "F.interpolate(image, scale_factor=2, mode='bilinear', align_corners=True)",
}


class MissingName(TenonError, AttributeError):
    """A name that Tenon does not have."""


def missing(owner: str, name: str, known: Mapping[str, str]) -> MissingName:
    """The error for a name that a module does not have."""
    return MissingName(f"module {owner!r} has no attribute {name!r}", hint=known.get(name))


class Absent:
    """A name in a class that is not there: who asks for it is told what to write.

    In the place of `__getattr__`, which would be asked by captures for every attribute of the class.
    """

    def __init__(self, name: str, hint: str):
        self.name, self.hint = name, hint

    def __get__(self, holder: Any, kind: type | None = None) -> Any:
        owner = kind or type(holder)
        raise MissingName(f"{owner.__name__!r} object has no attribute {self.name!r}", hint=self.hint)


class AbsentField(Absent):
    """One that cannot be assigned either."""

    def __set__(self, holder: Any, value: Any) -> None:
        self.__get__(holder)


def present(holder: object, names: Iterable[str]) -> list[str]:
    """The names of an attribute listing that are there."""
    kinds = type(holder).__mro__
    return [name for name in names if not any(isinstance(vars(kind).get(name), Absent) for kind in kinds)]

"""Names that PyTorch and NumPy have and Tenon has not -> how the same is written in Tenon.

Values are code (`x` is the tensor, `y` another one, `n` a number), or a sentence where there is nothing to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenon.errors import TenonError

ONE_DEVICE = "there is one device, the CPU: leave it out"
NO_SPARSE = "there are no sparse tensors"

IN_PLACE = ("add", "sub", "mul", "div", "pow", "clamp", "clip", "exp", "log", "sqrt", "abs", "neg", "relu", "sigmoid",
            "tanh", "masked_fill", "index_add", "index_copy", "index_fill", "scatter", "scatter_add", "round", "floor",
            "ceil", "lerp", "square", "reciprocal", "tril", "triu", "rsqrt", "trunc")
TENSOR = {f"{name}_": f"x.assign(x.{name}(...))" for name in IN_PLACE} | {
    "squeeze_": "x = x.squeeze()", "unsqueeze_": "x = x.unsqueeze(0)", "t_": "x = x.T", "transpose_": "x = x.T",
    "H": "x.mT.conj()", "mH": "x.mT.conj()", "adjoint": "x.mT.conj()",
    "cuda": ONE_DEVICE, "xpu": ONE_DEVICE, "pin_memory": ONE_DEVICE, "share_memory_": ONE_DEVICE,
    "is_cuda": "x.device", "is_cpu": "x.device", "get_device": "x.device",
    "data": "x.detach()", "grad_fn": "x.node", "retain_grad": "tn.grad(f)(x)", "register_hook": "tn.custom_vjp",
    "is_floating_point": "x.dtype.is_floating", "is_complex": "x.dtype.kind == 'c'", "itemsize": "x.dtype.bits // 8",
    "element_size": "x.dtype.bits // 8", "nbytes": "x.size * x.dtype.bits // 8", "nelement": "x.size",
    "ndimension": "x.ndim", "is_contiguous": "tensors are values: there is no order in memory to ask for",
    "stride": "x.numpy().strides", "strides": "x.numpy().strides", "data_ptr": "x.numpy().ctypes.data",
    "type_as": "x.astype(y.dtype)", "expand_as": "x.expand(y.shape)", "view_as": "x.reshape(y.shape)",
    "reshape_as": "x.reshape(y.shape)", "resize": "x.reshape(-1)", "resize_": "x.reshape(-1)", "flat": "x.reshape(-1)",
    "short": "x.astype(tn.int16)", "char": "x.astype(tn.int8)", "byte": "x.astype(tn.uint8)",
    "cfloat": "x.astype(tn.complex64)", "cdouble": "x.astype(tn.complex128)",
    "where": "tn.where(x > n, x, y)", "copy_": "x.assign(y)", "set_": "x.assign(y)",
    "fill_": "x.assign(tn.full_like(x, n))", "fill": "x.assign(tn.full_like(x, n))",
    "zero_": "x.assign(tn.zeros_like(x))", "detach_": "x.detach()",
    "normal_": "nn.init.normal_(x)", "uniform_": "nn.init.uniform_(x)",
    "new_zeros": "tn.zeros((2, 3), dtype=x.dtype)", "new_ones": "tn.ones((2, 3), dtype=x.dtype)",
    "new_full": "tn.full((2, 3), n, dtype=x.dtype)", "new_empty": "tn.empty((2, 3), dtype=x.dtype)",
    "new_tensor": "tn.tensor([n], dtype=x.dtype)", "index_put": "tn.setitem(x, 0, n)",
    "index_put_": "x[0] = n", "inverse": "tn.linalg.inv(x)", "pinverse": "tn.linalg.pinv(x)",
    "multinomial": "tn.multinomial(x, 1)", "bernoulli": "tn.bernoulli(x)", "bernoulli_": "tn.bernoulli(n, x.shape)",
    "take_along_dim": "x.take_along_axis(at, axis=1)", "narrow_copy": "x.narrow(1, 0, 2)", "msort": "x.sort(axis=0)",
    "clamp_min": "x.clip(n)", "clamp_max": "tn.minimum(x, n)", "ger": "tn.outer(x[0], y[0])",
    "hsplit": "tn.split(x, 1, axis=1)", "vsplit": "tn.split(x, 1, axis=0)", "compress": "x[x > n]",
    "partition": "x.sort()", "argpartition": "x.argsort()", "tobytes": "x.numpy().tobytes()",
    "to_sparse": NO_SPARSE, "to_dense": NO_SPARSE, "is_sparse": NO_SPARSE,
}
MODULE = {
    "cuda": ONE_DEVICE, "cpu": ONE_DEVICE, "share_memory": ONE_DEVICE, "compile": "tn.jit(net)",
    "add_module": "net.name = layer", "register_module": "net.name = layer",
    "get_submodule": "dict(net.named_modules())", "get_parameter": "dict(net.named_parameters())",
    "get_buffer": "dict(net.named_buffers())",
    "register_forward_hook": "a module around it, whose forward calls this one and does what the hook does",
}
TENON = {
    "as_tensor": "tn.asarray(x)", "from_numpy": "tn.tensor(x)", "array": "tn.tensor(x)",
    "is_tensor": "isinstance(x, tn.Tensor)", "compile": "tn.jit", "device": ONE_DEVICE, "cuda": ONE_DEVICE,
    "inference_mode": "tn.no_grad()", "set_grad_enabled": "tn.no_grad()",
    "get_rng_state": "tn.random.default_generator.get_state()", "initial_seed": "tn.manual_seed(n)",
    "seed": "tn.manual_seed(n)", "promote_types": "tn.result_type(x, y)", "numel": "x.size", "size": "x.size",
    "shape": "x.shape", "ndim": "x.ndim", "t": "x.T", "transpose_copy": "x.swapaxes(0, 1)", "detach": "x.detach()",
    "inverse": "tn.linalg.inv(x)", "pinverse": "tn.linalg.pinv(x)", "ger": "tn.outer(x[0], y[0])",
    "range": "tn.arange(n)", "msort": "tn.sort(x, axis=0)", "trapz": "tn.trapezoid(x)",
    "take_along_dim": "tn.take_along_axis(x, at, axis=1)", "is_floating_point": "x.dtype.is_floating",
    "is_complex": "x.dtype.kind == 'c'", "scalar_tensor": "tn.tensor(n)", "func": "tn.grad, tn.vmap, tn.vjp",
    "set_default_dtype": "pass dtype= where tensors are made", "get_default_dtype": "tn.float32",
    "clamp_min": "tn.clip(x, n)", "clamp_max": "tn.minimum(x, n)", "Size": "tuple(x.shape)",
    "float": "tn.float32", "double": "tn.float64", "half": "tn.float16", "long": "tn.int64", "int": "tn.int32",
    "short": "tn.int16", "cfloat": "tn.complex64", "cdouble": "tn.complex128", "bool_": "tn.bool",
    "FloatTensor": "tn.tensor([n], dtype=tn.float32)", "LongTensor": "tn.tensor([1], dtype=tn.int64)",
    "DoubleTensor": "tn.tensor([n], dtype=tn.float64)", "BoolTensor": "tn.tensor([True])",
    "IntTensor": "tn.tensor([1], dtype=tn.int32)", "set_rng_state": "tn.random.default_generator.set_state(state)",
}
NN = {
    "LazyLinear": "nn.Linear(3, 2)", "LazyConv2d": "nn.Conv2d(3, 2, 1)", "LazyBatchNorm2d": "nn.BatchNorm2d(3)",
    "SyncBatchNorm": "nn.BatchNorm2d(3)", "DataParallel": ONE_DEVICE, "NLLLoss2d": "nn.NLLLoss()",
    "UpsamplingNearest2d": "nn.Upsample(scale_factor=2)", "Buffer": "net.register_buffer('name', x)",
    "UpsamplingBilinear2d": "nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)",
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

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
    "cuda": NO_GPU, "xpu": NO_GPU, "pin_memory": NO_GPU, "share_memory_": NO_GPU,
    "grad_fn": "x.node",
    "strides": "x.numpy().strides", "data_ptr": "x.numpy().ctypes.data",
    "resize": "x.reshape(-1)", "resize_": "x.reshape(-1)", "flat": "x.reshape(-1)",
    "set_": "x.assign(y)",
    "fill": "x.assign(tn.full_like(x, n))",
    "indices": "x.argmax(axis=1), x.argsort(axis=1): max, min, sort and median give the values alone",
    "compress": "x[x > n]",
    "partition": "x.sort()", "argpartition": "x.argsort()", "tobytes": "x.numpy().tobytes()",
    "to_sparse": NO_SPARSE, "to_dense": NO_SPARSE,
}
MODULE = {
    "cuda": NO_GPU, "share_memory": "processes share no memory: send them net.state_dict()", "compile": "tn.jit(net)",
}
TENON = {
    "array": "tn.tensor(x)",
    "size": "x.size", "shape": "x.shape", "ndim": "x.ndim", "transpose_copy": "x.swapaxes(0, 1)",
    "range": "tn.arange(n)",
    "bool_": "tn.bool", "sparse": NO_SPARSE, "sparse_coo_tensor": NO_SPARSE, "sparse_csr_tensor": NO_SPARSE,
}
NN = {
    "SyncBatchNorm": "nn.BatchNorm2d(3)",
}
FUNCTIONAL: dict[str, str] = {}
NO_LDL = "symmetric systems are solved as others: tn.linalg.solve(x, y); tn.linalg.cholesky_solve for positive ones"
LINALG = {"ldl_factor": NO_LDL, "ldl_factor_ex": NO_LDL, "ldl_solve": NO_LDL}


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

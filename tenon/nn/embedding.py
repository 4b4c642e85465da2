"""Embedding: a learned vector for every index."""

from __future__ import annotations

from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError, ShapeError
from tenon.nn import init
from tenon.nn.module import Module, Parameter
from tenon.ops.comparison import where
from tenon.ops.creation import arange, empty, zeros
from tenon.ops.embedding_bag import embedding_bag
from tenon.ops.getitem import setitem
from tenon.ops.joining_and_axes import expand_dims, ravel
from tenon.ops.linear_layers import embedding
from tenon.ops.reduction import vector_norm
from tenon.ops.searching import bincount
from tenon.transforms.custom_gradient import custom_vjp

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """The rows of `weight` [num_embeddings, embedding_dim] at integer indices of any shape.

    Starts normal with deviation 1; the row `padding_idx` starts at 0 and gets no gradient.

    >>> nn.Embedding(10, 4)(tn.tensor([[1, 2, 9]])).shape
    (1, 3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 sparse: bool = False, _weight: Any = None, _freeze: bool = False, device: Any = None,
                 dtype: Any = "float32"):
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(f"Embedding: padding_idx {padding_idx} is not one of {num_embeddings} indices")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx if padding_idx is None or padding_idx >= 0 else padding_idx + num_embeddings
        self.max_norm, self.norm_type = None if max_norm is None else float(max_norm), norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if _weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype), not _freeze)
            self.reset_parameters()
        elif _weight.shape != (num_embeddings, embedding_dim):
            raise ShapeError(f"Embedding: {num_embeddings} rows of {embedding_dim} were expected, not {_weight.type}")
        else:
            self.weight = Parameter(_weight, not _freeze)
        self._place(device)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None,
                        **options: Any) -> Embedding:
        """An embedding with these rows, which are not trained unless `freeze=False`."""
        rows, columns = map(int, embeddings.shape)
        layer = cls(rows, columns, padding_idx=padding_idx, dtype=embeddings.dtype, **options)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, x: Any) -> Any:
        return rows_of(x, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


def rows_of(x: Any, weight: Any, padding_idx: int | None, max_norm: float | None, norm_type: float,
            scale_grad_by_freq: bool) -> Any:
    """The rows at indices, those longer than `max_norm` scaled down to it in `weight`.

    With `scale_grad_by_freq` the gradient of a row is divided by how often its index occurs.
    """
    if max_norm is not None:
        with no_grad():
            weight.assign(_shortened(x, weight, max_norm, norm_type))
    rows = embedding(x, weight, padding_idx=padding_idx)
    if not scale_grad_by_freq:
        return rows
    times = expand_dims(bincount(ravel(x), length=weight.shape[0])[x], -1)
    return _with_gradient_divided(rows, times.astype(rows.dtype))


@custom_vjp
def _with_gradient_divided(x: Any, by: Any) -> Any:
    return x


_with_gradient_divided.defvjp(lambda x, by: (x, by), lambda by, gradient: (gradient / by, None))


def _shortened(x: Any, weight: Any, max_norm: float, norm_type: float) -> Any:
    """The weight with the rows that are read, and are longer than `max_norm`, scaled down to it."""
    length = vector_norm(weight, ord=norm_type, axis=-1, keepdims=True)
    read = setitem(zeros(weight.shape[0], 1, dtype="bool"), ravel(x), True)
    return weight * where(read & (length > max_norm), max_norm / (length + 1e-7), 1.0)


def rows_of_bags(input: Any, weight: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                 per_sample_weights: Any = None, include_last_offset: bool = False,
                 padding_idx: int | None = None) -> Any:
    """`tn.embedding_bag`, its arguments in PyTorch's order; the rows are read as `embedding` reads them.

    Raises ArgumentError for `scale_grad_by_freq` with `padding_idx`.
    """
    if scale_grad_by_freq and padding_idx is not None:
        raise ArgumentError("embedding_bag: scale_grad_by_freq=True takes no padding_idx")
    if max_norm is not None or scale_grad_by_freq:
        rows = rows_of(ravel(input), weight, None, max_norm, norm_type, scale_grad_by_freq)
        if scale_grad_by_freq:
            input, weight = arange(input.size).reshape(input.shape), rows
    return embedding_bag(input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx)


class EmbeddingBag(Embedding):
    """The sum, mean or maximum of the rows of `weight` that each bag of indices names: see `tn.embedding_bag`.

    >>> nn.EmbeddingBag(10, 4)(tn.tensor([1, 2, 9]), tn.tensor([0, 2])).shape
    (2, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                 _weight: Any = None, include_last_offset: bool = False, padding_idx: int | None = None,
                 device: Any = None, dtype: Any = "float32"):
        if isinstance(max_norm, str):
            raise ArgumentError(f"EmbeddingBag: max_norm={max_norm!r} is no number", hint=f"mode={max_norm!r}")
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
                         _weight=_weight, device=device, dtype=dtype)
        self.mode, self.include_last_offset = mode, include_last_offset
        self._place(device)

    def forward(self, x: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return rows_of_bags(x, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
                            False, per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"

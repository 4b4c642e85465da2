"""Embedding: a learned vector for every index."""

from __future__ import annotations

from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.nn import init
from tenon.nn.module import Module, Parameter
from tenon.ops.creation import empty
from tenon.ops.embedding_bag import embedding_bag
from tenon.ops.linear_layers import embedding

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """The rows of `weight` [num_embeddings, embedding_dim] at integer indices of any shape.

    Starts normal with deviation 1; the row `padding_idx` starts at 0 and gets no gradient.

    >>> nn.Embedding(10, 4)(tn.tensor([[1, 2, 9]])).shape
    (1, 3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 dtype: Any = "float32", sparse: bool = False):
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(f"Embedding: padding_idx {padding_idx} is not one of {num_embeddings} indices")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx if padding_idx is None or padding_idx >= 0 else padding_idx + num_embeddings
        self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype))
        self.reset_parameters()

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """An embedding with these rows, which are not trained unless `freeze=False`."""
        rows, columns = map(int, embeddings.shape)
        layer = cls(rows, columns, padding_idx, embeddings.dtype)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, x: Any) -> Any:
        return embedding(x, self.weight, padding_idx=self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Embedding):
    """The sum, mean or maximum of the rows of `weight` that each bag of indices names: see `tn.embedding_bag`.

    >>> nn.EmbeddingBag(10, 4)(tn.tensor([1, 2, 9]), tn.tensor([0, 2])).shape
    (2, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, mode: str = "mean", include_last_offset: bool = False,
                 padding_idx: int | None = None, dtype: Any = "float32", sparse: bool = False):
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, x: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return embedding_bag(x, self.weight, offsets, self.mode, per_sample_weights, self.include_last_offset,
                             self.padding_idx)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"

"""The sizes of a transformer: what a planner has to know of a model that nobody has the memory to make."""

from __future__ import annotations

from tenon.errors import ArgumentError
from tenon.models.gpt2 import GPT2Config
from tenon.records import dataclass, replace
from tenon.types import as_dtype


@dataclass(frozen=True)
class TransformerModel:
    """A decoder like GPT-2: `layers` of causal attention with `heads` and a network of two layers, `inner` wide, in
    `dtype`; `batch` texts of `tokens` tokens are one step.

    Raises ArgumentError for sizes that are no positive whole numbers, or heads that do not divide the width.

    >>> from tenon.planning.transformer_model import TransformerModel
    >>> gpt3 = TransformerModel(layers=96, width=12288, heads=96, vocabulary=51200, batch=1536)
    >>> f"{gpt3.parameters / 1e9:.1f} billion parameters, {gpt3.operations() / 1e18:.1f} EFLOP a step"
    '174.6 billion parameters, 3.4 EFLOP a step'
    """

    layers: int
    width: int
    heads: int
    vocabulary: int = 51200
    tokens: int = 2048
    batch: int = 512
    inner: int | None = None
    dtype: str = "float16"
    dropout: float = 0.0

    def checked(self) -> TransformerModel:
        """The model, if it can be: with its `dtype` under one name."""
        for name in ("layers", "width", "heads", "vocabulary", "tokens", "batch", "inner"):
            size = getattr(self, name)
            if not (name == "inner" and size is None) and (type(size) is not int or size < 1):
                raise ArgumentError(f"TransformerModel: {name} is a whole number from 1 on, not {size!r}")
        if self.width % self.heads:
            raise ArgumentError(f"TransformerModel: {self.heads} heads do not divide a width of {self.width}")
        if not as_dtype(self.dtype).is_floating:
            raise ArgumentError(f"TransformerModel: dtype is a floating type, not {self.dtype!r}")
        return replace(self, dtype=as_dtype(self.dtype).name)

    @property
    def config(self) -> GPT2Config:
        """The configuration of Tenon's own model of these sizes."""
        return GPT2Config(self.vocabulary, self.tokens, self.width, self.layers, self.heads, self.inner)

    @property
    def parameters(self) -> int:
        """How many there are; the last product has the weights of the embedding."""
        inner = self.inner or 4 * self.width
        layer = 4 * self.width ** 2 + 2 * self.width * inner + 9 * self.width + inner
        return self.layers * layer + (self.vocabulary + self.tokens + 2) * self.width

    def operations(self, recomputed: bool = False) -> float:
        """Floating-point operations of a step, in products of matrices: forward once, and twice as many backward.

        `recomputed` counts the layers' forward part twice, as the throughputs of arXiv 2104.04473 (appendix) do.
        """
        inner, tokens = self.inner or 4 * self.width, self.batch * self.tokens
        layer = 2 * tokens * (4 * self.width ** 2 + 2 * self.width * inner + 2 * self.tokens * self.width)
        return (4 if recomputed else 3) * self.layers * layer + 6.0 * tokens * self.width * self.vocabulary

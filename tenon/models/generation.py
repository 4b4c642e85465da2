"""Text that a decoder writes: greedily, drawn from its likeliest tokens, or by a beam; one loop of one graph.

A model has `new_caches(count, length)`, and gives scores of the next token for first tokens, `model(ids, caches)`, and
for one more, `model(ids, caches, at)`; see `tenon.models.kv_cache`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tenon.capture.while_scan import while_loop
from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError, ShapeError
from tenon.jit import jit
from tenon.models.beam import beam_search
from tenon.ops.activations import softmax
from tenon.ops.comparison import logical_or, where
from tenon.ops.creation import full
from tenon.ops.cumulative import cumsum
from tenon.ops.joining_and_axes import concat
from tenon.ops.ordering import sort, topk
from tenon.ops.reduction import argmax
from tenon.random import categorical
from tenon.records import dataclass
from tenon.types import int64


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen."""

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def check(self) -> None:
        """Raise ArgumentError for a number that is out of range."""
        if self.temperature <= 0:
            raise ArgumentError(f"generate: temperature must be above 0, got {self.temperature}",
                                hint="do_sample=False takes the likeliest token")
        if self.top_k is not None and self.top_k < 1:
            raise ArgumentError(f"generate: top_k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ArgumentError(f"generate: top_p must lie above 0 and up to 1, got {self.top_p}")

    def token(self, scores: Any) -> Any:
        """A token [N] for scores [N, vocabulary]."""
        if not self.do_sample:
            return argmax(scores, axis=-1)
        return categorical(self.kept(scores))

    def kept(self, scores: Any) -> Any:
        """The scores, those of tokens that are not to be drawn -inf."""
        scores = scores / self.temperature
        if self.top_k is not None and not (isinstance(scores.shape[-1], int) and self.top_k >= scores.shape[-1]):
            least = topk(scores, self.top_k)[0][..., -1:]
            scores = where(scores < least, -math.inf, scores)
        if self.top_p is not None and self.top_p < 1:
            falling = sort(scores, axis=-1, descending=True)
            before = cumsum(softmax(falling, axis=-1), axis=-1) - softmax(falling, axis=-1)
            least = where(before < self.top_p, falling, math.inf).min(axis=-1, keepdims=True)
            scores = where(scores < least, -math.inf, scores)
        return scores


def generate(model: Any, input_ids: Any, max_new_tokens: int = 20, *, do_sample: bool = False, temperature: float = 1.0,
             top_k: int | None = None, top_p: float | None = None, num_beams: int = 1,
             eos_token_id: int | None = None, pad_token_id: int | None = None, length_penalty: float = 1.0) -> Any:
    """The tokens [N, T] and those that the model writes after them: [N, T + max_new_tokens].

    The likeliest token, or with `do_sample` one drawn with the model's probabilities, of the `top_k` likeliest or of
    the fewest whose probabilities reach `top_p`; with `num_beams` the likeliest text that so many beams find.  After
    `eos_token_id` follows `pad_token_id`, or the same again.  One graph is captured for each shape and choice.

    >>> _ = tn.manual_seed(0)
    >>> model = tn.models.GPT2(vocab_size=11, n_positions=8, n_embd=6, n_layer=1, n_head=2).eval()
    >>> tn.models.generate(model, tn.tensor([[1, 2, 3]]), max_new_tokens=4).shape
    (1, 7)
    """
    choice = Choice(do_sample, temperature, top_k, top_p)
    _check(input_ids, max_new_tokens, choice)
    if num_beams < 1 or (num_beams > 1 and do_sample):
        raise ArgumentError(f"generate: num_beams={num_beams} with do_sample={do_sample}",
                            hint="beams take the likeliest tokens: do_sample=False")
    pad = eos_token_id if pad_token_id is None else pad_token_id
    with no_grad():
        if num_beams > 1:
            return _beams(model, input_ids, max_new_tokens, num_beams, eos_token_id, pad, float(length_penalty))
        return _written(model, input_ids, max_new_tokens, choice, eos_token_id, pad)


def _check(ids: Any, count: int, choice: Choice) -> None:
    choice.check()
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or (isinstance(ids.shape[1], int) and ids.shape[1] < 1):
        raise ShapeError(f"generate: tokens are integers [N, T] with T at least 1, not {ids.type}")
    if count < 1:
        raise ArgumentError(f"generate: max_new_tokens must be at least 1, got {count}")


@jit
def _written(model: Any, ids: Any, count: int, choice: Choice, end: int | None, pad: int | None) -> Any:
    texts, start = ids.shape
    caches = model.new_caches(texts, start + count)
    token = choice.token(model(ids, caches)[:, -1])
    text = concat([ids.astype(int64), full((texts, count), 0 if pad is None else pad, dtype=int64)], axis=1)
    text[:, start] = token
    ended = token == end if end is not None else full((texts,), False, dtype=bool)

    def goes_on(state: Any) -> Any:
        return (state[0] + 1 < start + count) & ~state[3].all()

    def iteration(state: Any) -> Any:
        at, token, text, ended, caches = state
        new = choice.token(model(token[:, None], caches, at)[:, -1])
        if end is not None:
            new = where(ended, pad, new)
            ended = logical_or(ended, new == end)
        text[:, at + 1] = new
        return at + 1, new, text, ended, caches
    return while_loop(goes_on, iteration, (full((), start, dtype=int64), token, text, ended, caches))[2]


@jit
def _beams(model: Any, ids: Any, count: int, beams: int, end: int | None, pad: int | None, penalty: float) -> Any:
    return beam_search(model, ids, count, beams, end, pad, penalty)


def stream(model: Any, input_ids: Any, max_new_tokens: int = 20, *, do_sample: bool = False, temperature: float = 1.0,
           top_k: int | None = None, top_p: float | None = None, eos_token_id: int | None = None) -> Iterator[Any]:
    """The tokens that the model writes, each [N] as soon as it is chosen, until all texts have had `eos_token_id`.

    >>> model = tn.models.GPT2(vocab_size=11, n_positions=8, n_embd=6, n_layer=1, n_head=2).eval()
    >>> len(list(tn.models.stream(model, tn.tensor([[1, 2, 3]]), max_new_tokens=4)))
    4
    """
    choice = Choice(do_sample, temperature, top_k, top_p)
    _check(input_ids, max_new_tokens, choice)
    texts, start = input_ids.shape
    ended: Any = full((texts,), False, dtype=bool)
    with no_grad():
        token, caches = _first(model, input_ids, start + max_new_tokens, choice)
    for at in range(start, start + max_new_tokens):
        yield token
        if eos_token_id is not None:
            ended = logical_or(ended, token == eos_token_id)
            if bool(ended.all()):
                return
        if at + 1 < start + max_new_tokens:
            with no_grad():
                token, caches = _next(model, token, caches, full((), at, dtype=int64), choice)


@jit
def _first(model: Any, ids: Any, length: int, choice: Choice) -> Any:
    caches = model.new_caches(ids.shape[0], length)
    return choice.token(model(ids, caches)[:, -1]), caches


@jit
def _next(model: Any, token: Any, caches: Any, at: Any, choice: Choice) -> Any:
    caches = list(caches)
    return choice.token(model(token[:, None], caches, at)[:, -1]), caches

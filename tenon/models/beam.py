"""Beam search: the texts that are likeliest so far go on; those that have ended are kept, the best of them.

As many texts as there are beams go on at any time.  A text that ended is judged by its log probability divided by a
power of its length, and the search ends when none that goes on can be better than those.
"""

from __future__ import annotations

from typing import Any

from tenon.capture.while_scan import while_loop
from tenon.ops.activations import log_softmax
from tenon.ops.comparison import where
from tenon.ops.creation import arange, full
from tenon.ops.indexing import take, take_along_axis
from tenon.ops.joining_and_axes import concat, reshape
from tenon.ops.ordering import topk
from tenon.ops.repeating import repeat
from tenon.types import float32, int64

NEVER = -1e9            # the score of what there is not


def beam_search(model: Any, ids: Any, count: int, beams: int, end: int | None, pad: int | None, penalty: float) -> Any:
    """The best text [N, T + count] for each of the first tokens [N, T]."""
    texts, start = ids.shape
    caches = model.new_caches(texts * beams, start + count)
    prompt = repeat(ids.astype(int64), beams, axis=0)
    scores = model(prompt, caches)[:, -1]
    running = concat([full((texts, 1), 0.0), full((texts, beams - 1), NEVER)], axis=1)     # at first all are alike
    text = concat([prompt, full((texts * beams, count), 0 if pad is None else pad, dtype=int64)], axis=1)
    text = reshape(text, (texts, beams, start + count))
    done, finished = text, full((texts, beams), NEVER)
    state = _iteration(full((), start, dtype=int64), scores, running, text, done, finished, start, end, penalty)
    at, running, text, done, finished, order = state

    def goes_on(state: Any) -> Any:
        at, running, _, _, finished, _, _ = state
        best = running.max(axis=1) / _length(at - start if penalty <= 0 else at * 0 + count, penalty)
        return (at < start + count) & (best > finished.min(axis=1)).any()

    def iteration(state: Any) -> Any:
        at, running, text, done, finished, order, caches = state
        caches = [(take(k, order, axis=0), take(v, order, axis=0)) for k, v in caches]
        last = take_along_axis(text, full((texts, beams, 1), 0, dtype=int64) + (at - 1), axis=2)
        scores = model(reshape(last, (texts * beams, 1)), caches, at - 1)[:, -1]
        at, running, text, done, finished, order = _iteration(
            at, scores, running, text, done, finished, start, end, penalty)
        return at, running, text, done, finished, order, caches
    at, running, text, done, finished, _, _ = while_loop(
        goes_on, iteration, (at, running, text, done, finished, order, caches))
    open_scores = where(at < start + count, NEVER, running / _length(at - start, penalty))
    every, all_texts = concat([finished, open_scores], axis=1), concat([done, text], axis=1)
    best = every.argmax(axis=1)
    return _chosen(all_texts, best[:, None])[:, 0]


def _length(n: Any, penalty: float) -> Any:
    return n.astype(float32) ** penalty


def _iteration(at: Any, scores: Any, running: Any, text: Any, done: Any, finished: Any, start: int, end: int | None,
          penalty: float) -> tuple[Any, ...]:
    """One more token for each beam, and where in the batch the caches of the new beams are."""
    texts, beams = running.shape
    vocabulary = scores.shape[-1]
    total = reshape(log_softmax(scores.astype(float32), axis=-1), (texts, beams, vocabulary)) + running[:, :, None]
    many = 2 * beams
    found, place = topk(reshape(total, (texts, beams * vocabulary)), many)      # enough, if a beam's worth of them end
    origin, token = place // vocabulary, place % vocabulary
    longer = _chosen(text, origin)
    longer[:, :, at] = token
    ends = token == end if end is not None else full((texts, many), False, dtype=bool)
    # those that end, among the first of as many as there are beams
    counted = arange(many) < beams
    ended = where(ends & counted, found / _length(at - start + 1, penalty), NEVER)
    finished, best = topk(concat([finished, ended], axis=1), beams)
    done = _chosen(concat([done, longer], axis=1), best)
    running, going = topk(where(ends, NEVER, found), beams)
    text, origin = _chosen(longer, going), take_along_axis(origin, going, axis=1)
    order = reshape(origin + arange(texts)[:, None] * beams, (texts * beams,))
    return at + 1, running, text, done, finished, order


def _chosen(texts: Any, which: Any) -> Any:
    """The texts [N, K, T] of [N, M, T] that are named by [N, K]."""
    return take_along_axis(texts, which[:, :, None] + full((1, 1, texts.shape[2]), 0, dtype=int64), axis=1)




"""An operator or a public function, called as it was called before -> NumPy calls in a row, with a gradient or without.

    x[0], x.sum(axis=1), tn.cross_entropy(scores, labels)   # what Python does to find out which NumPy calls these are
                                                            # is done once
Calls are equal where tensors have the same shapes and element types, the same of them want a gradient, and everything
else is the same plain data.  A call that has been seen before is recorded as a recipe (`record_call.py`); where it is
differentiable it leaves one node on the tape, with a recipe for its gradient (`cached_call_node.py`).  Where a call is
captured, batched or cast, or has arguments that are no plain data, it is made in full.  So it is where NumPy raises:
the full call knows what to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tenon.autocast import autocasting
from tenon.eager.cached_call_node import CachedRule, CallNode
from tenon.eager.call_table import CALL, MAX_CALLS, cached_calls, describe
from tenon.eager.errstate import quiet
from tenon.eager.grad_mode import recording
from tenon.eager.record_call import Remembered, remember, with_tensors
from tenon.eager.tape import NUMBERS, TapeNode, linked, places_apart, put_apart, recorded_since
from tenon.errors import OF_NUMPY, TenonError
from tenon.graph.kernels import KERNELS
from tenon.graph.op import Full, Op, using
from tenon.tensor import Tensor, fresh
from tenon.tensor_state import Elsewhere, TensorState

_new: Callable[[type[Tensor]], Tensor] = object.__new__
TIMES = {True: 3, False: 2}     # the call that is recorded: of an operator, which functions call; of others


class ReadyCall:
    """What machine code needs of a call: of one tensor, a new one, or of several of which none has a gradient."""

    __slots__ = ("attrs", "called", "function", "held", "kind", "places", "quiet", "rule", "several")

    def __init__(self, known: Remembered, held: tuple[Any, ...], tensors: int):
        rule, function = known.rule, known.function
        self.function, self.quiet = (known.recipe.call, False) if function is None else (function, True)
        self.several, self.kind, self.rule = known.several, known.kind, rule
        self.held = held                # what the key has the addresses of
        self.called: Any = None if rule is None else rule.op or rule
        self.places = tuple(range(tensors)) if rule is None or rule.op is None else rule.inputs
        self.attrs = rule.attrs if rule is not None and rule.op is not None else None


class ReadyCalls:
    """The calls that machine code makes (`native_fast_path.py`), by what it knows them by."""

    def __init__(self) -> None:
        self.known: dict[bytes, ReadyCall] = cached_calls.native
        self.key: Callable[[Any, Any, Any], bytes | None] | None = None     # where there is machine code
        self.count: Callable[[], None] | None = None            # where somebody counts the calls in Python

    def add(self, known: Remembered, call: tuple[Any, ...], args: tuple[Any, ...], keywords: Mapping[str, Any],
            tensors: int) -> None:
        """Let machine code make such calls from now on."""
        if self.count is not None:
            self.count()
        usual = known.simple or (known.rule is None and all(k is None for k in known.given))
        if self.key is not None and usual and (key := self.key(call[1], args, keywords)) is not None:
            if len(self.known) >= MAX_CALLS:
                self.known.clear()
            self.known[key] = ReadyCall(known, call, tensors)


ready_calls = ReadyCalls()


def remembered_call(target: Any, full: Full, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """What the operator or function returns; `full(args, keywords)` calls it."""
    if KERNELS or autocasting() is not None:
        return full(args, keywords)
    tensors: list[Tensor] = []
    arrays: list[Any] = []
    key: list[Any] = [CALL, target, recording(), len(args)]       # a pair is no argument with its name
    if not (describe(args, key, tensors, arrays)
            and (not keywords or describe(keywords.items(), key, tensors, arrays))):
        away = _away((args, tuple(keywords.values())))
        if away is None:
            return full(args, keywords)
        with using(away.interpreter):       # a function's own constants lie beside its tensors
            return full(args, keywords)
    known = cached_calls.get(call := tuple(key))
    if type(known) is not Remembered:
        result = recorded_apart(target, full, args, keywords, tensors)
        cached_calls.note(call, TIMES[type(target) is Op],
                          lambda: remember(target, full, args, keywords, tensors, result))
        return result
    ready_calls.add(known, call, args, keywords, len(tensors))
    try:
        out = known.recipe.call(*arrays) if known.function is None else quiet.run(known.function, *arrays)
    except (TenonError, *OF_NUMPY):
        return full(args, keywords)
    rule = known.rule
    if known.simple:
        found = _new(Tensor)
        if rule is None:
            found.own = TensorState(out)
        else:
            payload, kept = (out[0], out[1:]) if known.several else (out, ())
            node = CallNode(rule, rule.inputs_of(tensors), (payload,), tuple(arrays), kept)
            found.own = TensorState(payload, True, None, node)
        return found
    row = out if known.several else (out,)
    listed = _plain(known, row, tensors) if rule is None else _recorded(known, rule, row, tensors, arrays)
    return listed[0] if known.kind is None else known.kind(listed)


def recorded_apart(target: Any, full: Full, args: tuple[Any, ...], keywords: Mapping[str, Any],
                   tensors: list[Tensor]) -> Any:
    """A call in full, as one that is remembered: what its operators give to an input is summed before anything else.

    Sums of three numbers depend on their order.
    """
    wanted = Counter(x.slot for x in tensors if x.own.requires_grad)
    if not wanted or not recording() or (type(target) is Op and target.vjp is not None):
        return full(args, keywords)
    if max(wanted.values()) > 1:        # a tensor given twice: each place has a sum of its own
        apart = places_apart(tensors)
        rest = iter(apart)
        found = full(with_tensors(args, rest), dict(with_tensors(tuple(keywords.items()), rest)))
        return _given_back(found, dict(zip(map(id, apart), tensors, strict=True)))
    first = next(NUMBERS)
    result = full(args, keywords)
    uses: dict[Any, list[tuple[TapeNode, int]]] = {slot: [] for slot, times in wanted.items() if times == 1}
    for node in recorded_since(first, result if type(result) in (tuple, list) else (result,)):
        for k, x in enumerate(node.inputs):
            if isinstance(x, Tensor) and (found := uses.get(x.slot)) is not None:
                found.append((node, k))
    for places in uses.values():
        if len(places) > 1:
            node, k = places[0]
            put_apart(node.inputs[k], first, places)
    return result


def _given_back(result: Any, given: Mapping[int, Tensor]) -> Any:
    """What a call returns, with the tensors that it was given in the place of those that stood for them."""
    if type(result) in (tuple, list):
        return type(result)(_given_back(x, given) for x in result)
    return given.get(id(result), result)


def _plain(known: Remembered, row: tuple[Any, ...], tensors: list[Tensor]) -> list[Tensor]:
    return [fresh(a) if k is None else tensors[k] for a, k in zip(row, known.given, strict=True)]


def _recorded(known: Remembered, rule: CachedRule, row: tuple[Any, ...], tensors: list[Tensor],
              arrays: list[Any]) -> list[Tensor]:
    """The results of a call, its node on the tape."""
    count = len(known.given)
    payloads = tuple([a for a, k in zip(row, known.given, strict=False) if k is None])
    node = CallNode(rule, rule.inputs_of(tensors), payloads, tuple(arrays), row[count:])
    made = iter([linked(y, node, k) if end else fresh(y)
                 for k, (y, end) in enumerate(zip(payloads, rule.ends, strict=True))])
    return [next(made) if k is None else tensors[k] for k in known.given]


def _away(x: Any) -> Elsewhere | None:
    """The payload of the first tensor among arguments that has no array, and lies elsewhere."""
    if isinstance(x, Tensor):
        payload = x.payload
        return payload if isinstance(payload, Elsewhere) else None
    if isinstance(x, (tuple, list)):
        return next((found for y in x if (found := _away(y)) is not None), None)
    return None

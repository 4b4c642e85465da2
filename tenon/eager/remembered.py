"""An operator or a public function, called as it was called before -> NumPy calls in a row, with a gradient or without.

    x[0], x.sum(axis=1), tn.cross_entropy(scores, labels)   # what Python does to find out which NumPy calls these are
                                                            # is done once
Calls are equal where tensors have the same shapes and element types, the same of them want a gradient, and everything
else is the same plain data.  A call that has been seen before is recorded as a recipe; where it is differentiable it
leaves one node on the tape, with a recipe for its gradient.  Where a call is captured, batched or cast, or has
arguments that are no plain data, it is made in full.  So it is where NumPy raises: the full call knows what to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import repeat
from typing import Any

import numpy as np

from tenon.autocast import autocasting
from tenon.autodiff import backward
from tenon.dataclasses import dataclass
from tenon.eager.derived import Derived, derive
from tenon.eager.quiet import quiet
from tenon.eager.recipes import Recipe, recipe_of
from tenon.eager.recording import recording, recording_is
from tenon.eager.tape import Fork, TapeNode, fork, linked, saved_as
from tenon.errors import OF_NUMPY, TenonError
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Value
from tenon.graph.kernels import KERNELS
from tenon.graph.op import Full, Op, current, using
from tenon.state import TensorState, recorder
from tenon.tensor import Tensor, fresh
from tenon.types import DType, TensorType, as_dtype

_new: Callable[[type[Tensor]], Tensor] = object.__new__
PLAIN = frozenset((bool, int, str, type(None), DType, type(Ellipsis)))      # equal where they compare so
MOST_CALLS = 8192
TIMES = {True: 3, False: 2}     # the call that is recorded: of an operator, which functions call; of others


@dataclass(frozen=True, eq=False)
class Remembered:
    """A call: the recipe, and what is made of its results."""

    recipe: Recipe
    function: Callable[..., Any] | None         # the recipe's, where it may run quietly
    several: bool                       # results of the recipe
    given: tuple[int | None, ...]       # the tensor that a result is, where it is one of those given
    kind: type | None                   # of the sequence of results; None for one tensor
    simple: bool                        # one tensor, a new one; with a gradient, where there is a rule
    rule: Rule | None                   # what the tape holds


@dataclass(eq=False, slots=True)
class Rule:
    """What recorded calls that are equal have in common; on the tape of a call of several operators, the operator."""

    name: str
    derived: Derived
    late: Callable[..., Any]            # the function of the gradients' recipe, as machine code calls it
    op: Op | None                       # where the call is that of one operator
    inputs: tuple[Any, ...]             # of the operator: the place of a tensor among those given, a literal, or None
    attrs: Mapping[str, Any]
    wanted: tuple[int, ...]             # the inputs of the node that get a gradient
    ends: tuple[bool, ...]              # whether a gradient flows to a result that is not given
    again: Callable[[list[Tensor]], Any]        # the call on other tensors, in full

    def vjp(self, g: Any, y: Any, *inputs: Tensor, kept: tuple[Any, ...]) -> list[Tensor | None]:
        """The gradients of the inputs: by the recipe, or, where they are recorded, by calling the function again."""
        seeds = [s for s, end in zip(g if isinstance(g, tuple) else (g,), self.ends, strict=True) if end]
        if recording() or current() is not None or recorder.get() is not None:
            return _replayed(self, seeds, inputs)
        outputs = y if isinstance(y, tuple) else (y,)
        with np.errstate(all="ignore"):
            out = self.derived.pulled([s.own.payload for s in seeds], [x.own.payload for x in outputs],
                                      [x.own.payload for x in inputs], kept)
        if out is None:
            return _replayed(self, seeds, inputs)
        found: list[Tensor | None] = [None] * len(inputs)
        for k, array in zip(self.wanted, out, strict=True):
            found[k] = fresh(array)
        return found


class CallNode(TapeNode):
    """A recorded call that was remembered: what it keeps, and who knows its gradient."""

    __slots__ = ("arrays", "kept", "rule")

    def __init__(self, rule: Rule, inputs: tuple[Any, ...], payloads: tuple[Any, ...], arrays: tuple[Any, ...],
                 kept: tuple[Any, ...]):
        if rule.op is None:
            TapeNode.__init__(self, rule, inputs, {"kept": kept}, payloads)
        else:
            TapeNode.__init__(self, rule.op, inputs, rule.attrs, payloads)
        self.rule, self.arrays, self.kept = rule, arrays, kept

    def release(self) -> None:
        """Let go of inputs and outputs; the node cannot be differentiated any more."""
        super().release()
        self.arrays, self.kept = (), ()

    def pulled(self, seeds: Sequence[Any]) -> list[tuple[Any, Any]] | None:
        """(an input, its gradient) for all that want one, given those of the outputs or None; on arrays."""
        given = []
        for g, y, end in zip(seeds, self.payloads, self.rule.ends, strict=True):
            if end:
                if g is not None and g.dtype is not y.dtype:
                    return None
                given.append(np.zeros_like(y) if g is None else g)
        found = self.rule.derived.pulled(given, self.payloads, self.arrays, self.kept)
        if found is None:
            return None
        inputs = self.inputs
        return [(inputs[k], array) for k, array in zip(self.rule.wanted, found, strict=True)]


def _replayed(rule: Rule, seeds: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients as the operators of the call make them, one by one, on a tape of its own."""
    forks = [fork(x) if x.requires_grad else x for x in inputs]
    own = {x.node for x in forks if x.node is not None}
    try:
        with recording_is(True):
            out = rule.again(forks)
    finally:
        for node in own:
            if isinstance(node, Fork):
                node.active = False
    results = [x for x in (out if isinstance(out, (tuple, list)) else [out]) if not any(x is y for y in forks)]
    gradients: dict[Any, Any] = {}
    for x, seed in zip([x for x, end in zip(results, rule.ends, strict=True) if end], seeds, strict=True):
        gradients[x.slot] = gradients[x.slot] + seed if x.slot in gradients else seed
    backward(_since(own, results), gradients, lambda x: isinstance(x, Tensor) and x.requires_grad)
    return [gradients.get(x.slot) if x.requires_grad else None for x in forks]


def _since(forks: Set[Any], results: Sequence[Tensor]) -> list[TapeNode]:
    """What was recorded on the way from forks to results, in order."""
    found: set[TapeNode] = set()
    pending = [x.node for x in results]
    while pending:
        node = pending.pop()
        if node is not None and node not in found and node not in forks:
            found.add(node)
            pending += [x.node for x in node.inputs if isinstance(x, Tensor)]
    return sorted(found, key=lambda node: node.number)


_calls: dict[tuple[Any, ...], Remembered | int] = {}      # how often it was seen; 0: has to be made in full


class Ready:
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
    """The calls that machine code makes (`native.py`), by what it knows them by."""

    def __init__(self) -> None:
        self.known: dict[bytes, Ready] = {}
        self.key: Callable[[Any, Any, Any], bytes | None] | None = None     # where there is machine code
        self.count: Callable[[], None] | None = None            # where somebody counts the calls in Python

    def add(self, known: Remembered, call: tuple[Any, ...], args: tuple[Any, ...], keywords: Mapping[str, Any],
            tensors: int) -> None:
        """Let machine code make such calls from now on."""
        if self.count is not None:
            self.count()
        usual = known.simple or (known.rule is None and all(k is None for k in known.given))
        if self.key is not None and usual and (key := self.key(call[0], args, keywords)) is not None:
            if len(self.known) >= MOST_CALLS:
                self.known.clear()
            self.known[key] = Ready(known, call, tensors)


ready_calls = ReadyCalls()


def remembered_call(target: Any, full: Full, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """What the operator or function returns; `full(args, keywords)` calls it."""
    if KERNELS or autocasting() is not None:
        return full(args, keywords)
    tensors: list[Tensor] = []
    arrays: list[Any] = []
    key: list[Any] = [target, recording()]
    if not (_describe(args, key, tensors, arrays)
            and (not keywords or _describe(keywords.items(), key, tensors, arrays))):
        return full(args, keywords)
    known = _calls.get(call := tuple(key))
    if type(known) is not Remembered:
        return _seen(call, known, target, full, args, keywords, tensors)
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
            node = CallNode(rule, _inputs(rule, tensors), (payload,), tuple(arrays), kept)
            found.own = TensorState(payload, True, None, node)
        return found
    row = out if known.several else (out,)
    listed = _plain(known, row, tensors) if rule is None else _recorded(known, rule, row, tensors, arrays)
    return listed[0] if known.kind is None else known.kind(listed)


def _plain(known: Remembered, row: tuple[Any, ...], tensors: list[Tensor]) -> list[Tensor]:
    return [fresh(a) if k is None else tensors[k] for a, k in zip(row, known.given, strict=True)]


def _recorded(known: Remembered, rule: Rule, row: tuple[Any, ...], tensors: list[Tensor],
              arrays: list[Any]) -> list[Tensor]:
    """The results of a call, its node on the tape."""
    count = len(known.given)
    payloads = tuple([a for a, k in zip(row, known.given, strict=False) if k is None])
    node = CallNode(rule, _inputs(rule, tensors), payloads, tuple(arrays), row[count:])
    made = iter([linked(y, node, k) if end else fresh(y)
                 for k, (y, end) in enumerate(zip(payloads, rule.ends, strict=True))])
    return [next(made) if k is None else tensors[k] for k in known.given]


def _inputs(rule: Rule, tensors: list[Tensor]) -> tuple[Any, ...]:
    """What the node of a call holds in the place of its inputs."""
    kept = [saved_as(x, x.own) for x in tensors]
    return tuple(kept if rule.op is None else [kept[k] if type(k) is int else k for k in rule.inputs])


def _describe(row: Any, key: list[Any], tensors: list[Tensor], arrays: list[Any]) -> bool:
    """Add to the key of a call what its arguments are, and its tensors to the lists; False where there is no key."""
    for x in row:
        kind = type(x)
        if isinstance(x, Tensor):
            state = x.own
            array: Any = state.payload
            if type(array) is not np.ndarray:
                return False
            key += array.dtype, array.shape, state.requires_grad
            tensors.append(x)
            arrays.append(array)
        elif kind in PLAIN:
            key += kind, x
        elif kind is tuple or kind is list:
            key += kind, len(x)
            if not _describe(x, key, tensors, arrays):
                return False
        elif kind is float:
            key += kind, x or repr(x)               # 0.0 == -0.0
        elif kind is slice:
            key.append(kind)
            if not _describe((x.start, x.stop, x.step), key, tensors, arrays):
                return False
        else:
            return False
    return True


# ---------------------------------------------------------------- recording

def _seen(call: tuple[Any, ...], times: Any, target: Any, full: Full, args: tuple[Any, ...],
          keywords: Mapping[str, Any], tensors: list[Tensor]) -> Any:
    """The call in full; it is recorded when it has been seen often enough."""
    result = full(args, keywords)
    if times is None and len(_calls) >= MOST_CALLS:
        _calls.clear()
        ready_calls.known.clear()
    if times != 0:
        now = 1 + (times or 0)
        _calls[call] = now if now < TIMES[type(target) is Op] else \
            _remember(target, full, args, keywords, tensors, result) or 0
    return result


def _remember(target: Any, full: Full, args: tuple[Any, ...], keywords: Mapping[str, Any], tensors: list[Tensor],
              result: Any) -> Remembered | None:
    """The call as a recipe; None where recording it shows anything but operators on these tensors."""
    kind = type(result) if type(result) in (tuple, list) else None
    expected = list(result) if kind else [result]
    if not all(type(x) is Tensor or any(x is y for y in tensors) for x in expected):
        return None
    named = tuple(keywords.items())
    graph = _graph(target, full, args, named, tensors, expected)
    if graph is None:
        return None
    places = {p: k for k, p in enumerate(graph.params)}
    given = tuple(places.get(r) for r in graph.results)
    ends = tuple(x.requires_grad for x, k in zip(expected, given, strict=True) if k is None)
    if not any(ends):
        recipe = recipe_of(graph)
        return None if recipe is None else _made(recipe, given, kind)
    try:
        derived = derive(graph, [x.requires_grad for x in tensors], ends)
    except Exception:           # a rule needs elements, or there is none
        return None
    if derived is None:
        return None
    blank = _with(args, repeat(PLACE)), _with(named, repeat(PLACE))

    def again(others: list[Tensor]) -> Any:
        rest = iter(others)
        return full(_with(blank[0], rest), dict(_with(blank[1], rest)))
    op, inputs, attrs = _one_operator(graph)
    wanted = tuple(k if op is None else inputs.index(k) for k in derived.inputs)
    rule = Rule(graph.name, derived, derived.late.function, op, inputs, attrs, wanted, ends, again)
    return _made(derived.forward, given, kind, rule)


def _made(recipe: Recipe, given: tuple[int | None, ...], kind: type | None, rule: Rule | None = None) -> Remembered:
    simple = kind is None and given == (None,)
    return Remembered(recipe, None if recipe.programs else recipe.function, recipe.several, given, kind, simple, rule)


def _graph(target: Any, full: Full, args: tuple[Any, ...], named: tuple[Any, ...], tensors: list[Tensor],
           expected: list[Tensor]) -> Graph | None:
    """The operators of a call whose results were these."""
    builder = Builder(target.__name__, rewriting=True)
    params = [builder.parameter(TensorType(as_dtype(x.dtype), x.shape)) for x in tensors]
    rest = iter(params)
    try:
        with using(builder):
            out = full(_with(args, rest), dict(_with(named, rest)))
    except Exception:           # it needs elements, or a state
        return None
    values = list(out) if type(out) in (tuple, list) else [out]
    if len(values) != len(expected):
        return None
    for value, tensor in zip(values, expected, strict=True):
        if not isinstance(value, Value) or value.type != tensor.type:
            return None
    return builder.finish(values)


def _one_operator(graph: Graph) -> tuple[Op | None, tuple[Any, ...], Mapping[str, Any]]:
    """The operator of which the graph is one call, where its inputs stand, and its attributes."""
    if len(graph.nodes) == 1 and graph.results == graph.nodes[0].outputs and graph.nodes[0].op.vjp is not None:
        node = graph.nodes[0]
        return node.op, tuple(graph.params.index(x) if isinstance(x, Value) else x for x in node.inputs), node.attrs
    return None, (), {}


PLACE = object()        # where a tensor stands in the arguments of a call


def _with(x: Any, values: Any) -> Any:
    """The argument with one value after the other in the place of its tensors."""
    if isinstance(x, Tensor) or x is PLACE:
        return next(values)
    if type(x) in (tuple, list):
        return type(x)(_with(part, values) for part in x)
    return slice(*(_with(end, values) for end in (x.start, x.stop, x.step))) if type(x) is slice else x

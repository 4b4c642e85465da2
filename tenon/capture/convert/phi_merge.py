"""Two outcomes of a condition -> one `cond`, whose results stand where the outcomes differ.

Values are compared leaf by leaf.  Tensors of one type and numbers of one kind become results; containers of one
structure are built anew; what is not the same kind of thing becomes a `UnionValue`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.conditional_gradients import goes_through_released
from tenon.capture.convert.object_trees import are_lists, matches, parts_of, rebuilt, side_by_side
from tenon.capture.convert.tensor_list import TensorList
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.capture.effects import MISSING
from tenon.capture.guards import same_atom
from tenon.capture.output_effects import Text
from tenon.capture.runtime_numbers import RuntimeNumber, as_tensor, in_graph, is_number, joined_kinds, kind_of, strong
from tenon.capture.subgraph import InnerBuilder, closed
from tenon.eager.grad_mode import recorded_like
from tenon.eager.tape import RELEASED, TapeNode, saved
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.partition import has_effect
from tenon.graph.structural_key import structure
from tenon.ops.barrier import stop_gradient
from tenon.ops.branches import as_tuple, cond
from tenon.ops.comparison import logical_not, where
from tenon.ops.creation import zeros
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

IsNew = Callable[[Any], bool]       # whether an object was made within an arm, so that nobody else can know it
MAX_SKIPPED_SCALAR_OPS = 4  # scalar operations that are cheaper done than skipped
MAX_TEXTS = 4               # among which the data choose; a loop that may end early has another after each iteration
FILLED = ("constant", "full_op")
UNFINISHED = object()       # what an object is whose parts are looked at


@dataclass(frozen=True)
class TakenTensor:
    """A merged tensor, which is `then` where the condition holds, and else `other`, which may be merged ones too."""

    merged: weakref.ref[Tensor]
    then: weakref.ref[Tensor]
    other: weakref.ref[Tensor]
    of_then: TakenTensor | None
    of_other: TakenTensor | None
    condition: Tensor


class Arm:
    """What was recorded on one side of a condition, and what it left behind."""

    def __init__(self, capture: ConvertingCapture, builder: InnerBuilder, values: Mapping[Any, Any]):
        self.capture, self.builder, self.values = capture, builder, values
        self.own = {x for node in builder.nodes for x in node.outputs}
        self.results: list[Value] = []

    def result(self, x: Any, like: Any) -> Value:
        """The edge that holds `x`, a tensor or a number; zeros like the other side's where it has none."""
        outer, self.capture.builder = self.capture.builder, self.builder
        try:
            if x is UNBOUND:
                x = zeros(like.shape, dtype=like.dtype)
            elif not isinstance(x, Tensor):
                x = as_tensor(x)
            payload: Any = x.payload
            if x.requires_grad:
                self.capture.carriers.setdefault(payload, saved(x))
            elif payload in self.capture.flows and isinstance(like, Tensor) and like.requires_grad:
                payload = stop_gradient(strong(x)).payload
            assert isinstance(payload, Value)
            return payload
        finally:
            self.capture.builder = outer

    def graph(self, name: str) -> Graph:
        """What the results need, with values of the program around it among its own."""
        nodes = needed(self.builder.nodes, self.results)
        return Graph(name, (), tuple(nodes), tuple(self.results))


def needed(nodes: Sequence[Node], results: Iterable[Value]) -> list[Node]:
    """The nodes that the results depend on."""
    wanted, kept = set(results), []
    for node in reversed(nodes):
        if has_effect(node) or not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.uses())
    return kept[::-1]


def free_values(graphs: Sequence[Graph]) -> list[Value]:
    """The values that the graphs read and do not make."""
    made = {x for graph in graphs for node in graph.nodes for x in node.outputs}
    made.update(p for graph in graphs for p in graph.params)
    read = [x for graph in graphs for node in graph.nodes for x in node.uses()]
    read += [x for graph in graphs for x in graph.results]
    return [x for x in dict.fromkeys(read) if x not in made]


class Join:
    """The outcomes of both arms as one."""

    def __init__(self, capture: ConvertingCapture, condition: Tensor, then: Arm, other: Arm, is_new: IsNew):
        self.capture, self.condition, self.arms, self.is_new = capture, condition, (then, other), is_new
        self.requests: dict[Any, tuple[Any, Any]] = {}
        self.outputs: dict[Any, Tensor] | None = None       # in the second round
        self.memo: dict[Any, Any] = {}

    def values(self, before: Mapping[Any, Any]) -> dict[Any, Any]:
        """The merged value of every place; `before` is what a place held that an arm left as it was."""
        then, other = (arm.values for arm in self.arms)
        keys = in_order(list(then), list(other), before)
        pairs = {k: (then.get(k, before[k]), other.get(k, before[k])) for k in keys}
        for a, b in pairs.values():
            self.merge(a, b)
        self.emit()
        self.memo.clear()
        return {k: self.merge(a, b) for k, (a, b) in pairs.items()}

    # ------------------------------------------------------------ two values

    def merge(self, a: Any, b: Any) -> Any:
        """The value that is `a` where the condition holds, and `b` where it does not."""
        if a is b or same_atom(a, b):
            return a
        key = id(a), id(b)
        if key not in self.memo:
            self.memo[key] = (self.join(a, b) if compatible(a, b, self.is_new) else self.choice(a, b)), a, b
        return self.memo[key][0]

    def join(self, a: Any, b: Any) -> Any:
        """Two values of one kind."""
        if is_number(a) and is_number(b):
            return self.number(a, b)
        if isinstance(a, Tensor):
            out = self.output(a, b)
            self.capture.may_be(out, a, b)
            if out is not None:
                self.capture.taken[id(out)] = TakenTensor(
                    weakref.ref(out), weakref.ref(a), weakref.ref(b), self.capture.taken_for(a),
                    self.capture.taken_for(b), self.condition)
            return out
        if isinstance(a, UnionValue):
            return UnionValue(tuple((self.merge(p, q), self.merge(x, y))
                                for (p, x), (q, y) in zip(a.options, b.options, strict=True)))
        if are_lists(a, b, self.is_new):
            parts = [self.merge(x, y) for x, y in side_by_side(list(a), list(b))]
            return None if self.outputs is None else rebuilt(a, parts)
        left, right = parts_of(a), parts_of(b)
        assert left is not None and right is not None
        parts = [self.merge(x, y) for x, y in zip(left[1], right[1], strict=True)]
        return None if self.outputs is None else rebuilt(a, parts)

    def number(self, a: Any, b: Any) -> Any:
        if a is True and b is False:
            return self.known(self.condition)
        if a is False and b is True:
            return self.known(self.condition, negated=True)
        kinds = joined_kinds(a, b)
        out = self.output(in_graph(a), in_graph(b))
        if self.outputs is None:
            return None
        number = RuntimeNumber(out, kind_of(a), kinds)
        self.capture.facts[number.own.payload] = (self.condition.payload, a, b)
        return number

    def known(self, condition: Tensor, negated: bool = False) -> Any:
        if self.outputs is None:
            return None
        number = RuntimeNumber(logical_not(condition) if negated else condition)
        if negated:
            self.capture.facts[number.own.payload] = (condition.payload, False, True)
        return number

    def output(self, a: Any, b: Any) -> Any:
        """A result of the `cond`."""
        key = tuple((id(x.payload), x.requires_grad) if isinstance(x, Tensor) else repr(x) for x in (a, b))
        if self.outputs is None:
            self.requests.setdefault(key, (a, b))
            return None
        return self.outputs[key]

    def choice(self, a: Any, b: Any) -> Any:
        """A value of several kinds; options of one kind are one."""
        self.capture.irregular = True
        if type(a) is TensorList or type(b) is TensorList:
            return self.rows(a, b)
        sides = [x.options if isinstance(x, UnionValue) else ((True, x),) for x in (a, b)]
        groups: list[tuple[Any, Any]] = []
        left, right = sides
        if sum(type(x) is Text for _, x in (*left, *right)) > MAX_TEXTS:
            raise UnsafeCall(f"a text is one of more than {MAX_TEXTS}, as the data decide, each with values in it")
        rest = list(right)
        for p, x in left:
            match = next((k for k, (_, y) in enumerate(rest) if same_kind(x, y, self.is_new)), None)
            if match is None:
                groups.append((self.merge(p, False), self.export(x, 0)))
            else:
                q, y = rest.pop(match)
                groups.append((self.merge(p, q), self.merge(x, y)))
        groups += [(self.merge(False, q), self.export(y, 1)) for q, y in rest]
        self.capture.undecided = self.capture.undecided or any(x is MISSING for _, x in groups)
        return groups[0][1] if len(groups) == 1 else UnionValue(tuple(groups))

    def rows(self, a: Any, b: Any) -> Any:
        """Elements that only one arm has: none of them where the other is taken."""
        self.capture.undecided = True
        if a is not MISSING and b is not MISSING:
            raise UnsafeCall("a list holds elements of two kinds, as the data decide, after a loop on a tensor")
        one, side = (a, 0) if b is MISSING else (b, 1)
        rows = [self.export(x, side) for x in one.rows]
        count = self.merge(one.count, 0) if side == 0 else self.merge(0, one.count)
        return None if self.outputs is None else TensorList(one.form, rows, count)

    def export(self, x: Any, side: int) -> Any:
        """A value of one arm as the program around it sees it: one object, wherever the arm has left it."""
        key = side, "exported", id(x)
        if key not in self.memo:
            self.memo[key] = UNFINISHED, x
            self.memo[key] = self._exported(x, side), x
        elif self.memo[key][0] is UNFINISHED:
            raise UnsafeCall("an object contains itself, which is made under a condition on a tensor")
        return self.memo[key][0]

    def _exported(self, x: Any, side: int) -> Any:
        arm = self.arms[side]
        if isinstance(x, Tensor):
            if x.payload not in arm.own:
                return x
            out = self.output(x, UNBOUND) if side == 0 else self.output(UNBOUND, x)
            return RuntimeNumber(out, x.weak) if type(x) is RuntimeNumber and out is not None else out
        if isinstance(x, UnionValue):
            return UnionValue(tuple((self.export(p, side), self.export(y, side)) for p, y in x.options))
        found = parts_of(x)
        if found is None or not self.is_new(x):
            return x
        parts = [self.export(part, side) for part in found[1]]
        return None if self.outputs is None else x if same_parts(parts, found[1]) else rebuilt(x, parts)

    # ------------------------------------------------------------ the node

    def emit(self) -> None:
        """Record the `cond` that has all requested results, or their plain computation where that is less."""
        if not self.requests and any(map(has_effect, (node for arm in self.arms for node in arm.builder.nodes))):
            self.requests["said"] = True, True
        for a, b in self.requests.values():
            self.arms[0].results.append(self.arms[0].result(a, b))
            self.arms[1].results.append(self.arms[1].result(b, a))
        graphs = [arm.graph(name) for arm, name in zip(self.arms, ("then", "otherwise"), strict=True)]
        pairs = list(zip(graphs[0].results, graphs[1].results, strict=True))
        if all(map(_is_cheap, graphs)):
            for graph in graphs:
                self.capture.builder.nodes += graph.nodes
            made: Sequence[Any] = [where(self.condition, Tensor(x), Tensor(y)) for x, y in pairs]
        elif pairs:
            free = free_values(graphs)
            with recorded_like(chain.from_iterable(self.requests.values())):
                made = as_tuple(cond(self.condition, *map(self.capture.carrier, free),
                                   true=self.closed(graphs[0], free), false=self.closed(graphs[1], free)))
        else:
            made = []
        self.outputs = {}
        for (key, (a, b)), out in zip(self.requests.items(), made, strict=True):
            nodes = [x.node for x in (a, b) if isinstance(x, Tensor) and x.requires_grad]
            self.outputs[key] = out.detach() if not nodes else \
                released_form(out) if all(node and self.is_released(node) for node in nodes) else out

    def is_released(self, node: TapeNode) -> bool:
        """Whether backward() has been through what made a value."""
        return goes_through_released(node, {}, self.capture.released)

    def closed(self, graph: Graph, free: Sequence[Value]) -> Graph:
        """The graph with values around it as parameters; the same one for equal arms, so that it is derived once."""
        known, bare = self.capture.arms, Graph(graph.name, tuple(free), graph.nodes, graph.results)
        with unwatched():
            key = graph.name, structure(bare), tuple([node.loc for node in graph.nodes])
            if key not in known:
                known[key] = closed(graph, free)
            return known[key]


def released_form(x: Tensor) -> Tensor:
    """The tensor as backward() leaves one that it has been through."""
    found = Tensor.__new__(Tensor)
    found.own = TensorState(x.payload, True, None, RELEASED)
    return found


def in_order(then: Sequence[Any], other: Sequence[Any], before: Mapping[Any, Any]) -> list[Any]:
    """The places of both arms; keys that are new in a dictionary stand in the order that they have in both."""
    whole = {key[1] for key in (*then, *other) if key[0] == "dict"}
    if any(key[0] == "item" and key[1] in whole for key in (*then, *other)):
        raise UnsafeCall("the order of the keys in a dictionary depends on the data")
    new = [[key for key in keys if key[0] == "item" and before[key] is MISSING] for keys in (then, other)]
    holders = dict.fromkeys(key[1] for key in (*new[0], *new[1]))
    merged = [key for holder in holders for key in one_order(*([k for k in keys if k[1] == holder] for keys in new))]
    known = set(merged)
    return [*(key for key in dict.fromkeys([*then, *other]) if key not in known), *merged]


def one_order(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """An order that both of these have, of all that stands in either; refused where there is none."""
    place = {key: k for k, key in enumerate(first)}
    found: list[Any] = []
    done = 0
    for key in second:
        if key not in place:
            found.append(key)
        elif place[key] < done:
            raise UnsafeCall("the order of the keys in a dictionary depends on the data",
                             hint="set them in one order in all branches")
        else:
            found += first[done:place[key] + 1]
            done = place[key] + 1
    return [*found, *first[done:]]


def one_of(condition: Tensor, then: Tensor, other: Tensor) -> Tensor:
    """One of two tensors of one type; as in eager code, a gradient reaches the one that is taken alone."""
    found: Tensor
    if not then.requires_grad and not other.requires_grad:
        found = where(condition, then, other)
        return found
    arms = []
    for k, name in enumerate(("then", "otherwise")):
        params = Value(then.type), Value(other.type)
        arms.append(Graph(name, params, (), (params[k],)))
    with recorded_like((then, other)):
        found = cond(condition, strong(then), strong(other), true=arms[0], false=arms[1])
    return found


def _is_cheap(graph: Graph) -> bool:
    """Whether doing it always costs less than a branch: a few operations on scalars that carry no gradient."""
    scalar = all(x.shape == () and not x.dtype.is_differentiable for x in graph.results)
    return scalar and len(graph.nodes) <= MAX_SKIPPED_SCALAR_OPS and all(
        (node.op.elementwise or node.op.name in FILLED) and not node.op.is_host and node.output.shape == ()
        for node in graph.nodes if node.op.name != "constant" or node.output.shape == ())


def same_parts(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return all(x is y for x, y in zip(left, right, strict=True))


def same_kind(a: Any, b: Any, is_new: IsNew) -> bool:
    """Whether two options of a choice are one."""
    return a is b or same_atom(a, b) or compatible(a, b, is_new)


def compatible(a: Any, b: Any, is_new: IsNew) -> bool:
    """Whether two values are the same kind of thing, with leaves that can be results."""
    if is_number(a) and is_number(b):
        return kind_of(a) is kind_of(b)
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        is_tensor = isinstance(a, Tensor) and isinstance(b, Tensor)
        return is_tensor and type(a) is not RuntimeNumber and type(b) is not RuntimeNumber \
            and a.dtype is b.dtype and a.shape == b.shape
    if isinstance(a, UnionValue) or isinstance(b, UnionValue):
        return isinstance(a, UnionValue) and isinstance(b, UnionValue) and len(a.options) == len(b.options) and all(
            same_kind(x, y, is_new) for (_, x), (_, y) in zip(a.options, b.options, strict=True))
    return a is not UNBOUND and (matches(a, b, is_new) or are_lists(a, b, is_new))

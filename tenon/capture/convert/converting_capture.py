"""A capture that converts: what it knows on the way it is on, and what a value is that is one of several."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from tenon.capture.captured_gradients import tapes_of
from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.conditional_gradients import goes_through_released, reached_by_any, reached_by_data, requires_by_data
from tenon.capture.convert.callees import callee, own_truth
from tenon.capture.convert.capture_branches import decide
from tenon.capture.convert.data_sizes import DataSizes
from tenon.capture.convert.dynamic_indexing import truth as undecided_truth
from tenon.capture.convert.optional_elements import either, is_undecided
from tenon.capture.convert.phi_merge import TakenTensor, one_of
from tenon.capture.convert.reachable import OfCapture
from tenon.capture.convert.state_snapshot import World
from tenon.capture.convert.tensor_list import FirstRows, refusal_of_rows
from tenon.capture.convert.text_options import MORE_THAN_ONE, on_strings
from tenon.capture.convert.union_value import UNBOUND, UnionValue, refusal
from tenon.capture.effects import MISSING
from tenon.capture.output_effects import OutputEffect, rules_of_warnings
from tenon.capture.runtime_numbers import (
    KIND_OF,
    ORDER,
    RuntimeNumber,
    as_tensor,
    is_number,
    kind_of,
    misfit,
    number_of,
    strong,
    truth,
)
from tenon.capture.subgraph import InnerBuilder
from tenon.capture.trace import Capture
from tenon.dims.symbolic_dim import Dim, SymbolicDim, is_by_data
from tenon.eager.tape import TapeNode, saved
from tenon.errors import user_location
from tenon.graph.ir import Graph, Value
from tenon.graph.op import Op
from tenon.ops.arithmetic import add
from tenon.ops.comparison import logical_not, logical_or, where
from tenon.ops.searching import counted
from tenon.ops.shape import cast, dimension, reshape_op
from tenon.tensor import Tensor
from tenon.tensor_state import Payload, TensorState
from tenon.types import DType, bool_, int64

UNRESOLVED = object()       # a choice that is no one value


def unbound(name: str) -> UnboundLocalError:
    """What Python says where a variable has no value."""
    return UnboundLocalError(f"cannot access local variable {name!r} where it is not associated with a value")


def holds(dtype: DType, numbers: Sequence[Any]) -> bool:
    """Whether these numbers, beside a tensor of this type, leave it as it is."""
    return all(ORDER.index(kind_of(x)) <= ORDER.index(KIND_OF[dtype.kind]) for x in numbers)


def sized(attribute: Any) -> Any:
    """An attribute, with sizes for the numbers in it that the graph computes."""
    if type(attribute) in (tuple, list):
        return type(attribute)(map(sized, attribute))
    return attribute.as_size() if type(attribute) is RuntimeNumber else attribute


Path = Mapping[Any, bool]       # edges that are known to be true or false where the recording is


class ConvertingCapture(OfCapture, Capture):
    """Records control flow on tensors as well."""

    converting = True
    says = True             # whether what it prints is said by the call
    data_sizes: DataSizes | None = None     # None where no size may be decided: in a branch or loop

    def __init__(self, name: str, world: World):
        super().__init__(name)
        self.world = world
        self._leaves: dict[Any, dict[int, Tensor]] = {}
        self.carriers: dict[Any, Tensor] = {}       # edges that carry a gradient, and tensors linked to their past
        self.touched: list[tuple[Tensor, TensorState]] = []     # tensors that got another state, and the one before
        self.aliases: list[tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = []
        self.taken: dict[int, TakenTensor] = {}         # merged tensors by their identities
        self.path: Path = {}
        self.arms: dict[Any, Graph] = {}        # those of earlier conditions, by what they do
        self.facts: dict[Any, tuple[Any, Any, Any]] = {}     # a bool that is `a` where the condition holds, else `b`
        self.depth = 0
        self.irregular = False          # whether a value may be one of several, or a container of several sizes
        self.output_effects: list[OutputEffect] = []
        self.warning = rules_of_warnings()
        self.failed: Any = False        # or the bool that says that the call has to run eagerly after all
        self.raising: list[BaseException | None] = []       # what it raises then; None for what only the run knows

    def as_called(self, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function with control flow on tensors captured."""
        found: Callable[[Any], Any] = callee(hook) if self.converting else hook
        return found

    def forked(self, payload: Payload) -> Payload:
        """An edge of its own: what enters a branch or a loop is known by its edge."""
        if type(payload) is not Value:
            return payload
        (edge,) = self.emit(reshape_op, (payload,), {"shape": payload.shape})
        self.flows.add(edge)
        return edge

    def leaf(self, tensor: Tensor) -> Payload:
        payload = super().leaf(tensor)
        return self.forked(payload) if self.owns(tensor.own.payload) else payload

    def absent(self, tape: Sequence[TapeNode], end: Any) -> Mapping[Any, Any]:
        """Where no leaf is reached at all, backward() is an error."""
        found = reached_by_data(tape, end)
        if found and (reaches := requires_by_data(tape, end)) is not None:
            self.fail_if(logical_not(reaches))
        return found

    def requires_grad_of(self, tensor: Tensor) -> Any:
        """`tensor.requires_grad`, a bool of the graph where a branch decides."""
        node = tensor.node
        whole = node is not None and not goes_through_released(node, {}, self.released)
        there = requires_by_data(node.tape(), tensor.slot) if node is not None and whole else None
        return tensor.requires_grad if there is None else number_of(there)

    def gradients_by_data(self, ends: Sequence[Tensor]) -> Mapping[int, Tensor]:
        there = reached_by_any(tapes_of(ends))
        return {id(seen.source): there[seen.tensor] for seen in self.seen.values() if seen.tensor in there}

    def receive(self, leaf: Tensor, total: Tensor, there: Any) -> None:
        """A gradient that is there for some data is a tensor or None."""
        self.refuse_earlier(leaf)
        state = self.state_of(leaf)
        if there is False:
            return
        before: Any = self.gradient(leaf)
        if type(before) is UnionValue:
            now = self.each(before, lambda x: self._added(x, total, there))
        else:
            now = self._added(before, total, there)
        leaf.hold(TensorState(state.payload, state.requires_grad, now, state.node, state.index))

    def _added(self, before: Any, total: Tensor, there: Any) -> Any:
        if before is not None:
            return add(before, total)
        if there is True or (known := self.decided(there)) is True:
            return total
        if known is False:
            return None
        self.irregular = True
        return UnionValue(((number_of(there), total), (RuntimeNumber(logical_not(there)), None)))

    def carry(self, edge: Any, tensor: Tensor) -> None:
        """Note by which tensors gradients leave the inputs of a recorded call."""
        if edge not in self.carriers:
            self.carriers[edge] = saved(tensor)

    def carrier(self, value: Value) -> Tensor:
        """A tensor that holds this edge, linked to what it was computed from."""
        found = self.carriers.get(value)
        return Tensor(value) if found is None else found

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Record the call; for each of several tensors that an input may be, in a branch of its own."""
        for x in inputs:
            if type(x) is UnionValue:
                return self._apply_to_each(op, inputs, attrs)
        return super().apply(op, inputs, {name: sized(value) for name, value in attrs.items()})

    def emit(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        """Append the node; where the data decide the size of its results, that is a new symbol."""
        if not op.data_dependent:
            return super().emit(op, inputs, attrs)
        if self.data_sizes is None or isinstance(self.builder, InnerBuilder):
            raise UnsafeCall(f"the shape of {op.name} depends on the data, within a branch or loop",
                             where=user_location(), hint="keep the shape: tn.where(mask, x, other)")
        if op is counted and inputs[0] in self.data_sizes.counted:
            return self.data_sizes.counted[inputs[0]]
        size = attrs["size"]
        outputs = super().emit(op, inputs, {"size": self.data_sizes.fresh() if size is None else size})
        self.data_sizes.note(op, inputs, outputs)
        self.sized = True
        return outputs

    def as_size(self, number: Tensor) -> Any:
        if self.data_sizes is None or not isinstance(number, RuntimeNumber) or number.weak is not int:
            return super().as_size(number)
        return self.data_sizes.size_of(number)

    def seen_by_user(self, size: Dim) -> Any:
        """A size as the program sees it: a number where the data decide it."""
        return RuntimeNumber(dimension(size=size, dtype=int64)) if is_by_data(size) else size

    def _apply_to_each(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        inputs = tuple([self.settled(x, blended=True) if type(x) is UnionValue else x for x in inputs])
        k = next((k for k, x in enumerate(inputs) if type(x) is UnionValue), None)
        if k is None:
            return super().apply(op, inputs, attrs)
        return self.each(inputs[k], lambda one: self.apply(op, (*inputs[:k], one, *inputs[k + 1:]), attrs))

    def is_several(self, x: Any) -> bool:
        """Whether a value is one of several that are no one value."""
        return type(x) is UnionValue and type(self.settled(x, blended=True)) is UnionValue

    def lift(self, x: Any) -> Any:
        """One of several values is resolved where an operator takes it."""
        if type(x) is FirstRows:
            raise refusal_of_rows()
        return super().lift(self.resolve(x) if type(x) is UnionValue else x)

    def hold(self, tensor: Tensor, state: TensorState) -> None:
        """Give a tensor another state, which is noted."""
        if state.payload is not self.state_of(tensor).payload and self.may_be_another(tensor):
            raise UnsafeCall("a tensor is written to that may be another one, as the data decide",
                             where=user_location(), hint="write to a copy, or in each branch")
        self.touched.append((tensor, self.state_of(tensor)))
        super().hold(tensor, state)

    def may_be(self, tensor: Any, *others: Any) -> None:
        """Note that a tensor stands for one of others, as the data decide: what is written to one may be another's.

        So it does for whatever those may be, which they need not live to tell.
        """
        if not isinstance(tensor, Tensor):
            return
        known = {id(x): x for x in others if isinstance(x, Tensor)}
        for pair in self.aliases:
            one, other = (reference() for reference in pair)
            if id(one) in known or id(other) in known:
                known.update((id(x), x) for x in (one, other) if x is not None)
        self.aliases += [(weakref.ref(tensor), weakref.ref(x)) for x in known.values() if x is not tensor]

    def taken_for(self, tensor: Tensor) -> TakenTensor | None:
        """What a tensor was merged from, if it was."""
        found = self.taken.get(id(tensor))
        return found if found is not None and found.merged() is tensor else None

    def may_be_another(self, *tensors: Any) -> bool:
        """Whether one of these may be another tensor that the program still has."""
        self.aliases = [pair for pair in self.aliases if pair[0]() is not None and pair[1]() is not None]
        return any(x is one() for x in tensors for pair in self.aliases for one in pair)

    def leaves_above(self, tensor: Tensor) -> dict[int, Tensor]:
        """The leaves made in the captured program that a tensor was computed from: backward() changes them."""
        start = self.state_of(tensor).node
        pending = [] if start is None else [start]
        while pending:
            node = pending[-1]
            above = [x.node for x in node.inputs if isinstance(x, Tensor) and x.node is not None]
            missing = [n for n in above if n not in self._leaves]
            if node in self._leaves or not missing:
                pending.pop()
                own = {id(x.slot): x.slot for x in node.inputs if isinstance(x, Tensor) and x.requires_grad
                       and x.node is None and isinstance(x.slot, Tensor) and self.owns(x.slot.own.payload)}
                self._leaves[node] = own | {k: x for n in above for k, x in self._leaves[n].items()}
            pending += missing
        return {} if start is None else self._leaves[start]

    # ------------------------------------------------------------ what decides

    def is_data(self, x: Any) -> bool:
        """Whether the graph computes it, or whether it counts as true."""
        if type(x) is UnionValue or (self.undecided and is_undecided(x)):
            return not isinstance(self.truth(x), bool)
        return isinstance(x, Tensor) and isinstance(x.payload, Value)

    def truth(self, x: Any) -> Any:
        """Whether a value counts as true: a bool, or a Number."""
        if type(x) is UnionValue:
            asks = any(isinstance(getattr(type(one), "__bool__", None), types.FunctionType) for _, one in x.options)
            return self.each(x, self.truth) if asks else self.each_option(x, self.truth)
        if self.undecided and is_undecided(x):
            return undecided_truth(self, x)
        if issubclass(type(x), SymbolicDim):
            x = self.seen_by_user(x)
        if not self.is_data(x) and not self.is_data(x := own_truth(x)):
            return bool(x)
        x = self.decided(x)
        if isinstance(x, bool):
            return x
        if x.size != 1:
            bool(x)         # says that it is ambiguous
        return RuntimeNumber(truth(x))

    def decided(self, x: Any) -> Any:
        """The bool that a tensor is known to be on this path, else the tensor; a container known to be empty is so."""
        if self.undecided and is_undecided(x) and isinstance(found := undecided_truth(self, x), bool):
            return x if found else type(x)()
        if not isinstance(x, Tensor) or x.shape != ():
            return x
        known = self._decided(x.payload)
        return x if known is None else known

    def _decided(self, value: Any) -> bool | None:
        if isinstance(value, bool):
            return value
        if isinstance(value, Tensor):
            value = value.payload
        if value in self.path:
            return self.path[value]
        if value in self.facts:
            condition, then, other = self.facts[value]
            known = self._decided(condition)
            return None if known is None else self._decided(then if known else other)
        node = getattr(value, "node", None)
        if node is not None and node.op is logical_not:
            known = self._decided(node.inputs[0])
            return None if known is None else not known
        return None

    def assuming(self, condition: Tensor, holds: bool) -> Path:
        """The path on which this bool is known."""
        path, pending = dict(self.path), [(condition.payload, holds)]
        while pending:
            value, known = pending.pop()
            if not isinstance(value, Value) or value in path:
                continue
            path[value] = known
            pending += self._consequences(value, known)
        return path

    def _consequences(self, value: Value, known: bool) -> list[tuple[Any, bool]]:
        node = value.node
        if node is not None and node.op is logical_not:
            return [(node.inputs[0], not known)]
        if node is not None and node.op.name == ("logical_and" if known else "logical_or"):
            return [(x, known) for x in node.inputs]
        if value not in self.facts:
            return []
        condition, then, other = self.facts[value]
        if isinstance(then, bool) and then is not known:
            return [(condition, False), (getattr(other, "payload", None), known)]
        if isinstance(other, bool) and other is not known:
            return [(condition, True), (getattr(then, "payload", None), known)]
        return []

    # ------------------------------------------------------------ one of several

    def narrowed(self, choice: UnionValue, drop: Any = None) -> Any:
        """The choice without the options that are out of the question here."""
        options = [(p, x) for p, x in choice.options if x is not drop or drop is None]
        certain = [x for p, x in options if self.decided(p) is True]
        options = [(p, x) for p, x in options if self.decided(p) is not False]
        if certain or len(options) == 1:
            return certain[0] if certain else options[0][1]
        return UnionValue(tuple(options))

    def bound(self, choice: UnionValue, name: str) -> Any:
        """The choice, without the option that it has no value."""
        found = self.narrowed(choice)
        if found is UNBOUND:
            raise unbound(name)
        if type(found) is UnionValue:
            for p, x in found.options:
                if x is UNBOUND:
                    self.fail_if(p)
        return self.narrowed(choice, drop=UNBOUND)

    def resolve(self, choice: UnionValue, name: str = "") -> Any:
        """One value: the one known here, or one of numbers and tensors alike; other calls run eagerly."""
        found = self.settled(choice, name, blended=True)
        if type(found) is UnionValue:
            raise refusal(found)
        return found

    def settled(self, choice: UnionValue, name: str = "", blended: bool = False) -> Any:
        """One value where there is one; else the choice.  A number or a tensor of its size is a tensor where one is
        asked for: what Python computes of it would be a number."""
        found = self.bound(choice, name)
        value = self._one(found, blended) if type(found) is UnionValue else found
        return found if value is UNRESOLVED else value

    def _one(self, found: UnionValue, blended: bool) -> Any:
        options = list(found.options)
        if any(x is MISSING for _, x in options):
            return UNRESOLVED
        tensors = [(p, x) for p, x in options if isinstance(x, Tensor) and type(x) is not RuntimeNumber]
        if all(is_number(x) for _, x in options):
            return self._number(options)
        if len(tensors) == 1:
            condition, tensor = tensors[0]
            numbers = [x for _, x in options if x is not tensor]
            if tensor.shape == () and numbers and all(map(is_number, numbers)):
                if not blended and tensor.dtype is not bool_:
                    return UNRESOLVED
                if holds(tensor.dtype, numbers):
                    return self._selected([(p, x if x is tensor else cast(as_tensor(x), dtype=tensor.dtype))
                                           for p, x in options])
                if tensor.dtype is bool_:       # a comparison, which is as good as a Python bool
                    return self._number([(p, RuntimeNumber(x) if x is tensor else x) for p, x in options])
            if len(options) > 1:
                self.fail_if(logical_not(strong(self.truth(condition))))
            return tensor
        return UNRESOLVED

    def _number(self, options: Any) -> RuntimeNumber:
        kind = max((kind_of(x) for _, x in options), key=ORDER.index)
        kinds = frozenset().union(*(getattr(x, "kinds", None) or {kind_of(x)} for _, x in options))
        return RuntimeNumber(self._selected([(p, as_tensor(x, kind)) for p, x in options]), kind,
                      kinds if len(kinds) > 1 else frozenset())

    @staticmethod
    def _selected(options: Any) -> Tensor:
        found: Tensor = options[-1][1]
        for p, x in reversed(options[:-1]):
            found = one_of(strong(p), x, found)
        return found

    def each(self, choice: UnionValue, use: Callable[[Any], Any]) -> Any:
        """What is done with the value of a choice: with what it is, or with each of several in a branch of its own."""
        found = self.settled(choice)
        if type(found) is not UnionValue:
            return use(found)
        if any(x is MISSING for _, x in found.options):
            raise refusal(found)
        return self._each_half(found.options, use)

    def _each_half(self, options: Sequence[tuple[Any, Any]], use: Callable[[Any], Any]) -> Any:
        """The branches of a choice as a balanced tree, so that many options nest no deeper than they must."""
        if len(options) == 1:
            condition, value = options[0]
            self.path = self.assuming(condition, True)      # of which no half says all
            return use(value)
        half = len(options) // 2
        first = reduce(either, [p for p, _ in options[:half]])
        return decide(self, first, lambda: self._each_half(options[:half], use),
                      lambda: self._each_half(options[half:], use))

    def operated(self, choice: UnionValue, use: Callable[..., Any], args: Sequence[Any]) -> Any:
        """What a function without arguments that are choices makes of the value of one."""
        found = self.settled(choice)
        if type(found) is not UnionValue:
            return use(found, *args)
        value = on_strings(self, found, use, args)
        return self.each(found, lambda x: use(x, *args)) if value is MORE_THAN_ONE else value

    def each_option(self, choice: UnionValue, ask: Callable[[Any], Any]) -> Any:
        """A question that has a bool for an answer, put to every option."""
        found = self.narrowed(choice)
        if type(found) is not UnionValue:
            return ask(found)
        try:
            answers = [(p, ask(x)) for p, x in found.options]
        except Exception:       # for an option that may not be the one
            raise refusal(choice) from None
        if any(not isinstance(y, (bool, RuntimeNumber)) for _, y in answers):
            raise refusal(choice)
        answer = answers[-1][1]
        for p, y in reversed(answers[:-1]):
            answer = self._either(p, y, answer)
        return answer

    @staticmethod
    def _either(condition: Any, then: Any, other: Any) -> Any:
        if then is other:
            return then
        if then is True and other is False:
            return condition
        if then is False and other is True:
            return RuntimeNumber(logical_not(strong(condition)))
        return RuntimeNumber(where(strong(condition), as_tensor(then), as_tensor(other)))

    # ------------------------------------------------------------ what runs eagerly after all

    def fail_if(self, condition: Any, error: BaseException | None = None) -> None:
        """Let calls in which this bool comes out true run eagerly, where Python raises what it raises."""
        self.raising.append(error)
        self.fails_where(condition)

    def fails_where(self, condition: Any) -> None:
        """The same, of what has been noted before."""
        condition = strong(condition)
        self.failed = RuntimeNumber(condition) if self.failed is False else \
            self.failed if self.failed is True else RuntimeNumber(logical_or(strong(self.failed), condition))

    def cast(self, x: Any, dtype: DType | None) -> Any:
        """A whole number of the graph among tensors has to fit their type, as one of Python has."""
        if type(x) is RuntimeNumber and dtype is not None and (beyond := misfit(x, dtype)) is not None:
            self.fail_if(beyond)
        return super().cast(x, dtype)

    def fail(self, error: BaseException) -> None:
        """Let calls that come here run eagerly: the function raises this error."""
        self.failed = True
        self.raising.append(error)

    def fail_if_not(self, condition: Any) -> None:
        """Let calls in which this bool, of Python or of the graph, comes out false run eagerly."""
        if condition is not True:
            self.fail_if(logical_not(strong(as_tensor(condition))))

    def choose(self, condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """The result of one of two functions."""
        return decide(self, condition, then, other)

    def number(self, tensor: Tensor) -> Any:
        """The element of a captured tensor as a Python number."""
        return number_of(tensor) if isinstance(tensor.payload, Value) else None

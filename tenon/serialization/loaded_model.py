"""A model from a file -> a module whose functions run as compiled graphs.

    model = tn.load("model.safetensors")
    y = model(x)                        # the function, or the first of several
    model.encode(x)                     # by name

A call finds the graph that fits its sizes and runs it as `tn.jit` runs a capture: compiled, recorded where a gradient
is wanted, tensors of the state updated in place.  Within a capture or a batch, it is the operators of its graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.autocast import narrowing
from tenon.capture.captured import Captured, Inputs
from tenon.capture.conditional_gradients import use
from tenon.capture.convert.reachable import OfCapture
from tenon.capture.fast_call import make_fast_call
from tenon.capture.fast_call_table import FastCallTable, added, without
from tenon.capture.guards import Guards
from tenon.capture.jitted import FAST_CALL_AT
from tenon.capture.match_arguments import MISS
from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.capture.pytree import unfold
from tenon.capture.replay import run
from tenon.capture.result_leaves import FromGraph
from tenon.capture.store_results import Fill, RunResults, Stopped, fits
from tenon.context_values import during
from tenon.dims.symbolic_dim import Dim, SymbolicDim
from tenon.eager.grad_mode import is_grad_enabled, no_grad, recording
from tenon.errors import ArgumentError, ShapeError, TenonError
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import AUTOTUNE, DONATED, MEMORY_BUDGET, UPDATES, Graph, Value
from tenon.graph.op import at_once, interpreter
from tenon.graph.size_stages import substituted
from tenon.graph.verify import sized, verify_sizes
from tenon.migration_hints import MODULE
from tenon.nn.module import Module, Parameter
from tenon.ops.creation import zeros
from tenon.records import dataclass, field, replace
from tenon.serialization.bind_arguments import leaves_of, signature
from tenon.serialization.open_sizes import open_sizes
from tenon.serialization.saved_function import Function, Model, Variant
from tenon.tensor import Tensor
from tenon.tensor_state import last_change, recorder


class LoadedModel(Module):
    """Functions that share state, from a file.  `parameters()`, `state_dict()` and the rest are those of any module."""

    def __init__(self, model: Model):
        self.__dict__["model"] = model
        self.__dict__["functions"] = {name: LoadedFunction(f) for name, f in model.functions.items()}
        self.__dict__["first"] = next(iter(self.functions.values()))
        self.__dict__["_persistent"] = {name: True for name, x in model.state.items() if not isinstance(x, Parameter)}

    def _members(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__["model"].state.items())

    def __getattr__(self, name: str) -> Any:
        functions = self.__dict__.get("functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(f"a loaded model has no function or attribute {name!r}; its functions are "
                             f"{', '.join(functions)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The first of its functions."""
        first: LoadedFunction = self.__dict__["first"]
        return first(*args, **keywords)

    forward = __call__

    def __repr__(self) -> str:
        rows = [f"  {function!r}" for function in self.functions.values()]
        count = sum(int(x.size) for x in {id(x): x for x in self.model.state.values()}.values())
        return "\n".join(["LoadedModel(", *rows, f"  {len(self.model.state)} tensors, {count:,} elements", ")"])


for _name in MODULE.keys() & vars(Module).keys():
    setattr(LoadedModel, _name, vars(Module)[_name])


class LoadedFunction(OfCapture):
    """One function of a file.  What it remembers of calls is no state of the user's, where it is part of a capture."""

    def __init__(self, function: Function):
        self.function, self.__name__ = function, function.name
        self.variants = [Runnable(variant, function.options) for variant in function.variants]
        self._fast_calls: FastCallTable = ()

    def __repr__(self) -> str:
        return f"{self.function.name}({signature(self.function)})"

    @property
    def graph(self) -> Graph:
        """The graph of the first variant, as it was captured."""
        return self.function.variants[0].graph

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        inside = not at_once() or recorder.get() is not None
        if not inside:
            for recorded, call in self._fast_calls:
                if recorded is recording():
                    result = call(args, keywords)
                    if result is not MISS:
                        return result
        leaves = leaves_of(self.function, args, keywords)
        for runnable in self.variants:
            sizes = runnable.sizes(leaves)
            if sizes is not None and runnable.serves(leaves, is_grad_enabled()):
                if inside:
                    return runnable.applied(leaves, sizes)
                captured = runnable.ready(leaves, sizes)
                captured.calls += 1
                if captured.calls in FAST_CALL_AT:
                    self._add_fast_call(captured, args, keywords, leaves)
                return runnable.run(captured, leaves)
        given = ", ".join(str(x.type) for k, x in enumerate(leaves) if k not in self.function.values)
        raise ShapeError(f"{self.function.name} takes ({signature(self.function)}), and is given ({given})",
                         hint="it was saved for other sizes: name the axes that change, as in 'f32[B, 3]'")

    def _add_fast_call(self, captured: Captured, args: Any, keywords: Any, leaves: Sequence[Any]) -> None:
        """Make a fast path for calls like this one, as `tn.jit` does, where its leaves stand as the file has them."""
        given, structure, containers = unfold((args, keywords))
        if len(given) != len(leaves) or any(x is not y for x, y in zip(given, leaves, strict=True)):
            return
        call = make_fast_call(captured, structure, given, containers)
        if call is not None:
            table, captured.fast_call = without(self._fast_calls, [captured.fast_call]), call
            self._fast_calls = added(table, recording(), call)


@dataclass(eq=False)
class Runnable:
    """A variant with its programs, one for each set of inputs that gradients are wanted of."""

    variant: Variant
    options: Mapping[str, Any]
    captures: dict[tuple[int, ...], Captured] = field(default_factory=dict)
    verified: set[tuple[int, ...]] = field(default_factory=set)     # the sizes for which the graph is right
    checked: object = None                  # the last change of a tensor when the state was of the right types

    def sizes(self, leaves: Sequence[Any]) -> Mapping[str, Any] | None:
        """The sizes of the symbols in a call, symbols in an open capture; None where the variant is for other ones."""
        sizes: dict[str, int] = {}
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        if not at_once() and any(isinstance(n, SymbolicDim) for x in tensors for n in x.type.shape):
            return open_sizes(self.variant.types, [x.type.shape for x in tensors], self.variant.assumptions)
        pairs = [(type, tuple(map(int, x.shape))) for type, x in zip(self.variant.types, tensors, strict=True)]
        for _ in range(2):          # all symbols are known in the second turn
            if not all(fits(type, shape, sizes) for type, shape in pairs):
                return None
        return sizes if self.variant.assumptions.hold(sizes) else None

    def serves(self, leaves: Sequence[Any], recording: bool) -> bool:
        """Whether the variant is for calls that are recorded, or are not, and for the gradients that are there."""
        variant = self.variant
        if variant.accumulates is not None and any(
                (_holder(source, leaves).grad is not None) is not variant.accumulates
                for source, result in variant.gradients if result is not None):
            return False
        return variant.recording is None or variant.recording is bool(recording and self.wanted(leaves))

    def wanted(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        """The parameters whose gradients may be wanted."""
        graph, carrying = self.variant.graph, self.variant.carrying
        return tuple(k for k, source in enumerate(self.variant.sources)
                     if not isinstance(source, GradientOf) and getattr(_holder(source, leaves), "requires_grad", False)
                     and any(use(graph, k, r) is not False for r in carrying))

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise an error unless the graph may run with these sizes, on the state as it is."""
        key = tuple(sizes.values())
        if sizes and key not in self.verified:
            verify_sizes(self.variant.graph, sizes)
            self.verified.add(key)
        if self.checked is not last_change():
            now = last_change()
            self.check_state()
            self.checked = now

    def check_state(self) -> None:
        """Raise an error unless the state is of the types that the graph was made for."""
        for k, x in self.variant.held.items():
            if x.type != self.variant.graph.params[k].type:
                raise ArgumentError(f"{self.variant.graph.name}: a tensor of its state became {x.type}, and it "
                                    f"was saved with {self.variant.graph.params[k].type}")

    def ready(self, leaves: Sequence[Any], sizes: Mapping[str, int]) -> Captured:
        """What runs a call."""
        self.check(sizes)
        for source in self.variant.sources:
            if isinstance(source, GradientOf) and (x := _holder(source.source, leaves)).grad is None:
                x.grad = zeros(x.shape, dtype=x.dtype)
        return self.capture(self.wanted(leaves) if is_grad_enabled() else ())

    def run(self, captured: Captured, leaves: Sequence[Any]) -> Any:
        """A call; raises what the graph raises."""
        try:
            return run(captured, leaves)
        except Stopped as stopped:
            if isinstance(stopped.error, TenonError):
                raise stopped.error from None
            raise

    def capture(self, wanted: tuple[int, ...] = ()) -> Captured:
        """What `tn.jit` would have captured, with gradients of these parameters."""
        found = self.captures.get(wanted)
        return found or self.captures.setdefault(wanted, _captured(self.variant, wanted, self.options))

    def applied(self, leaves: Sequence[Any], sizes: Mapping[str, Dim]) -> Any:
        """The same by operator calls, which the innermost interpreter understands.

        Nothing is remembered: within a capture that would be an effect of the function.
        """
        variant, graph = self.variant, _with_sizes(self.variant.graph, sizes)
        self.check_state()
        if variant.failed is not None:
            raise ArgumentError(f"{variant.graph.name} fails for some data, so it is no part of another graph",
                                hint="call it outside of the jitted function")
        with during(narrowing, None):
            inputs = [_holder(source, leaves) for source in variant.sources]
            results = apply_graph(graph, inputs)
        results = [x if k in variant.carrying else x.detach() for k, x in enumerate(results)]
        fill = FillApplied(variant.types, leaves, Applied(results), ())
        for source, k, carries in variant.assigned:
            if carries:
                _holder(source, leaves)._rebind(results[k])
            else:
                with no_grad():
                    _holder(source, leaves).assign(results[k])
        for source, result in variant.gradients:
            _holder(source, leaves).grad = None if result is None else results[result]
        return variant.output.build(fill)


class Applied(RunResults):
    """Results that are tensors of whoever interprets the call."""

    def __init__(self, tensors: Sequence[Any]):
        super().__init__(())
        self.tensors = tensors

    def __getitem__(self, k: int) -> Any:
        return self.tensors[k]


class FillApplied(Fill):
    """Leaves of a nest -> those tensors."""

    def finished(self, leaf: Any) -> Any:
        found = self.results[leaf.index]
        return found.item() if leaf.number else found


def _holder(source: Source, leaves: Sequence[Any]) -> Any:
    """The tensor that a source stands for."""
    if isinstance(source, Argument):
        return leaves[source.position]
    return source.holder if isinstance(source, Held) else _holder(source.source, leaves).grad


def _with_sizes(graph: Graph, sizes: Mapping[str, Dim]) -> Graph:
    """The graph for these sizes; raises an error unless they are right for it."""
    numbers = {name: size for name, size in sizes.items() if isinstance(size, int)}
    if len(numbers) < len(sizes):
        return substituted(graph, sizes)
    if numbers:
        verify_sizes(graph, numbers)
    return _with_numbers(graph, tuple(numbers.items()))


@once_a_graph
def _with_numbers(graph: Graph, sizes: tuple[tuple[str, int], ...]) -> Graph:
    return sized(graph, dict(sizes)) if sizes else graph


def apply_graph(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The results of the graph's operators on these tensors, as the innermost interpreter understands them."""
    values: dict[Value, Any] = dict(zip(graph.params, inputs, strict=True))
    for node in graph.nodes:
        given = tuple([values[x] if isinstance(x, Value) else x for x in node.inputs])
        out = interpreter().apply(node.op, given, dict(node.attrs))
        values.update(zip(node.outputs, out if isinstance(out, tuple) else (out,), strict=True))
    return [values[r] for r in graph.results]


def _captured(variant: Variant, wanted: tuple[int, ...], options: Mapping[str, Any]) -> Captured:
    """What `tn.jit` would have captured here, with gradients of these inputs."""
    constants = () if wanted or not options.get("constants", True) else variant.constants
    returned = variant.output
    output = returned if wanted else replace(returned, leaves=tuple(map(_without_tape, returned.leaves)))
    captured = Captured(
        variant.graph, list(variant.sources), list(variant.types), Guards([]), variant.assumptions,
        output, list(variant.assigned), list(variant.gradients), effects=[], flags=[],
        differentiable=bool(wanted), wanted=wanted,
        held=[(x, x.requires_grad, x.grad is None, x.type, None) for x in variant.all_held()], same=[],
        inputs=Inputs(variant.sources), outside=frozenset(), apart=frozenset(), codes=frozenset(),
        constants=constants, by_data=variant.by_data, failed=variant.failed,
        raising=variant.raising)
    notes = {MEMORY_BUDGET: options.get("memory_budget"), AUTOTUNE: options.get("autotune"),
             DONATED: None if wanted else captured.donations or None,
             UPDATES: None if wanted else captured.updates or None}
    captured.graph = replace(variant.graph, notes={name: x for name, x in notes.items() if x is not None})
    return captured


def _without_tape(leaf: Any) -> Any:
    """A result of a call that is not recorded."""
    carried = isinstance(leaf, FromGraph) and not (leaf.released or leaf.is_leaf)
    return replace(leaf, requires_grad=False) if carried else leaf

"""A function of the user's, and what it takes -> the function as data.

    function = export("step", step, (x, "f32[B, 3]"))

The function is captured for the types given: for calls that record gradients and for those that do not, where these
differ, and for the sizes 0 and 1 of a dynamic axis, which broadcast.  Nothing of it is run.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.capture.capture_cache import argument_names
from tenon.capture.capture_run import Attempt
from tenon.capture.captured import Captured
from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.capture.pytree import flatten
from tenon.capture.result_leaves import FromGraph, FromOutside, OneOf, ResultNest, SharedLeaf
from tenon.capture.store_results import Stopped, fits, in_words
from tenon.dims.symbolic_dim import Dim, PinnedSize, substitute
from tenon.dims.undecided_sizes import UndecidedSize
from tenon.eager.grad_mode import enable_grad, no_grad
from tenon.errors import ArgumentError, CaptureError, TenonError
from tenon.graph.ir import Graph
from tenon.graph.text import print_graph
from tenon.nn.module import Module
from tenon.records import dataclass, replace
from tenon.serialization.input_types import Sample, arguments_of, sample_of
from tenon.serialization.kept_effects import kept_effects
from tenon.serialization.saved_function import Function, Variant
from tenon.serialization.size_conditions import without_conditions
from tenon.serialization.structure_json import nameless
from tenon.tensor import Tensor

SMALL_SIZES = (2, 3, 4, 5)
MAX_REFINED = 8         # symbols of a function that turn out to be multiples


def export(name: str, function: Callable[..., Any], inputs: Any, dynamic: Mapping[str, Any] | None = None,
           known: dict[Any, Tensor] | None = None) -> Function:
    """The function as data; `known` are the tensors that stand for arrays, shared by several functions.

    Raises ArgumentError or CaptureError, with the user's line, where it cannot be.
    """
    plain = PlainFunction.of(name, function, {} if known is None else known)
    args, keywords = arguments_of(inputs)
    names = plain.names(args, keywords)
    sample = sample_of(args, keywords, names, dynamic or {})
    variants = _for_symbols(plain, sample)
    for special in (*sample.without_symbols(), *_small(sample, variants)):
        try:
            variants += plain.variants(special, next(iter(special.sizes_to_try())))
        except TenonError:
            continue            # the function takes no such sizes
    for variant in variants:
        _check_operators(variant.graph)
    positional = tuple(plain.names(tuple(None for _ in args), {}))
    return Function(name, tuple(names), positional, nameless(sample.structure), sample.values, tuple(variants),
                    plain.options)


def _for_symbols(plain: PlainFunction, sample: Sample) -> list[Variant]:
    """The captures in which sizes are symbols: as many as it takes for small and large ones, even and odd."""
    variants: list[Variant] = []
    problem: TenonError | None = None
    for sizes in sample.sizes_to_try():
        if any(_serves(variant, sample, sizes) for variant in variants):
            continue
        try:
            variants += without_conditions(plain.variants(sample, sizes), sample, plain.variants)
        except TenonError as error:
            problem = problem or error      # another size may be one that the function takes
    if not variants and problem is not None:
        raise problem
    return variants


def _small(sample: Sample, variants: Sequence[Variant]) -> list[Sample]:
    """Small sizes that are no multiples of a symbol, where the function asked for multiples."""
    sizes = [dict.fromkeys(sample.symbols, n) for n in SMALL_SIZES if sample.symbols]
    return [sample.with_sizes(x) for x in sizes if not any(_serves(variant, sample, x) for variant in variants)]


class Coincidence(CaptureError):
    """A size that may change is compared with a number, and is that number in this capture."""


def _serves(variant: Variant, sample: Sample, sizes: Mapping[str, int]) -> bool:
    """Whether a variant is right for these sizes."""
    known: dict[str, int] = {}
    shapes = [tensor.shape for tensor in sample.tensors(sizes, False) if hasattr(tensor, "shape")]
    return all(fits(type, shape, known) for _ in range(2) for type, shape in zip(variant.types, shapes, strict=True)) \
        and variant.assumptions.hold(known)


def _check_operators(graph: Graph) -> None:
    """Raise ArgumentError for an operator of the user's, which a file cannot hold."""
    for node in graph.nodes:
        if not node.op.is_own:
            raise ArgumentError(f"save: the operator {node.op.name} is not Tenon's own, and a file holds no code",
                                where=node.loc, hint="write it with Tenon's operators")
        for body in node.graphs:
            _check_operators(body)


# ---------------------------------------------------------------- one function

@dataclass(frozen=True)
class PlainFunction:
    """A function behind what wraps it; `before` is the object that a method belongs to, `known` as in `export`."""

    name: str
    function: Any
    before: tuple[Any, ...]
    options: Mapping[str, Any]
    known: dict[Any, Tensor]

    @staticmethod
    def of(name: str, function: Any, known: dict[Any, Tensor]) -> PlainFunction:
        """Raises ArgumentError for what cannot be called."""
        options: dict[str, Any] = {}
        before: tuple[Any, ...] = ()
        while isinstance(function, (Jitted, types.MethodType)):
            if isinstance(function, types.MethodType):
                function, before = function.__func__, (function.__self__,)
            else:
                options = {"memory_budget": function.memory_budget, "autotune": function.autotune,
                           "constants": function.constants}
                function = function.function
        if not callable(function):
            raise ArgumentError(f"save: {name} is a {type(function).__name__}, which cannot be called")
        return PlainFunction(name, function, before, {k: x for k, x in options.items() if x not in (None, False)},
                             known)

    def names(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[str]:
        """The names of the leaves of these arguments."""
        called, own = self._definition
        return argument_names(called, flatten(((*own, *args), dict(keywords)))[1])[len(own):]

    @property
    def _definition(self) -> tuple[Any, tuple[None, ...]]:
        """What states the names of the parameters, and a None for the one that is the object itself."""
        if hasattr(self.function, "__code__"):
            return self.function, tuple(None for _ in self.before)
        kind: Any = type(self.function)
        is_layer = isinstance(self.function, Module) and kind.__call__ is Module.__call__
        return (kind.forward if is_layer else kind.__call__), (None,)

    def variants(self, sample: Sample, sizes: Mapping[str, int]) -> list[Variant]:
        """The captures for these types: one for all calls, or one for those that are recorded and one for others."""
        try:
            with enable_grad():
                recorded = self.variant(sample, sizes, requires_grad=True)
        except Coincidence:
            raise
        except TenonError:
            return [self.variant(sample, sizes)]
        if any(isinstance(source, Argument) for source, _ in recorded.gradients):
            recorded = self.variant(sample, sizes)      # it calls backward() itself
        left = [source.holder for source, result in recorded.gradients
                if result is not None and isinstance(source, Held) and isinstance(source.holder, Tensor)]
        if left:
            return self.accumulating(sample, sizes, left)
        try:
            with no_grad():
                other = self.variant(sample, sizes)
        except TenonError:
            return [recorded]
        if print_graph(other.graph) == print_graph(recorded.graph):
            return [recorded]
        return [replace(recorded, recording=True), replace(other, recording=False)]

    def accumulating(self, sample: Sample, sizes: Mapping[str, int], left: Sequence[Tensor]) -> list[Variant]:
        """The captures of a function that leaves gradients on these tensors: where there are some, and where not."""
        found, before = [], [x.grad for x in left]
        try:
            for there in (False, True):
                for x in left:
                    x.grad = _empty_like(x) if there else None
                found.append(replace(self.variant(sample, sizes), accumulates=there))
        finally:
            for x, gradient in zip(left, before, strict=True):
                x.grad = gradient
        return found

    def variant(self, sample: Sample, sizes: Mapping[str, int], requires_grad: bool = False) -> Variant:
        """One capture, with symbols that are multiples where the function needs that they are."""
        known: dict[str, Dim] = {}
        for _ in range(MAX_REFINED):
            refined = sample.with_sizes(known)
            try:
                return self._captured(refined, sample.tensors(sizes, requires_grad))
            except PinnedSize as pinned:
                if pinned.solution is None:
                    raise _needs_number(self.name, pinned) from None
                known = {name: substitute(dim, dict([pinned.solution])) for name, dim in known.items()}
                known |= [pinned.solution]
            except UndecidedSize as error:
                raise CaptureError(f"save: {self.name} cannot have dynamic sizes: {error.what}") from None
        raise CaptureError(f"save: {self.name} compares its dynamic sizes in too many ways")

    def _captured(self, sample: Sample, leaves: Sequence[Any]) -> Variant:
        before, _ = flatten(self.before)
        args, keywords = sample.structure.build(leaves)
        given, structure = flatten(((*self.before, *args), keywords))
        types_before = [x.type for x in before if hasattr(x, "own")]
        attempt = partial(Attempt, self.function, self.name)
        problem: Exception
        for converting in (False, True):
            try:
                captured = attempt(converting, given, structure, [*types_before, *sample.types.values()]).capture()
                return _variant(self.name, captured, before, self.known)
            except UnsafeCall as unsafe:
                problem = CaptureError(f"save: {self.name} cannot be saved: {unsafe.what}", where=unsafe.where,
                                       hint=unsafe.hint)
                if converting or not unsafe.convertible:
                    break
            except Stopped as stopped:
                if isinstance(stopped.error, TenonError):
                    raise stopped.error from None
                problem = ArgumentError(f"save: {self.name} raises {type(stopped.error).__name__}: {stopped.error}")
                break
        raise problem from None


def _needs_number(name: str, pinned: PinnedSize) -> CaptureError:
    kind = Coincidence if pinned.agreed else CaptureError
    return kind(f"save: {name} needs the number behind the size {', '.join(sorted(pinned.names))}",
                hint="give it a number in the inputs, or do without int(x.shape[k]) there")


def _empty_like(x: Tensor) -> Tensor:
    """A gradient for `x`, of which only the type matters."""
    return Tensor(np.broadcast_to(np.zeros((), x.dtype.numpy), np.shape(x)))


# ---------------------------------------------------------------- what a capture leaves

def _variant(name: str, captured: Captured, before: Sequence[Any], known: dict[Any, Tensor]) -> Variant:
    """The capture without the Python that it was made from; raises ArgumentError for what a file does not hold."""
    if captured.flags:
        raise ArgumentError(f"save: {name} sets requires_grad of a tensor", hint="set it before")
    source_of = partial(_source, before=before, known=known)
    output, kept = kept_effects(name, captured)
    numbered = _Numbers()
    leaves = tuple(_leaf(x, source_of, numbered) for x in output.leaves)
    carrying = frozenset(_carrying(output.leaves))
    gradients = []
    for source, result in captured.gradients:
        if not (result is None or isinstance(result, int)):
            raise ArgumentError(f"save: the data decide whether {name} leaves a gradient", hint="call zero_grad()")
        gradients.append((source_of(source), result))
    return Variant(
        captured.graph, tuple(map(source_of, captured.sources)), tuple(captured.types[_tensors_in(before):]),
        ResultNest(nameless(output.structure), leaves),
        (*((source_of(source), result, carries) for source, result, carries in captured.assigned), *kept),
        tuple(gradients), captured.assumptions, carrying, captured.by_data, captured.failed,
        raising=tuple(dict.fromkeys(map(in_words, captured.raising))))


def _tensors_in(leaves: Sequence[Any]) -> int:
    return sum(hasattr(x, "own") for x in leaves)


def _source(source: Source, before: Sequence[Any], known: dict[Any, Tensor]) -> Source:
    """The source, counted from the user's first argument: what a method's object holds is state, and so are arrays."""
    if isinstance(source, GradientOf):
        inner = _source(source.source, before, known)
        assert not isinstance(inner, GradientOf)
        return GradientOf(inner)
    if isinstance(source, Argument):
        k = source.position - len(before)
        return Argument(k) if k >= 0 else Held(before[source.position])
    if isinstance(source.holder, Tensor):
        return source
    array = source.holder
    key = (array.dtype, array.shape, hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest())
    return Held(known.setdefault(key, Tensor(array.copy())))


class _Numbers(dict[Any, int]):
    """Names of what is left in several places -> numbers from 0."""

    def __missing__(self, name: Any) -> int:
        self[name] = len(self)
        return self[name]


def _leaf(leaf: Any, source_of: Callable[[Source], Source], numbered: _Numbers) -> Any:
    """A leaf of the result, with the sources of a file."""
    if isinstance(leaf, FromOutside):
        return FromOutside(source_of(leaf.source))
    if isinstance(leaf, OneOf):
        return OneOf(tuple((p if p is True else _leaf(p, source_of, numbered), _nest(nest, source_of, numbered))
                           for p, nest in leaf.options))
    if isinstance(leaf, SharedLeaf):
        return SharedLeaf(numbered[leaf.name], _nest(leaf.nest, source_of, numbered))
    if isinstance(leaf, FromGraph):
        return replace(leaf, kind=None, grad=None, name=None if leaf.name is None else numbered[leaf.name])
    return leaf


def _nest(nest: ResultNest, source_of: Callable[[Source], Source], numbered: _Numbers) -> ResultNest:
    return ResultNest(nameless(nest.structure), tuple(_leaf(x, source_of, numbered) for x in nest.leaves))


def _carrying(leaves: Sequence[Any]) -> Iterator[int]:
    """The results through which gradients flow back."""
    for leaf in leaves:
        if isinstance(leaf, FromGraph) and leaf.requires_grad and not (leaf.released or leaf.is_leaf):
            yield leaf.index
        elif isinstance(leaf, OneOf):
            yield from (k for _, nest in leaf.options for k in _carrying(nest.leaves))
        elif isinstance(leaf, SharedLeaf):
            yield from _carrying(leaf.nest.leaves)

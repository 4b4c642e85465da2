"""`tn.custom_vjp`: a function whose gradient the user writes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from tenon.capture.custom_rules import TENSOR, CustomRule
from tenon.capture.pytree import Structure, flatten, form
from tenon.context_values import during
from tenon.errors import ArgumentError, ShapeError
from tenon.tensor import Tensor, asarray
from tenon.transforms.apply_custom_rule import apply_rule
from tenon.transforms.differentiate import NUMBERS, LeafNest, is_differentiable

_forward_of: ContextVar[tuple[custom_vjp, ...]] = ContextVar("forward_of", default=())    # whose fwd runs


class custom_vjp:
    """A function with a gradient rule of its own, set by `f.defvjp(fwd, bwd)`.

    `fwd(*args)` returns (what `f(*args)` returns, whatever the gradient needs); `bwd(kept, g)` returns a tuple with
    the gradient of every positional argument, None for zero.  Arguments, results and what is kept are nests.  The rule
    holds in `tn.jit`, in `tn.vmap` and for higher derivatives, which differentiate `bwd`.  `fwd` may call `f`.

    >>> @tn.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda kept, g: (tn.clip(g, -1.0, 1.0),))
    >>> tn.grad(lambda x: (10 * clipped(x)).sum())(tn.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, function: Callable[..., Any]):
        if not callable(function):
            raise ArgumentError(f"custom_vjp takes a function, not {type(function).__name__}")
        functools.update_wrapper(self, function)
        self.function = function
        self._name: str = getattr(function, "__name__", "function").strip("<>")
        self._rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self._reads: tuple[Any, ...] = ()       # what the rule is made of, where that is not the user's own functions
        self._takes_none = False        # whether bwd is told None for results that nothing depends on, not zeros

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rule."""
        for what, rule in (("fwd", fwd), ("bwd", bwd)):
            if not callable(rule):
                raise ArgumentError(f"{self._name}.defvjp: {what} is not a function but {type(rule).__name__}")
        self._rules = fwd, bwd

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self._rules is None:
            raise ArgumentError(f"{self._name} has no gradient rule yet", hint=f"{self._name}.defvjp(fwd, bwd)")
        call = CustomCall(self, *self._rules, self._positional(args, keywords), self._name)
        if not call.inputs.tensors:
            return self.function(*args, **keywords)
        return call.run()

    def _positional(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments in the order of the parameters."""
        if not keywords:
            return args
        bound = inspect.signature(self.function).bind(*args, **keywords)
        if bound.kwargs:
            raise ArgumentError(f"{self._name}: {next(iter(bound.kwargs))!r} can only be passed by keyword, and rules "
                                "get positional arguments", hint="take the * out of the parameters")
        return bound.args


class CustomCall:
    """One call: the rule on nests, made into a rule on flat lists of tensors."""

    def __init__(self, whole: custom_vjp, fwd: Callable[..., Any], bwd: Callable[..., Any], args: tuple[Any, ...],
                 name: str):
        self.whole, self.function, self.fwd, self.bwd, self.name = whole, whole.function, fwd, bwd, name
        leaves, structure = flatten(args)
        self.inputs = LeafNest(tuple(leaves), structure)
        self.output: Structure | None = None            # of the last run of the function
        self.others: list[Any] = []                     # leaves of its result that are no tensors
        self.kept: Structure | None = None

    def run(self) -> Any:
        """The result."""
        rule = CustomRule(self.primal, self.forward, self.backward, self.name, _forward_of.get().count(self.whole),
                          self.whole._takes_none, (*self.whole._reads, self.function, self.fwd, self.bwd,
                                                   *self.inputs.leaves))
        results = iter(apply_rule(rule, self.inputs.tensors))
        assert self.output is not None
        return self.output.build(next(results) if x is TENSOR else x for x in self.others)

    def primal(self, tensors: list[Tensor]) -> list[Tensor]:
        """The function."""
        return self._tensors(self.function(*self.inputs.replace(tensors)), None)

    def forward(self, tensors: list[Tensor]) -> tuple[list[Tensor], list[Any]]:
        """The function, and what to keep."""
        with during(_forward_of, (*_forward_of.get(), self.whole)):
            pair = self.fwd(*self.inputs.replace(tensors))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(f"{self.name}: fwd must return a pair, (result, what bwd needs)")
        kept, self.kept = flatten(pair[1])
        return self._tensors(pair[0], self.output), kept

    def backward(self, kept: list[Any], seeds: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients of the inputs."""
        assert self.kept is not None and self.output is not None
        given = iter(seeds)
        g = self.output.build(next(given) if x is TENSOR else None for x in self.others)
        found = self.bwd(self.kept.build(kept), g)
        arguments = self.inputs.structure.children
        if not isinstance(found, (tuple, list)) or len(found) != len(arguments):
            shown = f"{len(found)}" if isinstance(found, (tuple, list)) else f"a {type(found).__name__}"
            raise ArgumentError(f"{self.name}: bwd must return a tuple of {len(arguments)}, a gradient for each "
                                f"argument, not {shown}")
        leaves = iter(self.inputs.leaves)
        return [gradient for k, (part, structure) in enumerate(zip(found, arguments, strict=True))
                for gradient in self._gradients(k, part, structure, [next(leaves) for _ in range(structure.leaves)])]

    def _gradients(self, k: int, part: Any, structure: Structure, like: Sequence[Any]) -> list[Tensor | None]:
        leaves, found = ([None] * len(like), structure) if part is None else flatten(part)
        if found != structure:
            raise ArgumentError(f"{self.name}: bwd must return a nest of the form {form(structure)} for argument {k}, "
                                f"not {form(found)}")
        gradients: list[Tensor | None] = []
        for leaf, x in zip(leaves, like, strict=True):
            if is_differentiable(x):
                g = asarray(leaf) if isinstance(leaf, NUMBERS) else leaf
                if g is not None and (not isinstance(g, Tensor) or g.shape != x.shape):
                    shown = g.type if isinstance(g, Tensor) else type(g).__name__
                    raise ShapeError(f"{self.name}: bwd returned {shown} for argument {k}, which is {x.type}")
                gradients.append(g)
        return gradients

    def _tensors(self, result: Any, expected: Structure | None) -> list[Tensor]:
        """The tensors of a result; a fwd must return a nest of the function's form."""
        leaves, structure = flatten(result)
        leaves = [asarray(x) if isinstance(x, NUMBERS) and not isinstance(x, bool) else x for x in leaves]
        if expected is not None and structure != expected:
            raise ArgumentError(f"{self.name}: fwd returns {form(structure)}, the function {form(expected)}")
        self.output = structure
        self.others = [TENSOR if isinstance(x, Tensor) else x for x in leaves]
        return [x for x in leaves if isinstance(x, Tensor)]

"""An operator: one object that says everything Tenon knows about it.

    relu = Op("relu", type=lambda x: x, ref=..., vjp=..., compute=..., examples=[...])

The signature of `type` is the signature of the operator: positional parameters are data (a default of None makes one
optional, `*xs` takes any number), keyword-only parameters are static attributes.  Exactly one of these is its meaning:

    compute(s, i, *loads, **attrs)   the scalar at output index `i`; `s` is whoever asks (loops.expression_builder)
    expand(*inputs, **attrs)         the same thing in simpler operators
    fill(s, *loads, **attrs)         loops that store the output in an order (tenon.loops.lower_fill)
    host                             only `ref`: a step that NumPy does at run time

Calling an operator asks the innermost interpreter what the call means: evaluate, record, or rewrite.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol

from tenon.context_values import during
from tenon.errors import KNOWN_CODE, ArgumentError, TenonError
from tenon.gc_control import COLLECTOR
from tenon.graph.argument_errors import MISUSE, misused
from tenon.graph.out_argument import written
from tenon.graph.synonyms import axis_first, renamed
from tenon.records import dataclass, field
from tenon.types import TensorType

Types = TensorType | tuple[TensorType, ...]
Domain = Sequence[Any]
NumPyCall = tuple[Callable[..., Any], tuple[Any, ...]]       # what is called, and with what behind the arrays


class Interpreter(Protocol):
    """Decides what an operator call means."""

    records: bool       # whether calls become part of something that is made once

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The outputs (one, or a tuple) of `op`; `inputs` are tensors, values, Python scalars or None."""

    def lift(self, x: Any) -> Any:
        """What this interpreter calls a tensor, made from an argument; numbers and None stay as they are."""


OPS: dict[str, Op] = {}
innermost: ContextVar[Interpreter | None] = ContextVar("interpreter", default=None)
_default: list[Interpreter] = []
current = innermost.get      # None where calls are evaluated at once


def interpreter() -> Interpreter:
    """The innermost interpreter; eager evaluation if there is none."""
    return innermost.get() or _default[-1]


def at_once() -> bool:
    """Whether calls are evaluated at once: there is no interpreter, or one that only says where."""
    inner = innermost.get()
    return inner is None or getattr(inner, "at_once", False)


def set_default_interpreter(default: Interpreter) -> None:
    """Let `default` decide wherever no `using` is in force."""
    _default.append(default)


Full = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]      # arguments, keywords -> what is returned
Shortcut = Callable[[Any, Full, tuple[Any, ...], Mapping[str, Any]], Any]


def in_full(target: Any, full: Full, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """A call of an operator or public function that no interpreter asks about."""
    return full(args, keywords)


cached_call: Shortcut = in_full


def set_call_cache(shortcut: Shortcut) -> None:
    """Let `shortcut(target, full, args, keywords)` make the calls that no interpreter asks about."""
    global cached_call
    cached_call = shortcut


def using_default() -> AbstractContextManager[Any]:
    """Let no interpreter decide in this block: calls are evaluated at once, in plain memory."""
    return during(innermost, None)


@contextmanager
def using(inner: Interpreter) -> Iterator[Interpreter]:
    """Let `inner` decide what operator calls mean in this block, in this thread; no finalizer's, where it records."""
    with COLLECTOR if inner.records else nullcontext():
        token = innermost.set(inner)
        try:
            yield inner
        finally:
            innermost.reset(token)


@dataclass(frozen=True, eq=False)
class Signature:
    """How arguments of a call divide into data and attributes."""

    data: tuple[str, ...]
    optional: int                       # how many of the last data parameters may be None
    variadic: bool
    attrs: Mapping[str, Any]            # attribute -> default; inspect.Parameter.empty where there is none

    fixed: bool                         # all attributes have defaults, and the data are not variadic
    names: tuple[str, ...]              # of all parameters

    @staticmethod
    def of(rule: Callable[..., Any]) -> Signature:
        # Read off the code object: `inspect.signature` for every operator would be a third of the time to import.
        rule = inspect.unwrap(rule)
        code, names = rule.__code__, rule.__code__.co_varnames
        keywords = names[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
        defaults = rule.__kwdefaults__ or {}
        attrs = {name: defaults.get(name, inspect.Parameter.empty) for name in keywords}
        variadic = bool(code.co_flags & inspect.CO_VARARGS)
        return Signature(names[:code.co_argcount], sum(default is None for default in rule.__defaults__ or ()),
                         variadic, attrs, not variadic and inspect.Parameter.empty not in attrs.values(),
                         (*names[:code.co_argcount], *attrs))

    def __str__(self) -> str:
        required = len(self.data) - self.optional
        names = [n if k < required else f"{n}=None" for k, n in enumerate(self.data)] + ["*tensors"] * self.variadic
        empty = inspect.Parameter.empty
        return ", ".join(names + [n if d is empty else f"{n}={d!r}" for n, d in self.attrs.items()])

    def bind(self, name: str, args: Sequence[Any],
             keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Divide a call's arguments into data inputs and attributes."""
        if self.fixed and not keywords and len(args) == len(self.data):
            for x in args:
                if x is None:
                    break
            else:
                return tuple(args), dict(self.attrs)
        args, keywords = axis_first(self.names, tuple(args), renamed(self.names, keywords))
        keywords = dict(keywords)
        if self.variadic:
            listed = bool(args) and isinstance(args[0], (tuple, list))
            inputs, extra = (tuple(args[0]), args[1:]) if listed else (tuple(args), ())
        else:
            inputs, extra = tuple(args[:len(self.data)]), args[len(self.data):]
            inputs += tuple(keywords.pop(n, None) for n in self.data[len(inputs):])
        if len(extra) > len(self.attrs):
            raise ArgumentError(f"{name} takes ({self}), and {len(args)} positional arguments were given")
        keywords.update(zip(self.attrs, extra, strict=False))
        attrs = {n: keywords.pop(n, default) for n, default in self.attrs.items()}
        missing = [n for n, value in attrs.items() if value is inspect.Parameter.empty]
        missing += [n for n, x in zip(self.data[:len(self.data) - self.optional], inputs, strict=False) if x is None]
        if keywords or missing:
            passed = missing and missing[0] in self.data[:len(args)]
            problem = f"no argument {next(iter(keywords))!r}" if keywords else \
                f"expected a tensor, an array or a number for {missing[0]!r}, not None" if passed else \
                f"{missing[0]!r} is missing"
            raise ArgumentError(f"{name}: {problem}", hint=f"its arguments are ({self})")
        return inputs, attrs


class CallStart:
    """What a call of an operator looks at first, where machine code finds it too."""

    __slots__ = ("arity", "quick")
    arity: int                              # how many data parameters there are
    quick: Callable[..., Any] | None        # a call without attributes


@dataclass(eq=False)
class Op(CallStart):
    """An operator; see the module's text for what the fields mean together."""

    name: str
    type: Callable[..., Types]                          # input types, attributes -> output types
    ref: Callable[..., Any] | None = None               # NumPy: oracle, constant folder, eager kernel, host step
    vjp: Callable[..., Any] | None = None               # (g, y, *inputs, **attrs) -> gradient, None or thunk an input
    takes_none: bool = False                            # vjp gets None, no zeros, for a result without a gradient
    compute: Callable[..., Any] | None = None
    expand: Callable[..., Any] | None = None
    fill: Callable[..., Any] | None = None
    into: Callable[..., Any] | None = None              # (outputs, *inputs, **attrs): a host step, into given memory
    canonical: Callable[..., Mapping[str, Any]] | None = None  # (*types, **attrs) -> attributes in their one IR form
    promote: Callable[..., Any] | None = None           # how inputs agree on an element type (tenon.graph.promotion)
    autocast: str = ""                                  # "narrow" or "wide": its inputs under tn.autocast
    elementwise: bool = False                           # inputs broadcast; element i depends on input elements i only
    effect: bool = False                                # ordered with other effects, never removed
    handles: bool = False                               # takes stacks and tokens too, and passes them on as they are
    data_dependent: bool = False                        # the output shape depends on the data: eager only
    batch: Callable[..., Any] | str | None = None       # rule of tn.vmap, or its name (tenon.ops.batching)
    axis_rule: Callable[..., Any] | None = None         # (*types, **attrs) -> which axes may be split over devices
    #                                                     (tenon.graph.axis_rule); read off the meaning where None
    moves: str = ""                                     # no arithmetic: "view" (all elements, at other places), "part"
    #     (some of them), "same" (as they are), "source" (made of numbers alone)
    operations: int | None = None                       # of arithmetic, an element of the result, or of what is reduced
    commutative: bool = False                           # its two inputs may change places
    counts: bool = False                                # integers may wrap round; `ref` computes in float64 as well
    nan_hint: str = ""                                  # what to write where its results are no numbers
    fails: str = ""                                     # "index" or "matrix": what elements may make it raise an error
    reads_part: bool = False                            # looks at some elements of its first input, not at all
    multiply_adds: Callable[..., Any] | None = None     # (*shapes of inputs and outputs) -> how many a contraction has
    # What eager calls go by (tenon.eager.compiled_ops, tier_up).
    exact: bool | Callable[[Mapping[str, Any]], bool] = False  # code has the bits of `ref`; a function of attributes
    numpy_work: int | Callable[..., int] | None = None  # multiply-adds that NumPy could do while `ref` runs: a number
    #     for each multiply-add, or element of the one input of floats; or (input types, output types) -> of the call
    any_sizes: Callable[..., Any] | None = None         # (types, attributes) -> those of a program for other sizes too
    numpy_call: Callable[..., NumPyCall | None] | None = None  # (types, attributes) -> NumPy's own call for it
    method: bool = True                                 # of tensors, where it is public and its first input is called x
    domain: Domain = ()                                 # test data lies in (low, high); a pair of pairs: input by input
    elsewhere: Callable[..., Any] | None = None         # (args, keywords) -> what another library's call gives, or None
    examples: Sequence[str] = ()                        # "relu(f32[2, 3]) -> f32[2, 3]", "... -> error"
    doc: str = ""
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        if self.name in OPS:
            raise ArgumentError(f"an operator named {self.name!r} exists already")
        if self.compute is None and self.expand is None and self.ref is None:
            raise ArgumentError(f"{self.name}: an operator needs a meaning", hint="give compute, expand or ref")
        self.signature = Signature.of(self.type)
        self.arity, self.quick = len(self.signature.data), None
        self.__doc__, self.__name__ = self.doc, self.name
        OPS[self.name] = self

    @property
    def is_own(self) -> bool:
        """Whether all that it means is code of Tenon and NumPy: the same in every process, and of no effect."""
        return _is_own(self)

    @property
    def differentiates_itself(self) -> bool:
        """Whether its rule of gradients is such code too."""
        return _differentiates_itself(self)

    @property
    def is_host(self) -> bool:
        """Whether NumPy does this step at run time."""
        return self.compute is None and self.expand is None and self.fill is None

    @property
    def __signature__(self) -> inspect.Signature:
        """What `inspect.signature` and editors show."""
        required = len(self.signature.data) - self.signature.optional
        found = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                                   default=inspect.Parameter.empty if k < required else None)
                 for k, n in enumerate(self.signature.data)]
        if self.signature.variadic:
            found.append(inspect.Parameter("tensors", inspect.Parameter.VAR_POSITIONAL))
        empty = [d is inspect.Parameter.empty for d in self.signature.attrs.values()]
        ordered = empty == sorted(empty, reverse=True) and not (any(empty) and self.signature.optional)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if ordered and not self.signature.variadic \
            else inspect.Parameter.KEYWORD_ONLY
        attrs = [inspect.Parameter(name, kind, default=default) for name, default in self.signature.attrs.items()]
        other = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
                 for name in getattr(self.elsewhere, "keywords", ())]
        return inspect.Signature(found + attrs + other)

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        if self.quick is not None and not attrs and len(args) == self.arity:
            return self.quick(*args)
        if "out" in attrs:
            return written(self.name, self, args, attrs)
        return self.full(args, attrs) if current() is not None else cached_call(self, self.full, args, attrs)

    def full(self, args: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """A call, as the innermost interpreter understands it."""
        if self.elsewhere is not None and (found := self.elsewhere(args, attrs)) is not None:
            return found
        inputs, bound = self.signature.bind(self.name, args, attrs)
        try:
            return (current() or _default[-1]).apply(self, inputs, bound)
        except TenonError as error:
            error.named(self.name)
            raise
        except MISUSE as error:
            if (shown := misused(self.name, self, args, attrs, error)) is None:
                raise
            raise shown from error

    def __repr__(self) -> str:
        return f"<Op {self.name}({self.signature})>"


@cache      # and no attribute, which would appear on an operator that a capture found among a user's values
def _is_own(op: Op) -> bool:
    rules = (op.type, op.ref, op.compute, op.expand, op.fill, op.into, op.canonical, op.promote)
    return all(_is_known(rule) is not False for rule in rules if rule is not None)


@cache
def _differentiates_itself(op: Op) -> bool:
    return _is_own(op) and op.vjp is not None and _is_known(op.vjp) is True


def _is_known(rule: Callable[..., Any]) -> bool | None:
    """Whether the code of a rule is Tenon's or NumPy's; None where it has none, as what C code does."""
    code = getattr(inspect.unwrap(rule), "__code__", None)
    return None if code is None else code.co_filename.startswith(KNOWN_CODE)

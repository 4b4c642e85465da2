"""Short ways to define operators, and the one table of what users may call.

Every `Op` made here and every `@function` is `tn.<name>`; where its first parameter is called `x` it is a tensor
method too, unless it says method=False.  Adding an operator is one definition in one family file; nothing else is
edited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import Any, TypeVar, cast

from tenon.errors import DTypeError, TenonError
from tenon.graph import op as calls
from tenon.graph.argument_errors import MISUSE, misused
from tenon.graph.build import expansion, literal
from tenon.graph.op import Op, current, interpreter
from tenon.graph.out_argument import written
from tenon.graph.promotion import Promotion, floating, same, separate
from tenon.graph.synonyms import axis_first, renamed
from tenon.types import DType, TensorType, broadcast_shapes, float32, int64, normalize_axis

PUBLIC: dict[str, Callable[..., Any]] = {}
F = TypeVar("F", bound=Callable[..., Any])


def function(fn: F) -> F:
    """Make a plain function of operators public; it leaves no node of its own in the graph."""
    public = remembering(fn)
    PUBLIC[fn.__name__.rstrip("_")] = public
    return public


def layer_function(fn: F) -> F:
    """Make public what layers do: no method of tensors, even though its first parameter is called `x`."""
    public = function(fn)
    public.method = False       # type: ignore[attr-defined]
    return public


def remembering(fn: F) -> F:
    """Let equal eager calls of a plain function of operators be made in one step; it may do nothing else."""
    code = fn.__code__
    names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    any_name = bool(code.co_flags & CO_VARKEYWORDS)     # then nobody else's name is unknown
    listed = code.co_varnames[len(names):len(names) + 1] if code.co_flags & CO_VARARGS else ()      # cat(tensors=[x])

    def full(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        if keywords and not any_name:
            keywords = renamed((*names, *listed), keywords)
            for name in keywords.keys() & {*listed}:
                args, keywords = (*args, keywords[name]), {key: x for key, x in keywords.items() if key != name}
        args, keywords = axis_first(names, args, keywords)
        try:
            return fn(*args, **keywords)
        except TenonError:
            raise
        except MISUSE as error:
            if (shown := misused(fn.__name__.rstrip("_"), fn, args, keywords, error)) is None:
                raise
            raise shown from error

    @wraps(fn)
    def called(*args: Any, **keywords: Any) -> Any:
        if "out" in keywords:
            return written(fn.__name__.rstrip("_"), called, args, keywords)
        return full(args, keywords) if current() is not None else calls.cached_call(fn, full, args, keywords)
    called.full = full      # type: ignore[attr-defined]
    return cast(F, called)


def aliases(**targets: Callable[..., Any]) -> None:
    """Second names for public operators, for those who know them from elsewhere: `aliases(mul=multiply)`."""
    PUBLIC.update(targets)


def lift(x: Any) -> Any:
    """An argument as a tensor (or value, or literal), so that it has a shape; for functions that look at shapes.

    Raises DTypeError for what cannot be one.
    """
    found = interpreter().lift(x)
    is_number = hasattr(type(found), "in_graph") or not hasattr(found, "shape")
    return scalar(found, separate((found.__class__,))[0] or float32) if is_number else found


def scalar(x: Any, dtype: DType) -> Any:
    """A Python number as an operator takes it; one that changes from call to call is read by the graph.

    Raises DTypeError where the type cannot hold it.
    """
    if hasattr(type(x), "in_graph"):
        return x.in_graph(dtype)
    inner: Any = interpreter()
    return inner.cast(x, dtype) if is_computed(x) else literal(x, dtype)


def is_computed(x: Any) -> bool:
    """Whether this is a number of Python that a graph computes."""
    return getattr(x, "weak", None) is not None


def define(name: str, public: bool = True, **fields: Any) -> Op:
    """An operator; `public=False` keeps it out of `tn.` (an operator that only gradients and passes use)."""
    op = Op(name, **fields)
    if public:
        PUBLIC[name] = op
    return op


def unary(name: str, ref: Callable[..., Any], scalar: Callable[..., Any] | None, vjp: Callable[..., Any] | None,
          doc: str, promote: Promotion = floating, result: Callable[[DType], DType] | None = None,
          kinds: str = "buifc", examples: Sequence[str] = (), public: bool = True, **fields: Any) -> Op:
    """An elementwise operator of one input.  `scalar(s, x)` is element i; None leaves it to NumPy."""
    def rule(x: TensorType) -> TensorType:
        check_kind(name, x.dtype, kinds)
        return x.with_dtype(result(x.dtype)) if result else x
    compute = None if scalar is None else lambda s, i, x: scalar(s, x(i))
    return define(name, public, type=rule, ref=ref, vjp=vjp, compute=compute, promote=promote, elementwise=True,
                  doc=doc, examples=examples or [_example(name, 1, kinds, result)], **fields)


def binary(name: str, ref: Callable[..., Any], scalar: Callable[..., Any] | None, vjp: Callable[..., Any] | None,
           doc: str, promote: Promotion = same, result: Callable[[DType], DType] | None = None,
           kinds: str = "buifc", examples: Sequence[str] = (), **fields: Any) -> Op:
    """An elementwise operator of two inputs that broadcast.  `scalar(s, x, y)` is element i."""
    def rule(x: TensorType, y: TensorType) -> TensorType:
        check_kind(name, x.dtype, kinds)
        return TensorType(result(x.dtype) if result else x.dtype, broadcast_shapes(x.shape, y.shape))
    compute = None if scalar is None else lambda s, i, x, y: scalar(s, x(i), y(i))
    return define(name, type=rule, ref=ref, vjp=vjp, compute=compute, promote=promote, elementwise=True, doc=doc,
                  examples=examples or [_example(name, 2, kinds, result)], **fields)


def composite(**fields: Any) -> Callable[[Callable[..., Any]], Op]:
    """Decorate a function of operators: it becomes an operator that stays whole until a pass opens it.

    With `vjp` its gradient is that rule; without, the gradient of its definition.  Other fields are those of `Op`.
    """
    def decorate(fn: Callable[..., Any]) -> Op:
        def rule(*types: TensorType | None, **attrs: Any) -> Any:
            results = tuple(r.type for r in expansion(op, types, attrs).results)
            return results if len(results) > 1 else results[0]
        rule.__wrapped__ = fn  # type: ignore[attr-defined]
        fields.setdefault("doc", fn.__doc__ or "")
        op = define(fn.__name__.rstrip("_"), type=rule, expand=fn, **fields)
        return op
    return decorate


def canonical_axis(x: Any, *others: Any, axis: Any, **rest: Any) -> dict[str, Any]:
    """The one form of the attributes of an operator along one axis."""
    return {"axis": normalize_axis(axis, x.ndim), **rest}


def check_kind(name: str, dtype: DType, kinds: str) -> None:
    """Raise DTypeError unless the kind of `dtype` is among `kinds`."""
    if dtype.kind not in kinds:
        words = {"b": "bool", "u": "unsigned", "i": "integer", "f": "floating", "c": "complex"}
        raise DTypeError(f"{name}: elements of type {dtype.name} are not taken", hint=OF_TRUTHS.get(
            name if dtype.kind == "b" else "",
            f"{name} takes {', '.join(words[k] for k in kinds)} elements; cast with .astype(...)"))


OF_TRUTHS = {"negative": "~x turns a mask round; x.long() counts with 0 and 1",
             "subtract": "a ^ b, or a & ~b, of masks; x.long() counts with 0 and 1"}


def _example(name: str, inputs: int, kinds: str, result: Callable[[DType], DType] | None) -> str:
    """The example of an elementwise operator that states none."""
    dtype = float32 if "f" in kinds else int64
    out = result(dtype) if result else dtype
    return f"{name}({', '.join([f'{dtype.short}[2, 3]'] * inputs)}) -> {out.short}[2, 3]"

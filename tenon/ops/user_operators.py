"""`tn.op`: an operator that a user defines is an operator like any other.

It runs eagerly, is captured, differentiated, batched, compiled, printed and parsed back.  `tenon.graph.op` says what
the parts of a definition mean.
"""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon.errors import ArgumentError, TenonError, user_location
from tenon.graph import promotion
from tenon.graph.op import OPS, Op, Signature
from tenon.ops.batching import FAMILIES
from tenon.ops.define import composite, define

PROMOTIONS = {"same": promotion.same, "float": promotion.floating, "separate": promotion.separate}
FIELDS = ("autocast", "moves", "operations", "commutative", "counts", "nan_hint", "fails", "reads_part",
          "multiply_adds", "exact", "numpy_work", "any_sizes", "numpy_call", "axis_rule", "domain", "into", "fill")
_users: set[str] = set()


def op(name: Any = None, *, type: Callable[..., Any] | None = None, ref: Callable[..., Any] | None = None,
       vjp: Callable[..., Any] | None = None, compute: Callable[..., Any] | None = None,
       expand: Callable[..., Any] | None = None, batch: Callable[..., Any] | str | None = None,
       canonical: Callable[..., Any] | None = None, promote: str | Callable[..., Any] = "separate",
       elementwise: bool = False, examples: Sequence[str] = (), doc: str = "", replace: bool = False,
       **fields: Any) -> Any:
    """Register an operator, and return it; or, as a decorator, make one of a function of operators.

    `type(x, y, *, n)` gives the output type for input types: its positional parameters are the tensors, its keywords
    the attributes.  `ref` computes with NumPy; `vjp(g, y, *inputs, **attrs)` returns a gradient for every input, in
    operators; `compute(s, i, *loads, **attrs)` is the element at index i, for compiled code.  `promote` ("same",
    "float", "separate") says how inputs agree on an element type; `elementwise` operators broadcast.  `batch` says what
    it is on a batch (`tn.vmap`): "front" if it takes any number of axes in front, "axis" if its attribute `axis` counts
    from the front, a rule (`tenon.ops.batching`), or nothing: then it runs example by example.
    `replace=True` allows the name of an operator registered before, as when a notebook cell runs again.  What the
    compiler and eager calls go by may be said too, as in Tenon's own definitions (`tenon.graph.op.Op`): `exact`,
    `numpy_work`, `multiply_adds`, `operations`, `moves`, `commutative`, `fails` and so on.  Raises ArgumentError for a
    part that does not fit the others, and for a name that is taken.

    >>> cube = tn.op("cube", type=lambda x: x, ref=lambda x: x ** 3, vjp=lambda g, y, x: (3 * g * x * x,),
    ...              compute=lambda s, i, x: x(i) * x(i) * x(i), elementwise=True, replace=True)
    >>> tn.grad(cube)(2.0)
    tensor(12.)
    >>> @tn.op(replace=True)
    ... def swish(x):
    ...     return x * tn.sigmoid(x)
    >>> swish(tn.tensor([0.0, 1.0]))
    tensor([0.    , 0.7311])
    """
    if callable(name):
        return op()(name)
    _check_fields(name, fields)
    if isinstance(batch, str) and batch not in FAMILIES:
        raise ArgumentError(f"tn.op({name!r}): batch={batch!r} is unknown",
                            hint=f"{', '.join(map(repr, FAMILIES))}, or a rule")
    if type is None and name is None:
        if ref or compute or expand:
            raise ArgumentError("tn.op: an operator that is not a decorated function needs a name and a type rule")
        fields |= {"vjp": vjp, "examples": examples, "canonical": canonical, "batch": batch}
        return lambda fn: _decorated(fn, promote, replace, fields)
    _claim(name, replace)
    if type is None:
        raise ArgumentError(f"tn.op({name!r}): a type rule is missing",
                            hint="type=lambda x: x, for a result of the type of the input")
    if ref is None and compute is None and expand is None:
        raise ArgumentError(f"tn.op({name!r}): what it computes is missing", hint="give ref, compute or expand")
    if elementwise and promote == "separate":
        promote = "same"
    signature = Signature.of(type)
    for what, rule, before in (("ref", ref, 0), ("vjp", vjp, 2), ("compute", compute, 2), ("expand", expand, 0)):
        if rule is not None:
            _check_arity(name, what, rule, before, signature)
    if ref is None and expand is None:
        raise ArgumentError(f"tn.op({name!r}): ref is missing, the definition in NumPy that eager code and tests use")
    made = define(name, public=False, type=_blaming_the_caller(type), ref=ref, vjp=vjp, compute=compute,
                  expand=expand, batch=batch, canonical=canonical, promote=_promotion(name, promote),
                  elementwise=elementwise, examples=examples, doc=doc or f"A user's operator: {name}.", **fields)
    _users.add(name)
    return made


def _blaming_the_caller(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A type rule whose errors point to the call that it refused, not to the rule."""
    @functools.wraps(rule)
    def type(*types: Any, **attrs: Any) -> Any:
        try:
            return rule(*types, **attrs)
        except TenonError as error:
            error.where = user_location()
            raise
    return type


def _check_fields(name: Any, fields: Mapping[str, Any]) -> None:
    """Raise ArgumentError for what an operator of a user does not have."""
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise ArgumentError(f"tn.op({name!r}): no argument {unknown[0]!r}", hint=f"also {', '.join(FIELDS)}")


def _decorated(fn: Callable[..., Any], promote: Any, replace: bool, fields: Mapping[str, Any]) -> Op:
    name = fn.__name__.rstrip("_")
    _claim(name, replace)
    parameters = inspect.signature(fn).parameters.values()
    wrong = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default not in (p.empty, None)]
    if wrong:
        raise ArgumentError(f"tn.op: {name}({wrong[0]}=...) is a tensor with a default value",
                            hint=f"attributes come after a star: def {name}(x, *, {wrong[0]}=...)")
    made = composite(promote=_promotion(name, promote), public=False, **fields)(fn)
    if made.vjp is not None:
        _check_arity(name, "vjp", made.vjp, 2, made.signature)
    _users.add(name)
    return made


def _claim(name: Any, replace: bool) -> None:
    """Raise ArgumentError unless an operator may have this name."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ArgumentError(f"tn.op: {name!r} is no name for an operator: it is written in the text of graphs",
                            hint="letters, digits and _")
    if name in OPS and name in _users and replace:
        del OPS[name]
    elif name in OPS:
        hint = "replace=True registers it anew" if name in _users else "choose another name"
        raise ArgumentError(f"tn.op: an operator named {name!r} exists already", hint=hint)


def _check_arity(name: str, what: str, rule: Callable[..., Any], before: int, signature: Signature) -> None:
    """Raise ArgumentError unless a part of the definition takes what it will be called with."""
    try:
        expected = inspect.signature(rule)
    except (TypeError, ValueError):
        return      # a NumPy function that does not say
    count = before + (2 if signature.variadic else len(signature.data))
    try:
        expected.bind(*[None] * count, **dict.fromkeys(signature.attrs))
    except TypeError as error:
        leading = {0: "", 2: "g, y, " if what == "vjp" else "s, i, "}[before]
        raise ArgumentError(f"tn.op({name!r}): {what} does not take ({leading}{signature}): {error}") from None


def _promotion(name: str, promote: Any) -> Any:
    if callable(promote):
        return promote
    if promote not in PROMOTIONS:
        raise ArgumentError(f"tn.op({name!r}): promote={promote!r} is unknown", hint=f"one of {', '.join(PROMOTIONS)}")
    return PROMOTIONS[promote]

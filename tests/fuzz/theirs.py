"""A program's source -> what PyTorch computes for it in float64, where it has all that the program calls.

The program is loaded once more with a namespace in the place of `tn` that hands each call to PyTorch, with its names
for arguments.  A call that has no counterpart, or another meaning there, ends the attempt: nothing is computed by hand.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz.rounding import widened

KNOWN = importlib.util.find_spec("torch") is not None
NAMES = {"axis": "dim", "keepdims": "keepdim"}


class Missing(Exception):
    """PyTorch has no such function, or it means something else."""


def theirs(source: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The results, or None where PyTorch cannot say."""
    import torch  # local: an optional dependency, slow to load

    if "OPS[" in source or ".dtype in (" in source:     # what asks for types, which are wider here, does something else
        return None
    torch.set_num_threads(1)
    env: dict[str, Any] = {}
    exec(compile(source, "<theirs>", "exec"), env)
    env["tn"] = namespace()
    try:
        tensors = [torch.from_numpy(np.array(widened(a))).as_subclass(tensor_class()) for a in arrays]
        results = flat(env["program"](*tensors))
        return [np.asarray(x.detach().numpy() if isinstance(x, torch.Tensor) else x) for x in results]
    except Exception:       # of any kind: PyTorch's functions refuse in many ways
        return None


def flat(results: Any) -> list[Any]:
    return [x for part in results for x in flat(part)] if isinstance(results, (tuple, list)) else [results]


def tensor_class() -> Any:
    """Tensors whose methods have our names and defaults."""
    import torch

    if not _class:
        ours: Any = namespace()

        def method(name: str) -> Callable[..., Any]:
            return lambda x, *args, **named: getattr(ours, name)(x, *args, **named)
        methods = {name: method(name) for name in ("sum", "mean", "max", "min", "std", "var", "any", "all", "argmax", "argmin",
                                                   "astype", "cumsum", "prod")}
        _class.append(type("Theirs", (torch.Tensor,), methods))
    return _class[0]


_class: list[Any] = []


class Namespace:
    """`tn`, answered by PyTorch."""

    def __init__(self, special: dict[str, Callable[..., Any]], modules: Sequence[Any]):
        self.special, self.modules = special, modules

    def __getattr__(self, name: str) -> Any:
        if name in self.special:
            return self.special[name]
        if name in REFUSED:
            raise Missing(name)
        for module in self.modules:
            if (found := getattr(module, name, None)) is not None:
                return renamed(found) if callable(found) else found
        raise Missing(name)


def renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: function(*args, **{NAMES.get(k, k): x for k, x in named.items()})


# What has the same name and means something else, or is right in more than one way.
REFUSED = {"median", "nanmedian", "sinc", "quantile", "vmap", "jvp", "unique", "isclose", "take", "repeat", "cov", "corrcoef", "put",
           "gradient", "split", "sort", "topk", "scatter", "gather", "index_add", "index_copy", "index_fill", "nan_to_num",
           "sign", "sgn", "copysign", "cond", "scan", "searchsorted", "bucketize", "dot", "inner", "rms_norm", "unfold", "pad", "ldexp",
           "pixel_unshuffle",       # which leaves the shape of no elements as it is (2.13)
           "digamma",               # whose gradient is right to 1e-11
           "logcumsumexp",          # whose second derivative forgets what meets a gradient of 0 (2.13)
           "i1",                    # of an infinite number is NaN there, infinite in SciPy
           "bessel_j0", "bessel_j1",    # which have no gradient, and are right to 4e-7
           "multi_margin_loss", "multilabel_margin_loss",       # which count no gap that is NaN
           "softshrink",            # whose zeros have signs by their place in a vector (2.13)
           "trapezoid", "trapz",    # which takes half of the ends from the sum: NaN of one NaN, of which NumPy has 0
           "normalize",             # whose least norm is 0 in halves, and not in float64
           "kthvalue"}              # which of equal elements it names is left open


def namespace() -> Namespace:
    """The namespace, made once."""
    import torch
    from torch.nn import functional

    if _namespace:
        return _namespace[0]
    axes = reduction_axes

    def reduction(function: Callable[..., Any], *more: Any, **fixed: Any) -> Callable[..., Any]:
        return lambda x, axis=None, keepdims=False: function(x, *more, dim=axes(x, axis), keepdim=keepdims, **fixed)

    def both(*functions: Callable[..., Any]) -> Callable[..., Any]:
        # torch.var_mean has the mean by Welford's way, in which that of what is infinite is NaN
        return lambda *args, **named: tuple(f(*args, **named) for f in functions)

    def along(function: Callable[..., Any], pick: Callable[[Any], Any] = lambda y: y) -> Callable[..., Any]:
        return lambda x, axis=-1, **named: pick(function(x, axis, **named))

    special: dict[str, Any] = {
        "equal": torch.eq, "not_equal": torch.ne, "power": torch.pow, "bitwise_invert": torch.bitwise_not,
        "asarray": torch.as_tensor, "copy": torch.clone, "stop_gradient": lambda x: x.detach(),
        "concat": lambda xs, axis=0: torch.cat(list(xs), axis), "stack": lambda xs, axis=0: torch.stack(list(xs), axis),
        "sum": reduction(torch.sum), "mean": reduction(torch.mean), "max": reduction(torch.amax), "min": reduction(torch.amin),
        "amax": reduction(torch.amax), "amin": reduction(torch.amin), "logsumexp": reduction(torch.logsumexp),
        "nansum": reduction(torch.nansum), "nanmean": reduction(torch.nanmean),
        "std_mean": both(reduction(torch.std, correction=0), reduction(torch.mean)),
        "var_mean": both(reduction(torch.var, correction=0), reduction(torch.mean)),
        "std": reduction(torch.std, correction=0), "var": reduction(torch.var, correction=0),
        "count_nonzero": lambda x, axis=None: torch.count_nonzero(x, dim=axes(x, axis)),
        "argmax": lambda x, axis=None, keepdims=False: torch.argmax(x, axis, keepdims),
        "argmin": lambda x, axis=None, keepdims=False: torch.argmin(x, axis, keepdims),
        "vector_norm": lambda x, ord=2.0, axis=None, keepdims=False: torch.linalg.vector_norm(x, ord, axes(x, axis), keepdims),
        "softmax": along(torch.softmax), "log_softmax": along(torch.log_softmax), "cumsum": along(torch.cumsum),
        "cumprod": along(torch.cumprod), "softmin": along(functional.softmin),
        "cummax": along(torch.cummax, lambda y: y[0]), "cummin": along(torch.cummin, lambda y: y[0]),
        "flip": lambda x, axis=None: torch.flip(x, tuple(range(x.ndim)) if axis is None else (axis,)),
        "repeat": lambda x, times, axis=None: torch.repeat_interleave(x, times, axis),
        "expand_dims": lambda x, axis=0: torch.unsqueeze(x, axis), "expand": lambda x, *shape: x.expand(*shape),
        "clip": lambda x, low, high: torch.clamp(x, low, high),
        "interpolate": lambda x, size=None, scale_factor=None, mode="nearest", align_corners=False: functional.interpolate(
            x, size, scale_factor, mode, align_corners if mode in ("bilinear", "bicubic") else None),
        "meshgrid": lambda *xs: torch.meshgrid(*xs, indexing="xy"),
        "unfold": functional.unfold, "where": torch.where, "astype": cast, "eye": lambda n, dtype=None: torch.eye(n).double(),
        "sort": lambda x, axis=-1, descending=False: torch.sort(x, axis, descending, stable=True)[0],
        "argsort": lambda x, axis=-1, descending=False: torch.argsort(x, axis, descending, stable=True),
        "grad": gradient, "value_and_grad": lambda f, argnums=0: lambda *xs: (f(*xs), gradient(f, argnums)(*xs)),
        "checkpoint": lambda f: f, "fori_loop": fori_loop, "while_loop": while_loop, "map": lambda f, xs: torch.stack([*map(f, xs)]),
        "cond": lambda pred, yes, no, *xs: (yes if pred else no)(*xs),
        "linalg": SimpleNamespace(**{name: getattr(torch.linalg, name) for name in ("inv", "solve", "det", "cholesky")}),
        "ones": lambda shape: torch.ones(shape, dtype=torch.float64), "float32": torch.float64, "float64": torch.float64,
    }
    _namespace.append(Namespace(special, (torch, functional, torch.special)))
    return _namespace[0]


_namespace: list[Namespace] = []


def reduction_axes(x: Any, axis: Any) -> Any:
    """All axes where none is named, as PyTorch's newer functions have them."""
    return tuple(range(x.ndim)) if axis is None else axis


def cast(x: Any, dtype: Any) -> Any:
    """Types of fractions are float64 here; the whole number of what is none, or of one too large, is left open."""
    import torch

    name = str(dtype)
    if name in ("float16", "bfloat16", "float32", "float64"):
        return x.double()
    to = getattr(torch, name)
    if x.dtype.is_floating_point and name != "bool" and not (x.trunc() == x.to(to)).all():
        raise Missing("astype")
    return x.to(to)


def gradient(f: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """tn.grad by PyTorch's tape."""
    import torch

    def run(*args: Any) -> Any:
        places = argnums if isinstance(argnums, tuple) else (argnums,)
        given = [x.clone().requires_grad_() if k in places and not x.requires_grad else x for k, x in enumerate(args)]
        wrt = [given[k] for k in places]
        found = torch.autograd.grad(f(*given), wrt, create_graph=True, allow_unused=True)
        full = tuple(torch.zeros_like(x) if g is None else g for x, g in zip(wrt, found, strict=True))
        return full if isinstance(argnums, tuple) else full[0]
    return run


def fori_loop(low: int, high: int, body: Callable[..., Any], state: Any) -> Any:
    for k in range(low, high):
        state = body(k, state)
    return state


def while_loop(test: Callable[..., Any], body: Callable[..., Any], state: Any) -> Any:
    while test(state):
        state = body(state)
    return state

"""PyTorch's operator names -> Tenon's operators: how the frozen PyTorch samples are put to Tenon.

An entry only translates a calling convention (`dim` to `axis`, an order of arguments, a name); it never computes.
What Tenon does not have is not listed; nor is `cov`, whose
samples were computed in float32 in part, nor cholesky_solve and cholesky_inverse, whose frozen gradients reach the
triangle that is not read.  `run` gives outputs and vector-Jacobian products by the eager tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenon as tn

NAMES = {"dim": "axis", "dims": "axis", "keepdim": "keepdims"}
IGNORED = {"memory_format", "device", "out_int32"}


def renamed(fn: Callable[..., Any], **more: str) -> Callable[..., Any]:
    """`fn` taking PyTorch's names for its keyword arguments."""
    names = NAMES | more
    return lambda *args, **named: fn(*args, **{names.get(k, k): v for k, v in named.items() if k not in IGNORED})


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


# Same name, same arguments, but for `dim` and `keepdim`.
SAME = words("""
abs acos acosh addbmm addcdiv addcmul addmm addmv addr amax amin angle argwhere asin asinh atan atan2 atanh
atleast_1d atleast_2d atleast_3d all any argmax argmin argsort baddbmm bincount bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor block_diag bmm broadcast_tensors broadcast_to bucketize
cartesian_prod cat ceil chunk clamp column_stack complex conj conj_physical copysign cos cosh count_nonzero cross
cumprod cumsum deg2rad diag diag_embed diagonal diff digamma dot dstack eq erf erfc erfinv exp exp2 expand expm1
flatten fliplr flipud float_power floor floor_divide fmax fmin fmod frac gcd ge gt heaviside hstack hypot i0 imag
inner isfinite isinf isnan isneginf isposinf kron lcm ldexp le lerp lgamma log log10 log1p log2 log_softmax
logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logsumexp lt masked_fill
masked_select matmul maximum mean minimum mm movedim mul mv nan_to_num nanmean nansum ne neg nextafter outer permute
positive pow prod rad2deg ravel real reciprocal remainder reshape roll rot90 round rsqrt select sigmoid sign signbit
sin sinc sinh softmax square split_with_sizes sqrt squeeze stack sub sum take_along_dim tan tanh tensor_split tile
trace tril triu true_divide trunc unbind unflatten unsqueeze vdot vstack where xlogy allclose aminmax combinations
corrcoef cumulative_trapezoid diagflat diagonal_scatter dist frexp gradient histc igamma igammac index_reduce
isclose isin isreal logit msort nanquantile quantile polar put renorm select_scatter slice_scatter std_mean
trapezoid trapz unravel_index view_as_complex view_as_real var_mean swapaxes logdet cdist einsum fft.fft fft.fft2
fft.fftn fft.fftshift fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft fft.ihfft2
fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn linalg.cholesky linalg.cond linalg.det
linalg.inv linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.eig linalg.eigvals linalg.multi_dot
linalg.qr linalg.slogdet linalg.solve linalg.solve_triangular linalg.svdvals linalg.svd linalg.vecdot linalg.lu
linalg.tensorinv linalg.pinv linalg.vander matrix_exp
""")

# What takes an axis, and a scalar.
NAME_AN_AXIS = words("""
all any amax amin argmax argmin count_nonzero cumsum cumprod cummax cummin logcumsumexp kthvalue linalg.vector_norm
log_softmax softmax logsumexp max.reduction_with_dim min.reduction_with_dim mean median mode nanmean nansum
nanmedian quantile nanquantile scatter scatter_add gather index_select sum topk transpose transpose_copy sort
argsort msort nn.functional.softmin scatter_reduce.sum scatter_reduce.prod scatter_reduce.amax scatter_reduce.amin
scatter_reduce.mean aminmax var std norm
""")

NN = words("""
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear
binary_cross_entropy binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d conv_transpose1d
conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy elu gaussian_nll_loss gelu
glu group_norm hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss instance_norm kl_div
l1_loss layer_norm leaky_relu linear local_response_norm logsigmoid margin_ranking_loss max_pool1d max_pool2d
max_pool3d mish mse_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss normalize
pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 rms_norm selu silu
smooth_l1_loss soft_margin_loss softmin softplus softshrink softsign tanhshrink threshold triplet_margin_loss unfold
grid_sample ctc_loss max_unpool1d max_unpool2d max_unpool3d
""")

# bessel_j0 and bessel_j1 are left out: PyTorch's are off by up to 4e-7.  tests/interop holds ours against SciPy.
SPECIAL = words("""
chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w entr erfcx
hermite_polynomial_h hermite_polynomial_he i0e i1 i1e laguerre_polynomial_l legendre_polynomial_p log_ndtr ndtr
ndtri shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
shifted_chebyshev_polynomial_w xlog1py zeta bessel_y0 bessel_y1 spherical_bessel_j0
""")

# Another name, the same arguments.
OTHER = {
    "alias_copy": "positive", "amax": "max", "amin": "min", "bmm.triton_optimized": "bmm", "clamp_max": "minimum",
    "clamp_min": "maximum", "diagonal_copy": "diagonal", "div.no_rounding_mode": "divide", "expand_copy": "expand",
    "linalg.cross": "cross", "linalg.diagonal": "diagonal", "max.binary": "maximum",
    "min.binary": "minimum", "max.reduction_no_dim": "max", "min.reduction_no_dim": "min",
    "permute_copy": "permute", "round.decimals_0": "round",
    "round.decimals_3": "round",
    "round.decimals_neg_3": "round", "split.list_args": "split_with_sizes", "split_with_sizes_copy": "split_with_sizes",
    "unbind_copy": "unbind", "unsafe_chunk": "chunk",
    "unsqueeze_copy": "unsqueeze", "view": "reshape", "view_copy": "reshape", "__radd__": "add", "__rmul__": "multiply",
    "take_along_dim": "take_along_axis", "addmm.decomposed": "addmm", "trapz": "trapezoid",
    "meshgrid.list_of_tensors": "meshgrid", "meshgrid.variadic_tensors": "meshgrid",
    "nn.functional.silu.complex": "silu", "transpose_copy": "swapaxes", "transpose": "swapaxes",
    "__ror__": "bitwise_or", "__rxor__": "bitwise_xor",
}


def find(path: str) -> Callable[..., Any] | None:
    """`tn.a.b`, or None where there is no such thing."""
    found: Any = tn
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if callable(found) else None


def axes(dim: Any) -> Any:
    """PyTorch takes an empty list of axes for all of them."""
    return None if isinstance(dim, (tuple, list)) and not dim else dim


def spread_options(dim: Any = None, unbiased: bool | None = None, correction: float | None = None,
                   keepdim: bool = False) -> dict[str, Any]:
    """The arguments of std and var: PyTorch divides by n - 1 unless told otherwise."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    default = 1 if unbiased is None else int(unbiased)
    return {"axis": axes(dim), "keepdims": keepdim, "correction": default if correction is None else correction}


def pairs(pad: Sequence[int], ndim: int) -> list[tuple[int, int]]:
    """PyTorch's flat padding, last axis first, as a pair an axis."""
    given = [(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)]
    return [(0, 0)] * (ndim - len(given)) + given[::-1]


def scaled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The second operand of add and sub has a factor `alpha` in PyTorch."""
    return lambda x, y, alpha=1: fn(x, y if alpha == 1 else alpha * y)


def scalars_as_vectors(fn: Callable[..., Any]) -> Callable[..., Any]:
    """In PyTorch a scalar has an axis 0 that may be named; in Tenon, as in NumPy, it has none."""
    def call(x: Any, *args: Any, **named: Any) -> Any:
        if getattr(x, "ndim", 1) or not (args or named):
            return fn(x, *args, **named)
        args = tuple(a.reshape(1) if getattr(a, "ndim", 1) == 0 else a for a in args)
        out = fn(x.reshape(1), *args, **named)
        return tuple(y.reshape(()) for y in out) if isinstance(out, tuple) else out.reshape(())
    return call


def indexed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's (x, axis, indices, values) -> Tenon's (x, indices, values, axis); a scalar counts as a vector."""
    def call(x: Any, dim: int, indices: Any, values: Any, *rest: Any, **named: Any) -> Any:
        if x.ndim == 0:
            values = values.reshape(1) if hasattr(values, "reshape") else values
            return fn(x.reshape(1), indices, values, 0, *rest, **named).reshape(())
        return fn(x, indices, values, dim, *rest, **named)
    return call


def pooled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's names for the arguments of a pooling layer; an empty stride is the kernel's size."""
    def call(x: Any, kernel_size: Any, stride: Any = None, *rest: Any, **named: Any) -> Any:
        return fn(x, kernel_size, None if isinstance(stride, tuple) and not stride else stride, *rest, **named)
    return call


def attention(*args: Any, dropout_p: float = 0.0, **named: Any) -> Any:
    """Dropout draws from PyTorch's generator, which Tenon's cannot follow: those samples are refused."""
    if dropout_p:
        raise NotImplementedError("PyTorch's random numbers")
    return tn.nn.functional.scaled_dot_product_attention(*args, **named)


def sliding_window(x: Any, dim: int, size: int, step: int) -> Any:
    """PyTorch's `unfold`; of a scalar it is a vector."""
    return tn.sliding_window(x, size, step, dim) if x.ndim else x.reshape(1)


REDUCE = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "mean"}


def table() -> dict[str, Callable[..., Any]]:
    """Every PyTorch name that Tenon answers to."""
    found: dict[str, Callable[..., Any] | None] = {name: find(name) for name in SAME}
    found |= {f"nn.functional.{name}": find(name) for name in NN}
    found |= {f"special.{name}": find(name) for name in SPECIAL}
    found |= {name: find(other) for name, other in OTHER.items() }
    named = {name: renamed(fn) for name, fn in found.items() if fn is not None} | CONVENTIONS
    for name in list(named):        # transforms of several axes name them `axes`
        if name.startswith("fft.") and name.endswith(("2", "n", "shift")):
            several = find(name)
            assert several is not None
            named[name] = renamed(_listed_axes(several), dim="axes")
    return named | {name: scalars_as_vectors(named[name]) for name in NAME_AN_AXIS if name in named}


def _listed_axes(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, axes: Any = (), **named: Any) -> Any:
        return fn(x, **named) if axes == () else fn(x, axes=(axes,) if isinstance(axes, int) else axes, **named)
    return call


def with_indices(reduce: Callable[..., Any], position: Callable[..., Any]) -> Callable[..., Any]:
    """(values, places) along an axis, which PyTorch's max, min ... give."""
    def call(x: Any, dim: int, keepdim: bool = False) -> Any:
        return reduce(x, axis=dim, keepdims=keepdim), position(x, axis=dim, keepdims=keepdim)
    return call


CONVENTIONS: dict[str, Callable[..., Any]] = {
    "H": lambda x: tn.conj(x).mT, "T": lambda x: x.T, "mH": lambda x: tn.conj(x).mT, "mT": lambda x: x.mT,
    "t": lambda x: x.T, "t_copy": lambda x: x.T,
    "__getitem__": lambda x, key: x[_key(key)],
    "__rdiv__": lambda x, y: y / x, "__rmatmul__": lambda x, y: y @ x, "__rmod__": lambda x, y: y % x,
    "__rpow__": lambda x, y: y ** x, "__rsub__": lambda x, y: y - x,
    "add": scaled(lambda x, y: tn.add(x, y)), "sub": scaled(lambda x, y: tn.subtract(x, y)),
    "rsub": lambda x, y, alpha=1: y - (x if alpha == 1 else alpha * x),
    "broadcast_shapes": lambda *shapes: tn.broadcast_shapes(*shapes),
    "clone": lambda x, **_: tn.positive(x), "contiguous": lambda x, **_: tn.positive(x),
    "resolve_conj": lambda x: tn.positive(x), "resolve_neg": lambda x: tn.positive(x),
    "clamp": lambda x, min=None, max=None: tn.clip(x, min, max),
    "constant_pad_nd": lambda x, pad, value=0: tn.pad(x, pairs(pad, x.ndim), constant_values=value),
    "count_nonzero": lambda x, dim=None: tn.count_nonzero(x, axis=dim),
    "cross": lambda x, y, dim=None: tn.cross(x, y, axis=-1 if dim is None else dim),
    "cummax": lambda x, dim: tn.cummax(x, dim, return_indices=True),
    "cummin": lambda x, dim: tn.cummin(x, dim, return_indices=True),
    "diff": lambda x, n=1, dim=-1, prepend=None, append=None: tn.diff(x, n, dim, prepend, append),
    "div.floor_rounding": lambda x, y, rounding_mode: tn.div(x, y, rounding_mode=rounding_mode),
    "div.trunc_rounding": lambda x, y, rounding_mode: tn.div(x, y, rounding_mode=rounding_mode),
    "dsplit": lambda x, cuts: tn.split(x, cuts, axis=2),
    "vsplit": lambda x, cuts: tn.split(x, cuts, axis=0),
    "hsplit": lambda x, cuts: tn.split(x, cuts, axis=1 if x.ndim > 1 else 0),
    "dstack": lambda *xs: tn.dstack(*xs), "hstack": lambda *xs: tn.hstack(*xs), "vstack": lambda *xs: tn.vstack(*xs),
    "einsum": lambda xs, formula: tn.einsum(formula, *xs),
    "equal": lambda x, y: tn.array_equal(x, y),
    "expand_as": lambda x, other: tn.broadcast_to(x, other.shape),
    "fill": lambda x, value: tn.full_like(x, value), "zero_": lambda x: tn.zeros_like(x),
    "flip": lambda x, dims: tn.flip(x, dims),
    "gather": lambda x, dim, index: tn.gather(x, index, axis=dim),
    "index_add": indexed(lambda x, i, u, axis, alpha=1: tn.index_add(x, i, u if alpha == 1 else alpha * u, axis)),
    "index_copy": indexed(lambda *a: tn.index_copy(*a)), "index_fill": indexed(lambda *a: tn.index_fill(*a)),
    "cdist": lambda x, y, p=2.0, compute_mode=None: tn.cdist(x, y, p),
    "index_select": lambda x, dim, at: tn.take(x, at, axis=dim),
    "item": lambda x: x.item(),
    "kthvalue": lambda x, k, dim=-1, keepdim=False: tn.kthvalue(x, k, dim, keepdim),
    "linalg.tensorsolve": lambda x, y, dims=None: tn.linalg.tensorsolve(x, y, dims),
    "nn.functional.embedding_bag": lambda weight, x, **k: tn.embedding_bag(x, weight, **k),
    "linalg.multi_dot": lambda xs: tn.multi_dot(xs),
    **dict.fromkeys(("linalg.norm", "linalg.norm.subgradients_at_zero"),
                    lambda x, ord=None, dim=None, keepdim=False: tn.linalg.norm(
                        x, 2.0 if ord is None else ord, dim, keepdim)),
    "linalg.vector_norm": lambda x, ord=2, dim=None, keepdim=False: tn.vector_norm(
        x, ord=ord, axis=dim, keepdims=keepdim),
    "linalg.vecdot": lambda x, y, dim=-1: tn.vecdot(x, y, axis=dim),
    "max.reduction_with_dim": with_indices(tn.max, tn.argmax),
    "min.reduction_with_dim": with_indices(tn.min, tn.argmin),
    "masked_fill": lambda x, mask, value: tn.masked_fill(x, mask, value),
    "movedim": lambda x, a, b: tn.moveaxis(x, a, b),
    "narrow": lambda x, dim, start, length: tn.narrow(x, dim, int(start), length),
    "narrow_copy": lambda x, dim, start, length: tn.narrow(x, dim, int(start), length),
    "nan_to_num": lambda x, nan=0.0, posinf=None, neginf=None: tn.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf),
    "nn.functional.embedding": lambda weight, x, padding_idx=None, **_: tn.embedding(
        x, weight, padding_idx=padding_idx),
    "nn.functional.scaled_dot_product_attention": attention,
    "nn.functional.pad.constant": lambda x, pad, mode="constant", value=0: tn.pad(
        x, pairs(pad, x.ndim), constant_values=value),
    "nn.functional.pad.circular": lambda x, pad, mode: tn.pad(x, pairs(pad, x.ndim), mode="wrap"),
    "nn.functional.pad.reflect": lambda x, pad, mode: tn.pad(x, pairs(pad, x.ndim), mode="reflect"),
    "nn.functional.pad.replicate": lambda x, pad, mode: tn.pad(x, pairs(pad, x.ndim), mode="edge"),
    "nn.functional.pad.replicate_negative": lambda x, pad, mode: tn.pad(x, pairs(pad, x.ndim), mode="edge"),
    "nn.functional.softmin": lambda x, dim: tn.softmin(x, axis=dim),
    "nn.functional.one_hot": lambda x, num_classes=-1: tn.one_hot(
        x, num_classes=int(x.max().item()) + 1 if num_classes == -1 else num_classes),
    "nonzero": lambda x, as_tuple=False: tn.argwhere(x),
    "norm.inf": lambda x, p, dim=None, keepdim=False: tn.vector_norm(x, ord=p, axis=dim, keepdims=keepdim),
    "norm": lambda x, p=2, dim=None, keepdim=False: tn.vector_norm(x, ord=p, axis=dim, keepdims=keepdim),
    "norm.fro": lambda x, p="fro", dim=None, keepdim=False: tn.vector_norm(x, axis=dim, keepdims=keepdim),
    "polygamma.polygamma_n_0": lambda x, n: tn.polygamma(n, x),
    "polygamma.polygamma_n_1": lambda x, n: tn.polygamma(n, x),
    "polygamma.polygamma_n_2": lambda x, n: tn.polygamma(n, x),
    "polygamma.polygamma_n_3": lambda x, n: tn.polygamma(n, x),
    "polygamma.polygamma_n_4": lambda x, n: tn.polygamma(n, x),
    "special.polygamma.special_polygamma_n_0": lambda x, n: tn.polygamma(n, x),
    "mvlgamma.mvlgamma_p_1": lambda x, p: tn.mvlgamma(x, p), "mvlgamma.mvlgamma_p_3": lambda x, p: tn.mvlgamma(x, p),
    "mvlgamma.mvlgamma_p_5": lambda x, p: tn.mvlgamma(x, p),
    "nansum": lambda x, dim=None, keepdim=False: tn.nansum(x, axis=axes(dim), keepdims=keepdim),
    "nanmean": lambda x, dim=None, keepdim=False: tn.nanmean(x, axis=axes(dim), keepdims=keepdim),
    "repeat": lambda x, sizes: tn.tile(x, sizes),
    "repeat_interleave": lambda x, repeats, dim=None, output_size=None: tn.repeat(x, repeats, axis=dim),
    "reshape_as": lambda x, other: tn.reshape(x, other.shape), "view_as": lambda x, other: tn.reshape(x, other.shape),
    "resize_": lambda x, shape: tn.reshape(x, shape), "resize_as_": lambda x, other: tn.reshape(x, other.shape),
    "round.decimals_0": lambda x, decimals: tn.round(x, decimals),
    "round.decimals_3": lambda x, decimals: tn.round(x, decimals),
    "round.decimals_neg_3": lambda x, decimals: tn.round(x, decimals),
    "scatter": lambda x, dim, at, values, reduce="set": tn.scatter(
        x, at, values, dim, {"add": "add", "multiply": "mul", "set": "set"}[reduce]),
    "scatter_add": lambda x, dim, at, values: tn.scatter_add(x, at, values, dim),
    "searchsorted": lambda x, values, out_int32=False, right=False, side=None, sorter=None: tn.searchsorted(
        x, values, side=side or ("right" if right else "left"), sorter=sorter),
    "sort": lambda x, dim=-1, descending=False, stable=True: (
        tn.sort(x, axis=dim, descending=descending), tn.argsort(x, axis=dim, descending=descending)),
    "msort": lambda x: tn.sort(x, axis=0),
    "argsort": lambda x, dim=-1, descending=False, stable=True: tn.argsort(x, axis=dim, descending=descending),
    "split": lambda x, size, dim=0: tn.split_with_sizes(x, piece_sizes(x.shape[dim], size), dim),
    "unsafe_split": lambda x, size, dim=0: tn.split_with_sizes(x, piece_sizes(x.shape[dim], size), dim),
    "slice": lambda x, dim=0, start=None, end=None, step=1: x[(slice(None),) * dim + (slice(start, end, step),)],
    "slice_scatter": lambda x, values, dim=0, start=None, end=None, step=1: tn.setitem(
        x, (slice(None),) * dim + (slice(start, end, step),), values),
    "select_scatter": lambda x, values, dim, index: tn.setitem(x, (slice(None),) * (dim % x.ndim) + (index,), values),
    **dict.fromkeys(("squeeze", "squeeze.multiple", "squeeze_copy"),
                    lambda x, dim=None: tn.squeeze(x, sized_one(x, dim))),
    "std": lambda x, *a, **k: tn.std(x, **spread_options(*a, **k)),
    "std.unbiased": lambda x, *a, **k: tn.std(x, **spread_options(*a, **k)),
    "var": lambda x, *a, **k: tn.var(x, **spread_options(*a, **k)),
    "var.unbiased": lambda x, *a, **k: tn.var(x, **spread_options(*a, **k)),
    "std_mean": lambda x, *a, **k: tn.std_mean(x, **spread_options(*a, **k)),
    "std_mean.unbiased": lambda x, *a, **k: tn.std_mean(x, **spread_options(*a, **k)),
    "var_mean": lambda x, *a, **k: tn.var_mean(x, **spread_options(*a, **k)),
    "var_mean.unbiased": lambda x, *a, **k: tn.var_mean(x, **spread_options(*a, **k)),
    "sum_to_size": lambda x, *shape: tn.sum_to(
        x, tuple(shape[0] if shape and isinstance(shape[0], (tuple, list)) else shape)),
    "take": lambda x, at: tn.take(tn.ravel(x), at, axis=0),
    "take_along_dim": lambda x, at, dim=None: tn.take_along_axis(x, at, dim) if dim is not None else tn.take_along_axis(
        tn.ravel(x), tn.ravel(at), 0),
    "tensordot": lambda x, y, dims: tn.tensordot(x, y, dims),
    "topk": lambda x, k, dim=-1, largest=True, sorted=True: tn.topk(x, k, dim, largest),
    "triangular_solve": lambda b, a, upper=True, transpose=False, unitriangular=False: (tn.linalg.solve_triangular(
        a.mT if transpose else a, b, upper=upper != transpose, unitriangular=unitriangular), tn.positive(a)),
    "where": lambda x, mask, y: tn.where(mask, x, y),
    "logcumsumexp": lambda x, dim: tn.logcumsumexp(x, dim),
    "trapezoid": lambda y, x=None, dim=-1, dx=1.0: tn.trapezoid(y, x, dx, dim),
    "trapz": lambda y, x=None, dim=-1, dx=1.0: tn.trapezoid(y, x, dx, dim),
    "cumulative_trapezoid": lambda y, x=None, dim=-1, dx=1.0: tn.cumulative_trapezoid(y, x, dx, dim),
    "linalg.lu": lambda x, pivot=True: (lambda p, lower, upper: (p.detach(), lower, upper))(*tn.linalg.lu(x)),
    "linalg.matrix_rank": lambda x, atol=None, rtol=None: tn.linalg.matrix_rank(x, rtol),
    "linalg.matrix_rank.hermitian": lambda x, hermitian: tn.linalg.matrix_rank(x),
    "linalg.pinv": lambda x, rtol=None: tn.linalg.pinv(x, rtol if rtol is None else float(rtol)),
    "qr": lambda x, some=True: tn.linalg.qr(x, "reduced" if some else "complete"),
    "nanquantile": lambda x, q, dim=None, keepdim=False, interpolation="linear": tn.nanquantile(
        x, q, dim, keepdim, interpolation),
    "quantile": lambda x, q, dim=None, keepdim=False, interpolation="linear": tn.nanquantile(
        x, q, dim, keepdim, interpolation),
    "gradient": lambda x, dim=None, spacing=None, edge_order=1: tn.gradient(x, spacing, dim, edge_order),
    "pinverse": lambda x, rcond=1e-15: tn.linalg.pinv(x, rcond),
    "unfold": sliding_window,
    "unfold_copy": sliding_window,
    "nn.functional.unfold": lambda x, *a, **k: tn.unfold(x, *a, **k),
    "diagflat": lambda x, offset=0: tn.diagflat(x, offset),
    "unique_consecutive": lambda x, return_inverse=False, return_counts=False, dim=None: tn.unique_consecutive(
        x, return_inverse, return_counts),
    "unique": lambda x, sorted=True, return_inverse=False, return_counts=False, dim=None: tn.unique(
        x, sorted, return_inverse, return_counts),
}
for _reduce in ("sum", "prod", "amax", "amin", "mean"):
    CONVENTIONS[f"scatter_reduce.{_reduce}"] = lambda x, dim, at, values, reduce, include_self=True: tn.scatter_reduce(
        x, at, values, dim, REDUCE[reduce], include_self=include_self)
    CONVENTIONS[f"index_reduce.{_reduce}"] = indexed(lambda x, at, values, axis, reduce, include_self=True:
        tn.index_reduce(x, at, values, axis, REDUCE[reduce], include_self=include_self))
for _n in "123":
    for _kind in ("max", "avg"):
        CONVENTIONS[f"nn.functional.{_kind}_pool{_n}d"] = pooled(getattr(tn, f"{_kind}_pool{_n}d"))


def piece_sizes(total: int, size: int) -> list[int]:
    """PyTorch's split names the size of the pieces, not how many there are."""
    return [size] * (total // size) + ([total % size] if total % size else [])


def sized_one(x: Any, dim: Any) -> Any:
    """PyTorch's squeeze leaves out the named axes that have another size."""
    named = range(x.ndim) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    return tuple(k for k in named if x.ndim and x.shape[k] == 1)


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, tuple) else key


def leaf(array: np.ndarray) -> tn.Tensor:
    """A tensor that collects its gradient, where its type has one."""
    x = tn.tensor(array)
    return x.requires_grad_() if x.dtype.is_differentiable else x


class Adapter:
    """What the judge asks for: the table, and one call with its gradients."""

    def ops(self) -> dict[str, Callable[..., Any]]:
        """Every PyTorch name that Tenon answers to."""
        return table()

    def run(self, fn: Callable[..., Any], build: Callable[..., Any], cotangents: Any) -> Any:
        """The outputs of `fn`, and the gradient of each input that wants one."""
        args, named, leaves = build(tn.tensor)
        for x in leaves if cotangents is not None else ():
            x.requires_grad_()
        outputs = fn(*args, **named)
        listed = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        if cotangents is not None:
            differentiable = [y for y in listed if isinstance(y, tn.Tensor) and y.requires_grad]
            for y, g in zip(differentiable, cotangents):
                y.backward(gradient=tn.tensor(g, dtype=y.dtype), retain_graph=True)
        arrays = [y.numpy() if isinstance(y, tn.Tensor) else np.asarray(y) for y in listed]
        if cotangents is None:
            return arrays, None
        return arrays, [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in leaves]

"""ATen's resampling of images, and reading them between their elements, with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon as tn
from tenon.ops.grid_sample import MODES, PADDINGS
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, filled
from tenon.torch.aten_gradients import pulled_back

# Mode -> what PyTorch's names end with; whether corners may be aligned.
WAYS = {"nearest": (("_nearest1d", "_nearest2d", "_nearest3d"), False),
        "nearest-exact": (("_nearest_exact1d", "_nearest_exact2d", "_nearest_exact3d"), False),
        "linear": (("_linear1d",), True), "bilinear": (("_bilinear2d",), True),
        "trilinear": (("_trilinear3d",), True), "bicubic": (("_bicubic2d",), True)}


def _resize(mode: str, align: bool, antialias: bool = False) -> Rule:
    return lambda at, x, *args: _resized(x, tuple(at.shape[2:]), args, mode, align, antialias)


def _resize_backward(mode: str, align: bool, antialias: bool = False) -> Rule:
    """(g, size of the result, size of x, *the rest): resampling is linear, so any x will do."""
    def rule(at: AtenCall, g: Any, size: Sequence[Any], old: Sequence[Any], *args: Any) -> Any:
        x = filled(at.shape, 0, at.dtype)
        new = tuple(g.shape[2:])
        return pulled_back(lambda x: _resized(x, new, (size, *args), mode, align, antialias), g, x)[0]
    return rule


def _resized(x: Any, size: Sequence[Any], args: Sequence[Any], mode: str, align: bool, antialias: bool) -> Any:
    """x of another size; `args` are the size, whether corners are aligned where that may be, and factors."""
    corners = bool(args[1]) if align and len(args) > 1 else False
    factors = _factors(args, x.ndim - 2)
    if not all(isinstance(n, int) for n in (*size, *x.shape[2:])):
        raise UnmappedOperator("resampling to a size that is not known yet")
    options: Any = {"mode": mode, "align_corners": corners, "antialias": antialias}
    if factors is not None and not corners and tuple(int(n * f) for n, f in zip(x.shape[2:], factors)) == size:
        return tn.interpolate(x, scale_factor=factors, **options)
    return tn.interpolate(x, size=size, **options)


def _factors(args: Sequence[Any], count: int) -> tuple[float, ...] | None:
    """The factors that the caller gave: a list of them, or one an axis."""
    last = args[-1] if args else None
    if isinstance(last, (list, tuple)) and len(last) == count and all(isinstance(f, float) for f in last):
        return tuple(last)
    given = args[-count:] if len(args) > count else ()
    return tuple(given) if given and all(isinstance(f, float) for f in given) else None


def _read_at(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    return tn.grid_sample(x, grid, (*MODES,)[mode], PADDINGS[padding], align)


def _grid_sample(at: AtenCall, x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    return _read_at(x, grid, mode, padding, align)


def _grid_sample_backward(at: AtenCall, g: Any, x: Any, grid: Any, mode: int, padding: int, align: bool,
                          wanted: Sequence[bool]) -> Any:
    found = pulled_back(lambda x, grid: _read_at(x, grid, mode, padding, align), g, x, grid)
    return found[0] if wanted[0] else None, found[1]


RESAMPLING: dict[str, Rule] = {
    **{f"{'_' if 'exact' in name else ''}upsample{name}": _resize(mode, align)
       for mode, (names, align) in WAYS.items() for name in names},
    **{f"{'_' if 'exact' in name else ''}upsample{name}_backward": _resize_backward(mode, align)
       for mode, (names, align) in WAYS.items() for name in names},
    **{f"_upsample_{mode}2d_aa": _resize(mode, True, True) for mode in ("bilinear", "bicubic")},
    **{f"_upsample_{mode}2d_aa_backward": _resize_backward(mode, True, True) for mode in ("bilinear", "bicubic")},
    **{f"grid_sampler_{n}d": _grid_sample for n in (2, 3)},
    **{f"grid_sampler_{n}d_backward": _grid_sample_backward for n in (2, 3)},
}

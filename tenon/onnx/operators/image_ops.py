"""Images: resizing, sampling at places, regions, boxes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import ints
from tenon.onnx.operator_table import OperatorCall, axis_of, operator
from tenon.onnx.operators.shape_ops import bounded
from tenon.ops.upsampling import cubic_weights

Taps = tuple[np.ndarray, np.ndarray]        # for each place: where it reads, and with which weights


@operator("Upsample", known="scales")
def upsample(call: OperatorCall, x: Any, scales: Any = None) -> Any:
    factors = call.need("scales") if scales is None else [float(s) for s in np.asarray(scales).reshape(-1)]
    return _resized(call, x, list(range(x.ndim)), factors, None, "asymmetric", "floor")


@operator("Resize", known="roi scales sizes")
def resize(call: OperatorCall, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    if call.opset < 11:     # its second input are the scales
        return _resized(call, x, list(range(x.ndim)), [float(s) for s in roi], None, "asymmetric", "floor")
    axes = [axis_of(a, x, call) for a in call.get("axes", range(x.ndim))]
    wanted = None if sizes is None or not sizes.size else ints(sizes)
    factors = [float(s) for s in scales] if scales is not None and scales.size else \
        [w / x.shape[a] for w, a in zip(wanted or [], axes)]
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    if wanted is not None and policy != "stretch":
        one = (min if policy == "not_larger" else max)(factors)
        factors, wanted = [one] * len(axes), [math.floor(one * x.shape[a] + 0.5) for a in axes]
    regions = None if roi is None or not roi.size else [float(r) for r in roi]
    return _resized(call, x, axes, factors, wanted, call.get("coordinate_transformation_mode", "half_pixel"),
                    call.get("nearest_mode", "round_prefer_floor"), regions)


def _resized(call: OperatorCall, x: Any, axes: list[int], factors: list[float], wanted: list[int] | None, how: str,
             nearest: str, roi: list[float] | None = None) -> Any:
    """One axis after the other, each read at its taps."""
    if len(factors) != len(axes) or min(factors, default=1) <= 0:
        raise ShapeError(f"{call.step.label}: scales {factors} for axes {axes}")
    sizes = wanted or [math.floor(x.shape[a] * f) for a, f in zip(axes, factors)]
    bounded(sizes, call)
    dtype, mode = x.dtype, call.get("mode", "nearest")
    y = x if mode == "nearest" or dtype.is_floating else tn.cast(x, tn.float32)
    outside: list[tuple[int, np.ndarray]] = []
    for k, (axis, factor, size) in enumerate(zip(axes, factors, sizes)):
        if size == x.shape[axis] and factor == 1 and how != "tf_crop_and_resize":
            continue
        region = (roi[k], roi[k + len(axes)]) if roi is not None and how == "tf_crop_and_resize" else (0.0, 1.0)
        at = _places(how, x.shape[axis], factor, size, region)
        if how == "tf_crop_and_resize":
            outside.append((axis, (at < 0) | (at > x.shape[axis] - 1)))
        y = _along(y, axis, _taps(call, mode, nearest, at, x.shape[axis], factor))
    for axis, beyond in outside:
        mask = tn.tensor(beyond.reshape([-1 if k == axis else 1 for k in range(y.ndim)]))
        y = tn.where(mask, call.get("extrapolation_value", 0.0), y)
    return tn.cast(y, dtype)


def _places(how: str, n: int, factor: float, size: int, region: tuple[float, float]) -> np.ndarray:
    """Where each place of the result lies among n elements."""
    j, full = np.arange(size, dtype=np.float64), factor * n
    if how == "align_corners":
        return j * 0 if full == 1 else j * (n - 1) / (full - 1)
    if how == "asymmetric":
        return j / factor
    if how == "tf_crop_and_resize":
        begin, end = region
        if full == 1:
            return j * 0 + (begin + end) * (n - 1) / 2
        return begin * (n - 1) + j * (end - begin) * (n - 1) / (full - 1)
    if how == "pytorch_half_pixel" and full == 1:
        return j * 0 - 0.5
    moved = n / 2 * (1 - size / full) if how == "half_pixel_symmetric" else 0.0
    return moved + (j + 0.5) / factor - 0.5


def _taps(call: OperatorCall, mode: str, nearest: str, at: np.ndarray, n: int, factor: float) -> Taps:
    if mode == "nearest":
        rounded = {"round_prefer_floor": np.ceil(at - 0.5), "round_prefer_ceil": np.floor(at + 0.5),
                   "floor": np.floor(at), "ceil": np.ceil(at)}[nearest]
        return np.clip(rounded, 0, n - 1).astype(np.int64)[:, None], np.ones((len(at), 1))
    scale = min(factor, 1.0) if call.get("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / scale) + 1
    base = np.ceil(at) - 1
    offsets = np.arange(first, 2 - first)
    away = np.abs((offsets - (at - base)[:, None]) * scale)
    weights = np.clip(1 - away, 0, 1) if mode == "linear" else cubic_weights(away, call.get("cubic_coeff_a", -0.75))
    index = base[:, None] + offsets
    if call.get("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= n), 0, weights)
    return np.clip(index, 0, n - 1).astype(np.int64), weights / weights.sum(1, keepdims=True)


def _along(x: Any, axis: int, taps: Taps) -> Any:
    index, weights = taps
    if index.shape[1] == 1:
        return tn.take(x, tn.tensor(index[:, 0]), axis=axis)
    total: Any = 0
    for k in range(index.shape[1]):
        weight = weights[:, k].reshape([-1 if j == axis else 1 for j in range(x.ndim)])
        total = total + tn.take(x, tn.tensor(index[:, k]), axis=axis) * tn.tensor(weight.astype(x.dtype.numpy))
    return total


@operator("GridSample")
def grid_sample(call: OperatorCall, x: Any, grid: Any) -> Any:
    """Images, or volumes, read at the places of a grid: x before y, from -1 to 1."""
    mode, how, align = call.get("mode", "linear"), call.get("padding_mode", "zeros"), call.get("align_corners", 0)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    sizes, count = x.shape[2:], x.ndim - 2
    dtype = x.dtype if x.dtype.is_floating else tn.float32
    places = []
    for axis, n in enumerate(sizes):
        g = tn.cast(grid[..., count - 1 - axis], dtype).reshape(grid.shape[0], -1)
        at = (g + 1) / 2 * (n - 1) if align else ((g + 1) * n - 1) / 2
        at = tn.rint(at) if mode == "nearest" else at
        at = _folded(at, n, align) if how == "reflection" else tn.clip(at, 0, n - 1) if how == "border" else at
        places.append(_read_at(at, mode, n, how, align))
    flat = x.reshape(*x.shape[:2], -1)
    total: Any = 0
    for taps in itertools.product(*places):
        index, weight = taps[0]
        for (i, w), n in zip(taps[1:], sizes[1:]):
            index, weight = index * n + i, weight * w
        wide = tn.broadcast_to(tn.expand_dims(index, 1), (*x.shape[:2], index.shape[1]))
        total = total + tn.take_along_axis(flat, wide, axis=2) * tn.expand_dims(weight, 1)
    return tn.cast(total, x.dtype).reshape(*x.shape[:2], *grid.shape[1:-1])


def _read_at(at: Any, mode: str, n: int, how: str, align: int) -> list[tuple[Any, Any]]:
    """The elements of an axis that a place reads, each with its weight."""
    low = tn.floor(at)
    part = at - low
    if mode == "nearest":
        pairs = [(at, tn.ones_like(at))]
    elif mode == "linear":
        pairs = [(low, 1 - part), (low + 1, part)]
    else:
        pairs = [(low + k, _cubic_tensor(tn.abs(part - k))) for k in range(-1, 3)]
    found = []
    for index, weight in pairs:
        if how == "zeros":
            weight = tn.where((index >= 0) & (index <= n - 1), weight, 0.0)
        elif how == "reflection":
            index = _folded(index, n, align)
        found.append((tn.cast(tn.clip(index, 0, n - 1), tn.int64), weight))
    return found


def _cubic_tensor(away: Any, a: float = -0.75) -> Any:
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    return tn.where(away <= 1, near, ((a * away - 5 * a) * away + 8 * a) * away - 4 * a)


def _folded(at: Any, n: int, align: int) -> Any:
    """Places beyond the edge, mirrored until they are within."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span == 0:
        return at * 0
    away = tn.remainder(tn.abs(at - low), 2 * span)
    return tn.where(away > span, 2 * span - away, away) + low


@operator("RoiAlign")
def roi_align(call: OperatorCall, x: Any, rois: Any, batch: Any) -> Any:
    """Regions of images, read at evenly spaced places and pooled to one size."""
    ratio = call.get("sampling_ratio", 0)
    high, wide = call.get("output_height", 1), call.get("output_width", 1)
    half = call.get("coordinate_transformation_mode", "half_pixel" if call.opset >= 16 else "") == "half_pixel"
    boxes = rois * call.get("spatial_scale", 1.0) - (0.5 if half else 0.0)
    begin, size = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    size = size if half else tn.maximum(size, 1.0)
    if ratio:
        return _pooled(call, x, batch, begin, size, (high, wide), (ratio, ratio))
    counts = np.maximum(np.ceil(size.numpy() / np.array([wide, high])), 0).astype(int)      # of each region its own
    parts = [_pooled(call, x, batch[k:k + 1], begin[k:k + 1], size[k:k + 1], (high, wide), (int(c[1]), int(c[0])))
             for k, c in enumerate(counts)]
    return tn.concat(parts, axis=0) if parts else tn.zeros((0, x.shape[1], high, wide), dtype=x.dtype)


def _pooled(call: OperatorCall, x: Any, batch: Any, begin: Any, size: Any, out: tuple[int, int],
            samples: tuple[int, int]) -> Any:
    regions, (c, h, w) = begin.shape[0], x.shape[1:]
    pairs = []
    for count, s, k, n in ((out[0], samples[0], 1, h), (out[1], samples[1], 0, w)):
        inside = tn.tensor(((np.arange(count * s) + 0.5) / max(s, 1) / count).astype(x.dtype.numpy))
        at = begin[:, k:k + 1] + inside * size[:, k:k + 1]
        valid = tn.cast((at >= -1) & (at <= n), x.dtype)
        at = tn.clip(at, 0, n - 1)
        low = tn.floor(at)
        pairs.append([(tn.cast(low, tn.int64), (1 - (at - low)) * valid),
                      (tn.cast(tn.minimum(low + 1, n - 1), tn.int64), (at - low) * valid)])
    images = tn.take(x, batch, axis=0).reshape(regions, c, h * w)
    read = []
    for (row, a), (column, b) in itertools.product(*pairs):
        index = (tn.expand_dims(row, 2) * w + tn.expand_dims(column, 1)).reshape(regions, 1, -1)
        values = tn.take_along_axis(images, tn.broadcast_to(index, (regions, c, index.shape[2])), axis=2)
        weight = (tn.expand_dims(a, 2) * tn.expand_dims(b, 1)).reshape(regions, 1, -1)
        read.append(values * weight)
    if call.get("mode", "avg") == "max":
        most = read[0]
        for part in read[1:]:
            most = tn.maximum(most, part)
        return tn.max(most.reshape(regions, c, out[0], samples[0], out[1], samples[1]), axis=(3, 5))
    total = sum(read[1:], read[0]).reshape(regions, c, out[0], samples[0], out[1], samples[1])
    return tn.sum(total, axis=(3, 5)) / max(samples[0] * samples[1], 1)


@operator("NonMaxSuppression", host=True)
def non_max_suppression(call: OperatorCall, boxes: Any, scores: Any, most: Any = None, overlap: Any = None,
                        least: Any = None) -> Any:
    """The best boxes of each class that do not overlap a better one, as (image, class, box)."""
    count = 0 if most is None else int(most.reshape(-1)[0])
    limit = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    found: list[tuple[int, int, int]] = []
    for image, label in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        corners = _corners(boxes[image], call.get("center_point_box", 0))
        order = np.argsort(-scores[image, label], kind="stable")
        if least is not None:
            order = order[scores[image, label][order] > float(least.reshape(-1)[0])]
        kept: list[int] = []
        for k in order:
            if len(kept) >= count:
                break
            if not kept or (_overlap(corners[k], corners[kept]) <= limit).all():
                kept.append(int(k))
        found += [(image, label, k) for k in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Any, centred: int) -> Any:
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], 1)


def _overlap(box: Any, others: Any) -> Any:
    """The area that boxes share, of the area that they cover."""
    sides = np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0)
    shared = sides[:, 0] * sides[:, 1]
    area = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    return np.where(area > 0, shared / np.where(area > 0, area, 1), 0)


@operator("ImageDecoder", host=True)
def image_decoder(call: OperatorCall, data: Any) -> Any:
    """An image file's bytes as [H, W, C]; Pillow reads them."""
    try:
        from PIL import Image, UnidentifiedImageError  # local: an optional package
    except ImportError:
        raise call.unsupported("it needs the package pillow, which is not installed") from None
    import io

    kind = call.get("pixel_format", "RGB")
    try:
        image = Image.open(io.BytesIO(np.asarray(data, np.uint8).tobytes()))
        array = np.asarray(image.convert("L" if kind == "Grayscale" else "RGB"))
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise ShapeError(f"{call.step.label}: no image that can be read: {error}") from None
    return array[..., None] if kind == "Grayscale" else array[..., ::-1] if kind == "BGR" else array

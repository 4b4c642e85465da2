"""A step length that satisfies the strong Wolfe conditions: the loss falls enough, and the slope too.

A bracket is grown until such a length lies in it, then narrowed; lengths are tried where a cubic through two values and
two slopes is least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Along = Callable[[float], tuple[float, Any]]        # length -> loss, gradient
Point = tuple[float, float, Any, float]             # length, loss, gradient, slope

DECREASE, CURVATURE = 1e-4, 0.9
NARROWEST = 1e-9


def strong_wolfe(along: Along, length: float, direction: Any, loss: float, gradient: Any,
                 slope: float, most: int = 25) -> tuple[float, Any, float, int]:
    """The loss, the gradient and the length of the step that was found, and how often `along` was called.

    It is called once and then up to `most` times, as long as no length is good.
    """
    calls = 0

    def at(t: float) -> Point:
        nonlocal calls
        calls += 1
        value, found = along(t)
        return t, value, found, float(found @ direction)

    start: Point = (0.0, loss, gradient, slope)
    bracket, done = _bracket(at, length, start, most)
    if not done:
        bracket = _narrowed(at, bracket, start, float(np.abs(direction).max(initial=0.0)), most - calls + 1)
    t, value, found, _ = min(bracket, key=lambda point: point[1])
    return value, found, t, calls


def _bracket(at: Callable[[float], Point], length: float, start: Point, most: int) -> tuple[list[Point], bool]:
    """Two points with a good length between them; or one that is good itself."""
    before, point = start, at(length)
    for iteration in range(most):
        if not _falls(point, start) or (iteration > 1 and point[1] >= before[1]):
            return [before, point], False
        if abs(point[3]) <= -CURVATURE * start[3]:
            return [point], True
        if point[3] >= 0:
            return [before, point], False
        near, far = point[0] + 0.01 * (point[0] - before[0]), point[0] * 10
        before, point = point, at(_least_of_cubic(before, point, near, far))
    return [start, point], False


def _narrowed(at: Callable[[float], Point], bracket: list[Point], start: Point, size: float, most: int) -> list[Point]:
    """The bracket, the best point first, when it is good or too narrow to matter."""
    low, high = sorted(bracket, key=lambda point: point[1])
    near = False                                    # whether the last length was close to an end of the bracket
    for _ in range(most):
        left, right = sorted((low[0], high[0]))
        if (right - left) * size < NARROWEST:
            break
        t, near = _inside(_least_of_cubic(low, high, left, right), left, right, near)
        point = at(t)
        if not _falls(point, start) or point[1] >= low[1]:
            low, high = sorted((low, point), key=lambda one: one[1])
        else:
            if abs(point[3]) <= -CURVATURE * start[3]:
                return [point]
            low, high = point, low if point[3] * (high[0] - low[0]) >= 0 else high
    return [low, high]


def _inside(t: float, left: float, right: float, near: bool) -> tuple[float, bool]:
    """The length, or one a tenth away from the end it was close to twice; and whether it is close to one now."""
    margin = 0.1 * (right - left)
    if min(right - t, t - left) >= margin:
        return t, False
    if near or t >= right or t <= left:
        return (right - margin if right - t < t - left else left + margin), False
    return t, True


def _falls(point: Point, start: Point) -> bool:
    return point[1] <= start[1] + DECREASE * point[0] * start[3]


def _least_of_cubic(one: Point, other: Point, least: float, most: float) -> float:
    """Where the cubic through two points and their slopes is least, between two lengths."""
    left, right = (one, other) if one[0] <= other[0] else (other, one)
    middle, width = (least + most) / 2, right[0] - left[0]
    if not width:
        return middle
    d1 = left[3] + right[3] - 3 * (right[1] - left[1]) / width
    square = d1 * d1 - left[3] * right[3]
    if not square >= 0:                             # NaN too
        return middle
    d2 = math.sqrt(square)
    bend = right[3] - left[3] + 2 * d2
    return min(max(right[0] - width * ((right[3] + d2 - d1) / bend), least), most) if bend else middle

"""Fourier transforms that NumPy would do one row after the other -> columns side by side in vectors.

Elements along the last axis, n = n1 * n2 of them, are a matrix of n1 rows: its columns are transformed, multiplied by
roots of unity and written down turned, and the columns of that transformed (D. H. Bailey, FFTs in External or
Hierarchical Memory, 1990).  Elements along another axis are columns as they lie, and short rows are columns of the
whole array.  Of n real numbers, two are taken as one complex number.  Lengths with other prime factors than machine
code knows, and what would leave vectors empty, are left to NumPy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from tenon.backends import native
from tenon.backends.cpu.contraction.machine import host
from tenon.backends.cpu.fourier import code
from tenon.backends.llvm import Library
from tenon.dataclasses import dataclass
from tenon.graph.kernels import Kernel
from tenon.graph.op import Op
from tenon.ops.fourier import fft_op, irfft_op, rfft_op
from tenon.types import TensorType, float32, float64

Array = np.ndarray[Any, Any]
FEWEST = 4              # columns that a vector is worth while for


def fourier_kernel(op: Op, types: Sequence[TensorType | None], attrs: Mapping[str, Any]) -> Kernel | None:
    """What does a call with inputs of these types; None: NumPy."""
    kernel = KERNELS.get(op)
    return kernel if kernel is not None and kernel.when(*types, **attrs) else None


# ---------------------------------------------------------------- operators

def _run(form: str, x: Array, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, inverse: bool) -> Array:
    plan, out = _plan(form, _complex(x.dtype), _lengths(form, x.shape, shape), axis), np.empty(shape, dtype)
    assert plan is not None
    plan.run(np.ascontiguousarray(x), out, inverse)
    return out


def _lengths(form: str, given: tuple[int, ...], made: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what is transformed: numbers, or pairs of real numbers."""
    if form == "fft":
        return given
    *outer, n = given if form == "rfft" else made
    return *outer, n // 2


def _rfft(x: Array, axis: int) -> Array:
    return _run("rfft", x, (*x.shape[:-1], x.shape[-1] // 2 + 1), _complex(x.dtype), axis, False)


def _is_fast(x: TensorType, axis: int, inverse: bool) -> bool:
    return _plan("fft", x.dtype.numpy, x.shape, axis) is not None


def _is_pairs(form: str, x: TensorType, n: int, axis: int) -> bool:
    """Whether real numbers along the last axis are transformed two by two: a vector of them and more."""
    dtype = _complex(x.dtype.numpy)
    return axis == len(x.shape) - 1 and n % 2 == 0 and n // 2 > _lanes(dtype) and \
        _plan(form, dtype, (*x.shape[:-1], n // 2), axis) is not None


KERNELS = {kernel.op: kernel for kernel in (
    Kernel(fft_op, "cpu", lambda x, axis, inverse: _run("fft", x, x.shape, x.dtype, axis, inverse), _is_fast),
    Kernel(rfft_op, "cpu", _rfft,
           lambda x, axis: x.dtype in (float32, float64) and _is_pairs("rfft", x, x.shape[axis], axis)),
    Kernel(irfft_op, "cpu", lambda x, n, axis: _run("irfft", x, (*x.shape[:-1], n), _real(x.dtype), axis, True),
           lambda x, n, axis: x.shape[axis] == n // 2 + 1 and _is_pairs("irfft", x, n, axis)))}


def _complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.complex64 if dtype.itemsize * (1 + (dtype.kind == "f")) == 8 else np.complex128)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype == np.complex64 else np.float64)


# ---------------------------------------------------------------- plans

@dataclass(frozen=True)
class Plan:
    """Jobs that are done so many times, each with what the one before it wrote."""

    dtype: np.dtype[Any]
    jobs: Array
    repeats: int
    between: int                # complex numbers that a job leaves for the next one
    room: int                   # of buffers, in bytes
    kept: tuple[Array, ...]     # what the jobs point at

    def run(self, source: Array, target: Array, inverse: bool) -> None:
        jobs, buffers = self.jobs.copy(), np.zeros(self.room, np.uint8)
        between = np.empty((len(jobs) - 1, self.between), self.dtype)
        jobs[:, code.SOURCE] = [source.ctypes.data, *(x.ctypes.data for x in between)]
        jobs[:, code.TARGET] = [*(x.ctypes.data for x in between), target.ctypes.data]
        jobs[:, code.BUFFERS], jobs[:, code.SWAPPED] = buffers.ctypes.data, inverse
        _functions(self.dtype.itemsize // 2).run(jobs.ctypes.data, len(jobs), self.repeats)


@lru_cache(maxsize=256)
def _plan(form: str, dtype: np.dtype[Any], shape: tuple[int, ...], axis: int) -> Plan | None:
    """How to transform complex numbers, or pairs of real ones, along an axis; None: as NumPy does."""
    outer, n, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1:])
    if not outer * inner or n < 2:
        return None
    if inner > 1:
        return _columns(dtype, n, inner, outer, (1, inner), n * inner) if inner >= FEWEST else None
    first, second = _divided(n)
    if first >= FEWEST and n >= _lanes(dtype)**2:
        plan, rows = _matrix(dtype, first, second, outer), 1
    else:
        plan, rows = _columns(dtype, n, outer, 1, (n, 1), 0) if outer >= FEWEST else None, outer
    return plan if plan is None or form == "fft" else _mirrored(plan, n, rows, inverse=form == "irfft")


def _mirrored(plan: Plan, n: int, rows: int, inverse: bool) -> Plan:
    """The same for pairs of real numbers: a job more, and memory between it and the others."""
    turns = np.exp(-1j * np.pi * np.arange(n) / n)
    factors = 1j * turns.conj() if inverse else -0.5j * turns
    factors[0] = 1.0 if inverse else 0.5
    factors = factors.astype(plan.dtype)
    job, number, jobs = np.zeros(code.JOB_WORDS, np.int64), plan.dtype.itemsize, plan.jobs.copy()
    job[code.LANES], job[code.COUNT], job[code.FACTORS] = rows, n, factors.ctypes.data
    pairs, whole = (n * number, number // 2), ((n + 1) * number, n * number)
    ends = (whole, pairs) if inverse else (pairs, whole)
    (job[code.SOURCE_STEP], job[code.SOURCE_SECOND]), (job[code.TARGET_STEP], job[code.TARGET_SECOND]) = ends
    if inverse:
        job[code.SOURCE_MOVES], jobs[0, code.SOURCE_MOVES] = whole[0], 0
    else:
        job[code.TARGET_MOVES], jobs[-1, code.TARGET_MOVES] = whole[0], 0
    listed = [job, *jobs] if inverse else [*jobs, job]
    return Plan(plan.dtype, np.stack(listed), plan.repeats, rows * n, plan.room, (*plan.kept, factors))


def _columns(dtype: np.dtype[Any], n: int, lanes: int, repeats: int, steps: tuple[int, int],
             moves: int) -> Plan | None:
    stages, room = _stages(dtype, n), _room(dtype, n)
    if stages is None or room > host().second_cache:
        return None
    job = _job(dtype, n, lanes, stages[0], steps, steps, None, (moves, moves))
    return Plan(dtype, np.stack([job]), repeats, 0, room, tuple(stages))


def _matrix(dtype: np.dtype[Any], first: int, second: int, rows: int) -> Plan | None:
    """Rows as matrices of so many rows and columns."""
    ones, others, n = _stages(dtype, first), _stages(dtype, second), first * second
    room = _room(dtype, second)
    if ones is None or others is None or room > host().second_cache:
        return None
    places = np.arange(first)[:, None] * np.arange(second)
    turns = np.exp(-2j * np.pi * (places % n) / n)
    factors = np.concatenate([np.stack([turns.real, turns.imag], 1).reshape(-1), np.zeros(_lanes(dtype))])
    factors = factors.astype(_real(dtype))
    jobs = [_job(dtype, first, second, ones[0], (1, second), (first, 1), factors, (n, 0)),
            _job(dtype, second, first, others[0], (1, first), (1, first), None, (0, n))]
    return Plan(dtype, np.stack(jobs), rows, n, room, (*ones, *others, factors))


def _job(dtype: np.dtype[Any], n: int, lanes: int, stages: Array, source: tuple[int, int], target: tuple[int, int],
         factors: Array | None, moves: tuple[int, int]) -> Array:
    job = np.zeros(code.JOB_WORDS, np.int64)
    job[[code.SOURCE_LANE, code.SOURCE_STEP]], job[[code.TARGET_LANE, code.TARGET_STEP]] = source, target
    job[code.LANES], job[code.LENGTH], job[code.STAGES] = lanes, n, stages.ctypes.data
    job[code.FACTORS] = 0 if factors is None else factors.ctypes.data
    job[[code.SOURCE_MOVES, code.TARGET_MOVES]] = np.array(moves) * dtype.itemsize
    return job


def _stages(dtype: np.dtype[Any], n: int) -> list[Array] | None:
    """The table of stages, and the roots of unity that it points at; None: no such radix."""
    rows, roots, left, inner = [], [], n, 1
    for radix in code.RADICES:
        while left % radix == 0:
            apart = left // radix
            turns = np.exp(-2j * np.pi * np.arange(apart)[:, None] * np.arange(1, radix) / left).astype(dtype)
            rows.append((radix, apart, inner, turns.ctypes.data))
            roots.append(turns)
            left, inner = apart, inner * radix
    return [np.array([*rows, (0, 0, 0, 0)], np.int64), *roots] if left == 1 else None


def _divided(n: int) -> tuple[int, int]:
    """n as a product of two numbers that are close to each other, the smaller one first."""
    first = next(x for x in range(int(n**0.5), 0, -1) if n % x == 0)
    return first, n // first


def _room(dtype: np.dtype[Any], n: int) -> int:
    return 2 * n * _lanes(dtype) * dtype.itemsize


# ---------------------------------------------------------------- machine code

def _lanes(dtype: np.dtype[Any]) -> int:
    """How many complex numbers two vectors hold."""
    return 2 * host().vector_bytes // dtype.itemsize


@dataclass(frozen=True)
class Functions:
    """That of `code`, and what keeps it in memory."""

    library: Library
    run: Callable[..., None]


@cache
def _functions(size: int) -> Functions:
    """The functions for real numbers of so many bytes."""
    library = native.library("fourier", 8 * size, host().vector_bytes // size, module_of=code.module)
    address, word = ctypes.c_void_p, ctypes.c_int64
    return Functions(library, ctypes.CFUNCTYPE(None, address, word, word)(library.address("run")))

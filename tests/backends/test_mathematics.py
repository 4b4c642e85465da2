"""The CPU's mathematics: accuracy against mpmath, special values against NumPy and C, and that loops vectorise."""

import ctypes
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest
from llvmlite import ir

from tenon.backends.cpu.mathematics import FUNCTIONS, MAX_ULP
from tenon.backends.cpu.mathematics import double_double as pairs_of_numbers
from tenon.llvm.host_target import features, host
from tenon.llvm.target_module import TargetModule

Array = np.ndarray[Any, Any]
DTYPES = (np.float32, np.float64)
BINARY = {"atan2", "copysign", "floor_divide", "fmod", "hypot", "logaddexp", "nextafter", "pow", "remainder"}
UNARY = sorted(set(FUNCTIONS) - BINARY)
FEATURES = features()
LOOPING = {"floor_divide", "fmod", "remainder"}


class Compiled:
    """A loop over arrays that applies one function, with its assembly."""

    def __init__(self, name: str, dtype: type, lanes: int | None = None):
        self.dtype, self.lanes = dtype, lanes or 1
        self.arity = 2 if name in BINARY else 1
        module = loop_module(name, ir.FloatType() if dtype is np.float32 else ir.DoubleType(), self.arity, lanes)
        machine, compiled = optimised(module)
        self.assembly = machine.emit_assembly(compiled)
        self.engine = llvm.create_mcjit_compiler(compiled, machine)
        self.engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (self.arity + 1))
        self.function = prototype(self.engine.get_function_address("loop"))

    def __call__(self, *operands: Any) -> Array:
        arrays = [np.ascontiguousarray(a, self.dtype) for a in np.broadcast_arrays(*operands)]
        result = np.empty_like(arrays[0])
        if result.size:
            self.function(result.size // self.lanes, result.ctypes.data, *[a.ctypes.data for a in arrays])
        return result


def loop_module(name: str, element: ir.Type, arity: int, lanes: int | None) -> ir.Module:
    """for (i = 0; i < n; i++) result[i] = name(operands[i] ...)"""
    module, index = TargetModule(host(), name), ir.IntType(64)
    module.triple = llvm.get_process_triple()
    value = ir.VectorType(element, lanes) if lanes else element
    kind = ir.FunctionType(ir.VoidType(), [index, *[value.as_pointer()] * (arity + 1)])
    function = ir.Function(module, kind, name="loop")
    for pointer in function.args[1:]:
        pointer.add_attribute("noalias")
    entry, body, after = (function.append_basic_block(block) for block in ("entry", "body", "after"))
    b = ir.IRBuilder(entry)
    b.branch(body)
    b.position_at_end(body)
    i = b.phi(index)
    i.add_incoming(index(0), entry)
    operands = [b.load(b.gep(pointer, [i], inbounds=True), align=4) for pointer in function.args[2:]]
    b.store(FUNCTIONS[name](b, *operands), b.gep(function.args[1], [i], inbounds=True), align=4)
    following = b.add(i, index(1))
    i.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, function.args[0]), body, after)
    b.position_at_end(after)
    b.ret_void()
    return module


def optimised(module: ir.Module) -> tuple[Any, Any]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=FEATURES, opt=3
    )
    compiled = llvm.parse_assembly(str(module))
    compiled.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(compiled, builder)
    return machine, compiled


@cache
def compiled(name: str, dtype: type) -> Compiled:
    return Compiled(name, dtype)


# Accuracy ------------------------------------------------------------------------------------------------------------

Sampler = Callable[[np.random.Generator, int], Array]
SAMPLES = 250


def uniform(low: float, high: float) -> Sampler:
    return lambda random, n: random.uniform(low, high, n)


def magnitudes(low: float, high: float, signed: bool = True) -> Sampler:
    """Powers of two with exponents from low to high."""
    return lambda random, n: 2.0 ** random.uniform(low, high, n) * (random.choice([-1.0, 1.0], n) if signed else 1.0)


def beside(centre: float, low: float, high: float, sign: float = 0.0) -> Sampler:
    """centre plus or minus powers of two."""
    return lambda random, n: centre + 2.0 ** random.uniform(low, high, n) * (sign or random.choice([-1.0, 1.0], n))


def everything(signed: bool = True) -> Sampler:
    """Bit patterns of either precision's whole range, denormals included; too large ones are left out by the test."""
    return lambda random, n: np.concatenate(
        [magnitudes(-149, 128, signed)(random, n), magnitudes(-1074, 1023.99, signed)(random, n)]
    )


POSITIVE_LOGARITHM = [everything(signed=False), uniform(0.5, 2), beside(1, -20, -1)]
ARC = [uniform(-1, 1), magnitudes(-40, 0), beside(1, -23, -1, -1.0), beside(-1, -23, -1, 1.0)]
CIRCLE = [uniform(-10, 10), magnitudes(-30, 20), everything()]

DOMAINS: dict[str, list[Sampler]] = {
    "acos": ARC,
    "acosh": [uniform(1, 3), magnitudes(0, 1023, signed=False), beside(1, -20, 0, 1.0)],
    "asin": ARC,
    "asinh": [uniform(-3, 3), everything(), magnitudes(-5, 5)],
    "atan": [uniform(-4, 4), everything()],
    "atanh": [*ARC, uniform(-0.3, 0.3)],
    "cbrt": [everything(), uniform(0.5, 9)],
    "cos": CIRCLE,
    "cosh": [uniform(-89, 89), uniform(-2, 2), uniform(-710, 710)],
    "digamma": [uniform(0, 15), magnitudes(-40, 100, signed=False), beside(1.4616321449683622, -20, -3)],
    "erf": [uniform(-4, 4), uniform(-1.2, 1.2), magnitudes(-100, 2)],
    "erfc": [uniform(-3, 9), uniform(0, 1), uniform(0, 27)],
    "erfinv": [uniform(-1, 1), beside(1, -24, -1, -1.0), beside(1, -53, -1, -1.0), magnitudes(-100, 0)],
    "exp": [uniform(-104, 89), uniform(-745, 709), uniform(-1, 1)],
    "exp2": [uniform(-150, 128), uniform(-1075, 1024), uniform(-1, 1)],
    "expm1": [uniform(-20, 88), uniform(-40, 709), uniform(-1, 1), magnitudes(-140, 0)],
    "lgamma": [uniform(0, 20), magnitudes(-140, 100, signed=False), beside(1, -20, -3), beside(2, -20, -3)],
    "log": POSITIVE_LOGARITHM,
    "log10": POSITIVE_LOGARITHM,
    "log1p": [uniform(-0.9999, 2), magnitudes(-140, 120, signed=False), beside(-1, -20, -1, 1.0), magnitudes(-60, -1)],
    "log2": POSITIVE_LOGARITHM,
    "normal_cdf": [uniform(-7, 7), uniform(-1, 1), magnitudes(-100, 5)],
    "rsqrt": [everything(signed=False)],
    "sigmoid": [uniform(-103, 20), uniform(-745, 40), uniform(-4, 4)],
    "sin": CIRCLE,
    "sinh": [uniform(-89, 89), uniform(-2, 2), uniform(-710, 710), magnitudes(-100, 0)],
    "sqrt": [everything(signed=False)],
    "tan": CIRCLE,
    "tanh": [uniform(-10, 10), uniform(-1, 1), magnitudes(-100, 5)],
}
EXACT: dict[str, Callable[..., Array]] = {"ceil": np.ceil, "floor": np.floor, "round": np.round, "trunc": np.trunc}
REFERENCES: dict[str, Callable[..., Any]] = {
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "lgamma": lambda x: mpmath.log(mpmath.gamma(x)) if x < 1e5 else mpmath.loggamma(x),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "normal_cdf": mpmath.ncdf,
    "pow": lambda x, y: x**y,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "logaddexp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
}


def draw(samplers: list[Sampler], dtype: type, count: int = SAMPLES, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        x = np.concatenate([sampler(random, count) for sampler in samplers]).astype(dtype)
    return x[np.isfinite(x) & (x != 0)]


# Functions whose unit is never less than that of this number: near their zeros they are only absolutely precise.
MIN_UNIT = {"normal_cdf": 0.5}


def ulps(result: Array, exact: list[Any], scale: list[Any] | None = None) -> Iterator[float]:
    """The errors in units in the last place of the exact result (or of `scale`)."""
    kind = np.finfo(result.dtype)
    largest, smallest = mpmath.mpf(float(kind.max)), mpmath.mpf(float(kind.smallest_normal))
    for y, reference, size in zip(result, exact, scale or exact, strict=True):
        size = abs(mpmath.mpf(size))
        if size > largest * (1 - 2.0 ** (-kind.nmant - 2)):
            # Just below overflow either is right.
            yield 0.0 if math.isinf(y) or size < largest * (1 + 2.0 ** (1 - kind.nmant)) else math.inf
            continue
        exponent = mpmath.frexp(max(size, smallest))[1] - 1
        yield float(abs(mpmath.mpf(float(y)) - reference) / mpmath.mpf(2) ** (exponent - kind.nmant))


def worst_ulps(name: str, dtype: type) -> tuple[float, float]:
    """The largest error in the function's domains, and where it is."""
    x = draw(DOMAINS[name], dtype)
    y = compiled(name, dtype)(x)
    reference = REFERENCES.get(name) or getattr(mpmath, name)
    with mpmath.workprec(1200 if name in ("sin", "cos", "tan") else 200):
        exact = [reference(mpmath.mpf(float(v))) for v in x]
    scale = [max(abs(e), MIN_UNIT.get(name, 0)) for e in exact]
    return max(zip(ulps(y, exact, scale), map(float, x), strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_error_stays_below_its_stated_bound(name: str, dtype: type) -> None:
    error, where = worst_ulps(name, dtype)
    assert error <= MAX_ULP[name][DTYPES.index(dtype)], f"{name}({where!r}): {error} ulp"


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_single_precision_agrees_with_double_precision_on_many_numbers(name: str) -> None:
    x = draw(DOMAINS[name], np.float32, count=20_000, seed=1)
    y, exact = compiled(name, np.float32)(x), compiled(name, np.float64)(x)
    kind = np.finfo(np.float32)
    exponent = np.frexp(np.maximum(np.abs(exact), MIN_UNIT.get(name, kind.smallest_normal)))[1] - 1
    finite = np.abs(exact) < kind.max
    error = np.abs(np.where(finite, y, 0) - np.where(finite, exact, 0)) / np.ldexp(1.0, exponent - kind.nmant)
    assert error[finite].max() <= MAX_ULP[name][0] + 0.01, x[finite][error[finite].argmax()]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y[~finite], exact[~finite].astype(np.float32))


def binary_operands(name: str, dtype: type) -> tuple[Array, Array]:
    random = np.random.default_rng(2)
    spread = 60.0 if dtype is np.float32 else 500.0
    x, y = (magnitudes(-spread, spread)(random, SAMPLES) for _ in range(2))
    close = random.uniform(-4, 4, (2, 2 * SAMPLES))
    x, y = np.concatenate([x, close[0]]), np.concatenate([y, close[1]])
    if name == "pow":
        x = abs(x)
        y = np.concatenate([y[:0], random.uniform(-1, 1, len(x)) * (88 if dtype is np.float32 else 709) / np.log(x)])
    return x.astype(dtype), y.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["atan2", "hypot", "logaddexp", "pow"])
def test_error_of_two_operands_stays_below_its_stated_bound(name: str, dtype: type) -> None:
    x, y = binary_operands(name, dtype)
    if name == "logaddexp":
        x, y = np.clip(x, -1e4, 1e4), np.clip(y, -1e4, 1e4)
    result = compiled(name, dtype)(x, y)
    reference = REFERENCES.get(name) or getattr(mpmath, name)
    with mpmath.workprec(200):
        exact = [reference(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(x, y, strict=True)]
        scale = [max(abs(e), abs(float(a)), abs(float(b))) for e, a, b in zip(exact, x, y, strict=True)]
    error, a, b = max(zip(ulps(result, exact, scale if name == "logaddexp" else None), x, y, strict=True))
    assert error <= MAX_ULP[name][DTYPES.index(dtype)], f"{name}({a!r}, {b!r}): {error} ulp"


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_sine_is_right_where_a_double_comes_nearest_to_a_multiple_of_half_pi(dtype: type) -> None:
    # Muller, Handbook of Floating-Point Arithmetic, table 11.1
    largest = float(np.finfo(dtype).max)
    hardest = [6381956970095103.0 * 2.0**797, 16367173.0 * 2.0**72, 1e22, 2.0**1023, 2.0**127, largest]
    x = np.array([v for v in hardest if v <= largest], dtype)
    for name in ("sin", "cos", "tan"):
        with mpmath.workprec(1300):
            exact = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
        assert max(ulps(compiled(name, dtype)(x), exact)) <= MAX_ULP[name][DTYPES.index(dtype)]


# Special values ------------------------------------------------------------------------------------------------------


def specials(dtype: type) -> Array:
    kind = np.finfo(dtype)
    tiny, normal, large = kind.smallest_subnormal, kind.smallest_normal, kind.max
    ordinary = [1e-3, 0.5, 1, 1.5, 2, 2.5, 3, 4, 7, 100, 2.0**kind.nmant + 1]
    positive = [0, tiny, 3 * tiny, normal, *ordinary, large, math.inf]
    return np.array([*positive, *(-v for v in positive), math.nan], dtype)


def pairs(dtype: type) -> tuple[Array, Array]:
    x, y = np.meshgrid(specials(dtype), specials(dtype))
    return x.ravel(), y.ravel()


def by_scalar(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python's math module over arrays; nan where that raises an error."""

    def apply(x: Array) -> Array:
        result = []
        for v in x:
            try:
                result.append(function(float(v)))
            except ValueError:
                result.append(math.nan)
        return np.array(result).astype(x.dtype)

    return apply


def is_pole(v: float) -> bool:
    return v <= 0 and math.isfinite(v) and v == math.floor(v)


LARGEST = float(np.finfo(np.float64).max)
NUMPY_NAMES = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
               "atan2": "arctan2", "atanh": "arctanh", "pow": "power"}  # fmt: skip
OTHERS: dict[str, Callable[..., Array]] = {
    "erf": by_scalar(math.erf),
    "erfc": by_scalar(math.erfc),
    "lgamma": by_scalar(lambda v: math.inf if is_pole(v) or v == LARGEST else math.lgamma(v)),
    "normal_cdf": by_scalar(lambda v: math.erfc(-v * math.sqrt(0.5)) / 2),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": by_scalar(lambda v: float(1 / (1 + mpmath.exp(-v)))),
}
WITHOUT_REFERENCE = {"digamma", "erfinv"}


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - WITHOUT_REFERENCE))
def test_special_values_are_those_of_numpy(name: str, dtype: type) -> None:
    operands = pairs(dtype) if name in BINARY else (specials(dtype),)
    reference = OTHERS.get(name) or getattr(np, NUMPY_NAMES.get(name, name))
    with np.errstate(all="ignore"):
        expected = reference(*operands)
    result = compiled(name, dtype)(*operands)
    bound = MAX_ULP[name][DTYPES.index(dtype)] + 2  # the reference may be off too
    with np.errstate(all="ignore"):
        size = np.maximum(*np.abs(operands)) if name == "logaddexp" else np.abs(expected)
        # Near the zeros between its poles lgamma is only absolutely precise.
        scale = np.spacing(np.maximum(size, 1 if name == "lgamma" else MIN_UNIT.get(name, 0)).astype(dtype))
        same = (result == expected) & (np.signbit(result) == np.signbit(expected))
        same |= np.isnan(result) & np.isnan(expected)
        near = np.abs(result.astype(np.longdouble) - expected) <= bound * scale
    wrong = ~(same | near & (expected != 0))
    report = [(*(o[wrong][0] for o in operands), result[wrong][0], expected[wrong][0])] if wrong.any() else []
    assert not report, f"{name}: operands, result, expected {report}, and {wrong.sum() - 1} more"


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_the_normal_distribution_function_is_0_and_1_far_out(dtype: type) -> None:
    far = np.array([9.0, 20.0, 1e30, math.inf], dtype)
    np.testing.assert_array_equal(compiled("normal_cdf", dtype)(np.concatenate([far, -far])), [1] * 4 + [0] * 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_the_normal_distribution_function_is_never_below_0_nor_above_1(dtype: type) -> None:
    far = np.linspace(-9, 9, 100_001).astype(dtype)
    found = compiled("normal_cdf", dtype)(far)
    assert found.min() >= 0 and found.max() <= 1


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "sigmoid"])
def test_processors_without_scaling_instructions_find_the_same_numbers(name: str,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.concatenate([draw(DOMAINS[name], np.float32), specials(np.float32)])
    expected = compiled(name, np.float32)(x)
    monkeypatch.setattr(pairs_of_numbers, "can_scale", lambda kind: False)
    np.testing.assert_array_equal(Compiled(name, np.float32)(x), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_special_values_that_numpy_lacks(dtype: type) -> None:
    erfinv = compiled("erfinv", dtype)(np.array([0, -0.0, 1, -1, 1.5, -math.inf, math.nan]))
    np.testing.assert_array_equal(erfinv, np.array([0, -0.0, math.inf, -math.inf, math.nan, math.nan, math.nan], dtype))
    assert np.signbit(erfinv[1])
    digamma = compiled("digamma", dtype)(np.array([0.0, -0.0, -1, -7, math.inf, math.nan]))
    np.testing.assert_array_equal(
        digamma, np.array([-math.inf, math.inf, math.nan, math.nan, math.inf, math.nan], dtype)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_gamma_functions_of_negative_numbers(dtype: type) -> None:
    x = np.array([-0.25, -0.5, -1.5, -2.75, -10.3, -33.3, -1e-20], dtype)
    for name in ("lgamma", "digamma"):
        exact = [mpmath.digamma(float(v)) if name == "digamma" else mpmath.log(abs(mpmath.gamma(float(v)))) for v in x]
        tolerance = 4 * np.finfo(dtype).eps + 1e-13
        np.testing.assert_allclose(compiled(name, dtype)(x), np.array(exact, float), rtol=tolerance)


def test_digamma_of_the_smallest_negative_number_is_infinite() -> None:
    """Its reciprocal is infinite too, and is not to be taken from itself."""
    np.testing.assert_array_equal(compiled("digamma", np.float64)([-5e-324, 5e-324]), [np.inf, -np.inf])


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_division_is_that_of_numpy_to_the_last_bit(name: str, dtype: type) -> None:
    x, y = binary_operands(name, dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    np.testing.assert_array_equal(compiled(name, dtype)(x, y), expected)


# Code ----------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif("-fma," in FEATURES, reason="an x86 that multiplies and adds, and rounds, by calls")
@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_no_library_is_called(name: str, dtype: type) -> None:
    assert "call" not in compiled(name, dtype).assembly


@pytest.mark.skipif("+avx2" not in FEATURES, reason="reads x86 assembly")
@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - LOOPING))
def test_a_loop_is_vectorised(name: str, dtype: type) -> None:
    assert re.search(r"vmov(ups|upd|dqu|dqu64)\t%[xyz]mm\d+, .*\(%r\w+,%r\w+", compiled(name, dtype).assembly)


@pytest.mark.skipif("+avx2" not in FEATURES, reason="reads x86 assembly")
def test_exp_of_floats_is_packed_arithmetic() -> None:
    assembly = compiled("exp", np.float32).assembly
    assert re.search(r"vfmadd213ps.*%[yz]mm", assembly)


@pytest.mark.parametrize("name", ["exp", "sin", "fmod", "pow", "lgamma"])
@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_vectors_give_the_same_as_scalars(name: str, dtype: type) -> None:
    x, y = (operand[:400] for operand in binary_operands("atan2", dtype))
    operands = (x, y) if name in BINARY else (x,)
    np.testing.assert_array_equal(Compiled(name, dtype, lanes=4)(*operands), compiled(name, dtype)(*operands))

"""What took long in NumPy becomes machine code with the same bits, and stays NumPy where that is sooner."""

import numpy as np
import pytest

import tenon as tn
from tenon.eager import tier_up
from tenon.eager.compiled_ops import program_of_call
from tenon.eager.tier_up import TRIALS, TieredCall
from tenon.errors import TenonError
from tenon.graph.op import OPS
from tenon.ops.indexing import REDUCTIONS
from tenon.types import TensorType, as_dtype

SPECIAL = [np.nan, -np.inf, np.inf, 0.0, -0.0, 1.0, -1.0, -np.nan, 1e-45, 3e38]
SHAPE = 37, 13
PLACES = np.random.default_rng(1).integers(0, 13, SHAPE)
BOTH = False, True
ALONG = [{"axis": 0}, {"axis": 1}]
ORDERS = [{"axis": k, "descending": d, "stable": True} for k in (0, 1) for d in BOTH]
TOTALS = [{"axis": k, "reverse": r} for k in (0, 1) for r in BOTH]
WINDOWS = [{"kernel": (3, 2), "stride": (2, 1), "padding": ((1, 1), (0, 0)), "dilation": (1, 1)}]
APART = [{"sizes": (9, 8), "kernel": (3, 2), "stride": (3, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)},
         {"sizes": (7, 10), "kernel": (2, 1), "stride": (3, 3), "padding": ((1, 1), (2, 0)), "dilation": (1, 1)}]
DRAWS = [{"shape": (7, 31), "stream": 0}]
CALLS = {
    "argsort": ORDERS, "sort": ORDERS, "first_places": [{"k": 3, "axis": k, "descending": d} for k in (0, 1) for d in BOTH],
    "cumsum": TOTALS, "cumprod": TOTALS, "cummax": ALONG, "cummin": ALONG, "gather": ALONG,
    "scatter": [{"axis": k, "reduce": r} for k in (0, 1) for r in REDUCTIONS],
    "max_pool_op": WINDOWS, "max_pool_taps": WINDOWS, "max_pool_positions": WINDOWS,
    "max_pool_grad": APART, "random_bits": DRAWS, "random_integers": DRAWS, "random_uniform": DRAWS, "random_normal": DRAWS,
    "random_exponential": DRAWS, "dealt": [{}], "same_bits": [{}],
}
OTHER_BITS = {"f4": "i32", "f8": "u64", "i8": "f64", "u1": "i8"}


def elements(dtype, shape=SHAPE):
    random = np.random.default_rng(0)
    if np.dtype(dtype).kind in "iu":
        return random.integers(0, 100, shape).astype(dtype)
    x = random.standard_normal(shape).astype(dtype)
    x[random.random(shape) < 0.1] = 0.0
    return x


def bits(x):
    """The elements as words; NaN has one."""
    x = np.where(np.isnan(x), x.dtype.type(np.nan), x) if x.dtype.kind == "f" else x
    return x.view(f"u{x.dtype.itemsize}") if x.dtype != bool else x


def inputs_of(name, dtype, special):
    if name.startswith("random"):
        return [np.array([3, 2 ** 63], np.uint64)]
    if name == "dealt":
        return [np.random.default_rng(3).random(SHAPE)]
    if name.startswith("max_pool"):
        x = elements(dtype, (2, 3, 9, 8))
    else:
        x = elements(dtype)
    if special:
        x.reshape(-1)[np.random.default_rng(2).permutation(x.size)[:len(SPECIAL) * 4]] = SPECIAL * 4
    if name == "max_pool_grad":
        taps = np.random.default_rng(4).integers(0, 6, (2, 3, 3, 4)).astype(np.int32)
        return [np.ascontiguousarray(x[:, :, :3, :4]), taps]
    return [x, PLACES] if name == "gather" else [x, PLACES, elements(dtype)] if name == "scatter" else [x]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype, special", [("f4", False), ("f4", True), ("f8", True), ("i8", False), ("u1", False)])
def test_machine_code_has_the_bits_of_the_reference(name, dtype, special):
    op = OPS[name]
    for attrs in CALLS[name]:
        if name in ("random_uniform", "random_normal", "random_exponential"):
            attrs = {**attrs, "dtype": as_dtype("f64" if dtype == "f8" else "f32")}
        if name == "same_bits":
            attrs = {"dtype": as_dtype(OTHER_BITS[dtype])}
        if name == "random_integers":
            attrs = {**attrs, "low": -3, "count": 1000}
        arrays = inputs_of(name, dtype, special)
        with np.errstate(all="ignore"):
            expected = op.ref(*(x.copy() for x in arrays), **attrs)
        found = program_of_call(op, [TensorType(as_dtype(x.dtype), x.shape) for x in arrays], attrs).run(arrays)
        for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_array_equal(bits(one), bits(other.astype(one.dtype)), err_msg=f"{name} {attrs}")


def test_every_exact_operator_is_tested():
    assert set(CALLS) == {name for name, op in OPS.items() if op.exact and op.is_own}
    exact = OPS["max_pool_grad"].exact
    assert all(map(exact, CALLS["max_pool_grad"]))
    assert not exact({"kernel": (3, 2), "stride": (3, 1), "dilation": (1, 1)})
    assert not exact({"kernel": (2,), "stride": (2,), "dilation": (2,)})


def test_what_takes_long_becomes_machine_code(monkeypatch):
    monkeypatch.setattr(tier_up, "TIER_UP_SECONDS", 0.0)
    made = []
    make = tier_up.program_of_call
    monkeypatch.setattr(tier_up, "program_of_call", lambda op, *rest: made.append(op.name) or make(op, *rest))
    x = tn.tensor(elements("f4", (41, 13)), requires_grad=True)
    expected = np.cumsum(x.detach().numpy(), 1, np.float64).astype(np.float32)
    for _ in range(8):
        y = x.cumsum(1)
        np.testing.assert_array_equal(y.detach().numpy(), expected)
    assert made == ["cumsum"]
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy()[0], np.arange(13, 0, -1))


def test_few_elements_stay_with_numpy(monkeypatch):
    monkeypatch.setattr(tier_up, "TIER_UP_SECONDS", 0.0)
    monkeypatch.setattr(tier_up, "program_of_call", None)
    for _ in range(8):
        tn.tensor([3.0, 1.0, 2.0]).cumsum(0)


def test_an_index_out_of_range_is_told_by_machine_code_too(monkeypatch):
    monkeypatch.setattr(tier_up, "TIER_UP_SECONDS", 0.0)
    x, at = tn.tensor(elements("f4")), tn.tensor(PLACES)
    for _ in range(6):
        tn.take_along_axis(x, at, 1)
    with pytest.raises(TenonError, match="range"):
        tn.take_along_axis(x, at + 13, 1)


class Takes:
    """What takes so many seconds of a clock."""

    def __init__(self, seconds, clock):
        self.seconds, self.clock, self.calls = seconds, clock, 0

    def run(self, arrays):
        self.calls += 1
        self.clock[0] += self.seconds
        return list(arrays)


@pytest.mark.parametrize(("native", "calls"), [(2.0, (6, 5)), (0.5, (1, 10))])
def test_the_faster_way_stays(native, calls, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(tier_up, "perf_counter", lambda: clock[0])
    reference, program = Takes(1.0, clock), Takes(native, clock)
    warm = TieredCall(lambda x: reference.run([x])[0], lambda: program)
    for _ in range(TRIALS + 6):
        assert warm(7) == 7
    assert TRIALS == 5 and (reference.calls, program.calls) == calls

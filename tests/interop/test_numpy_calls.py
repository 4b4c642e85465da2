"""NumPy's functions and ufuncs on tensors: Tenon's operators, recorded; what has none never loses a gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import GradientError
from tenon.ops import numpy_calls

A = np.random.default_rng(0).standard_normal((4, 4)) + 4 * np.eye(4)
B = np.random.default_rng(1).standard_normal((4, 4))
V = np.arange(1.0, 6.0)
# Calls of x, y, v: written once, run with arrays and with tensors.
CALLS: dict[str, Callable[..., Any]] = {
    call.strip(): eval(f"lambda x, y, v: {call.strip()}", {"np": np, "A": A}) for call in """
np.sin(x); np.exp(x); np.add(x, y); np.add(A, y); np.subtract(1.0, x); np.arctan2(x, y); np.maximum(x, y)
np.power(v, 2); np.absolute(x); np.sqrt(v); np.greater(x, y); np.invert(x > y); np.matmul(x, y); np.float32(2) * v
A + x; A @ x; A > x; np.sum(x); np.sum(x, axis=1); np.sum(x, 0, keepdims=True); np.mean(x, axis=(0, 1)); np.std(x)
np.std(x, ddof=1); np.var(x, axis=0, ddof=1); np.max(x, axis=1); np.min(x); np.prod(v); np.any(x > 0); np.all(x > 0)
np.argmax(x, axis=1); np.argmin(x); np.cumsum(x); np.cumsum(x, axis=1); np.cumprod(v); np.median(x); np.median(x, 1)
np.quantile(v, 0.3); np.nanmean(x); np.nansum(x, axis=0); np.count_nonzero(x > 0)
np.concatenate([x, y]); np.concatenate([x, A], axis=1); np.stack([x, y], 1); np.vstack([x, y]); np.hstack([x, y])
np.dstack([x, y]); np.column_stack([v, v]); np.where(x > 0, x, 0); np.where(x > 0, x, y); np.dot(x, y); np.dot(v, v)
np.inner(v, v); np.outer(v, v); np.vdot(v, v); np.kron(x, y); np.cross(x[:, :3], y[:, :3]); np.tensordot(x, y, 1)
np.einsum('ij,jk->ki', x, y); np.trace(x); np.diagonal(x); np.diagonal(x, 1); np.diag(v); np.diag(x, k=1)
np.tril(x); np.triu(x, 1); np.transpose(x); np.transpose(x, (1, 0)); np.swapaxes(x, 0, 1); np.moveaxis(x, 0, 1)
np.reshape(x, (2, 8)); np.reshape(x, -1); np.ravel(x); np.squeeze(x[None]); np.expand_dims(v, 1); np.flip(v)
np.flip(x, axis=1); np.fliplr(x); np.roll(x, 1); np.roll(x, 1, axis=0); np.rot90(x); np.repeat(v, 2); np.tile(v, 2)
np.tile(v, (2, 1)); np.split(x, 2); np.array_split(v, 2); np.broadcast_to(v, (2, 5)); np.atleast_2d(v)
np.take(x, [0, 2], axis=1); np.take_along_axis(x, np.argsort(x, 1), 1); np.sort(x); np.sort(x, axis=0); np.argsort(v)
np.searchsorted(v, 2.5); np.clip(x, -1, 1); np.clip(x, a_min=0, a_max=None); np.round(x, 1); np.nan_to_num(x)
np.pad(v, (1, 2)); np.pad(x, ((1, 0), (0, 2)), constant_values=3); np.diff(v); np.diff(x, axis=0); np.isclose(x, y)
np.isin(v, [1.0, 2.0]); np.nonzero(x > 0); np.cov(x); np.cov(x, ddof=0)
np.corrcoef(x); np.trapezoid(v); np.meshgrid(v, v); np.real(x); np.copy(x); np.zeros_like(x); np.ones_like(x)
np.full_like(x, 2.0); np.where(x > 0); np.isreal(x); np.sinc(x); np.i0(x); np.cumulative_sum(v); np.unstack(x)
np.linalg.inv(x); np.linalg.det(x); np.linalg.solve(x, y); np.linalg.norm(x); np.linalg.norm(x, axis=1)
np.linalg.norm(x, ord=1, axis=1); np.linalg.cholesky(x @ x.T); np.linalg.eigvalsh(x + x.T); np.linalg.slogdet(x)
np.linalg.matrix_power(x, 3); np.linalg.pinv(x); np.linalg.cond(x); np.linalg.matrix_rank(x); np.linalg.trace(x)
np.linalg.diagonal(x, offset=1); np.linalg.svdvals(x); np.linalg.multi_dot([x, y, x]); np.linalg.vector_norm(x)
np.fft.fft(x); np.fft.ifft(x, axis=0); np.fft.rfft(v); np.fft.irfft(v); np.fft.fft2(x); np.fft.fftshift(v)
np.add.reduce(x); np.add.reduce(x, axis=1); np.multiply.reduce(x, axis=1, keepdims=True); np.maximum.reduce(x)
np.add.accumulate(x, axis=1); np.multiply.accumulate(v); np.multiply.outer(v, v); np.subtract.outer(v, x)
np.sin(v, dtype=np.float32); np.sum(x, where=x > 0); np.sum(x, axis=1, where=[True, False, True, False], initial=5)
np.prod(x, 0, where=x > 0); np.prod(v, initial=0.5); np.max(v, initial=9); np.max(v[:0], initial=9.0)
np.max(x, axis=1, where=x > 0, initial=-1.0, keepdims=True); np.min(x, where=x > 0, initial=7.0); np.min(v, where=True)
np.any(x > 0, axis=1, where=y > 0); np.all(x > 0, where=y > 9); np.mean(x, axis=1, where=x > -9); np.mean(x, where=y > 0)
np.add.reduce(x, where=x > 0); np.maximum.reduce(x, axis=1, initial=2.0); np.max(x[:, :0], 1, initial=1)
np.select([x > 1, y > 0], [x, y]); np.select([x > 1], [-x], default=7.0); np.select(condlist=[v > 2], choicelist=[v * 2])
""".replace("\n", ";").split(";") if call.strip()}


def parts(found: Any) -> list[Any]:
    """The arrays of a result."""
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("text", CALLS)
def test_the_operator_gives_what_numpy_gives(text: str) -> None:
    found, wanted = (parts(CALLS[text](*inputs)) for inputs in (map(tn.asarray, (A, B, V)), (A, B, V)))
    assert len(found) == len(wanted)
    for got, array in zip(found, wanted):
        assert isinstance(got, tn.Tensor), type(got)
        assert got.shape == np.shape(array)
        np.testing.assert_allclose(got.numpy(), array, rtol=1e-6 if got.dtype is tn.float32 else 1e-12, atol=1e-12)


def test_gradients_go_through() -> None:
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    np.sum(np.sin(x) * np.array([2.0, 3.0], np.float32)).backward()
    np.testing.assert_allclose(x.grad, np.array([2.0, 3.0]) * np.cos([1.0, 2.0]), rtol=1e-6)


def test_it_is_part_of_the_graph() -> None:
    @tn.jit
    def f(x: tn.Tensor) -> tn.Tensor:
        return np.mean(np.exp(x), axis=0) + np.ones(3)
    x = tn.rand(2, 3)
    np.testing.assert_allclose(f(x), np.exp(x.numpy()).mean(0) + 1, rtol=1e-6)
    assert "exp(" in str(f.graph(x)) and "mean(" in str(f.graph(x))


def test_without_an_operator_numpy_gives_its_own_result_or_says_how_to_let_go_of_the_gradient() -> None:
    x = tn.tensor([1.0, 2.0, 3.0])
    assert isinstance(np.polyfit(x, x, 1), np.ndarray) and np.allclose(np.polyfit(x, x, 1), [1, 0])
    assert np.spacing(x).tolist() == np.spacing(x.numpy()).tolist()
    x.requires_grad_()
    for call in (lambda: np.polyfit(x, x, 1), lambda: np.spacing(x), lambda: np.add(x, x, out=np.zeros(3)),
                 lambda: np.histogram(x), lambda: np.var(x, where=np.array([True, False, True]))):
        with pytest.raises(GradientError, match=r"x.detach\(\).numpy\(\)"):
            call()
    assert np.allclose(x, x) is True and np.array_equal(x, x + 1) is False
    assert np.shape(x) == (3,) and np.ndim(x) == 1 and np.size(x) == 3      # which tells nothing of the elements


def test_what_an_operator_lacks_is_numpys_and_nothing_is_passed_in_another_place() -> None:
    x, y = tn.asarray(A), tn.asarray(B)
    for call in (lambda x, y: np.cov(x, y), lambda x, y: np.corrcoef(x, y), lambda x, y: np.sort(x, axis=None),
                 lambda x, y: np.argsort(x, axis=None), lambda x, y: np.linalg.norm(x, 2), lambda x, y: np.gradient(x, 2.0),
                 lambda x, y: np.linalg.pinv(x, 0.1), lambda x, y: np.angle(x, True), lambda x, y: np.ravel(x, order="F"),
                 lambda x, y: np.isin(x, y, True), lambda x, y: np.tril(x, 1), lambda x, y: np.unique(x, return_index=True)[1]):
        np.testing.assert_allclose(call(x, y), call(A, B), rtol=1e-12, atol=1e-12)


def test_results_are_written_where_numpy_is_told_to() -> None:
    a = out = np.zeros(2)
    assert np.add(a, tn.tensor([1.0, 2.0]), out=out) is out and out.tolist() == [1.0, 2.0]
    t = tn.zeros(2)
    assert np.add(tn.ones(2), 1.0, out=t) is t and t.tolist() == [2.0, 2.0]
    a += tn.tensor([1.0, 2.0])
    assert a is out and a.tolist() == [2.0, 4.0]


def test_the_tables_name_what_there_is() -> None:
    assert all(hasattr(np, name) for name in numpy_calls.ELSEWHERE | set(numpy_calls.BY_POSITION))
    assert {*numpy_calls.REDUCED.values(), *numpy_calls.ACCUMULATED.values()} <= set(vars(tn))


@pytest.mark.parametrize(("name", "options"), [("eigvalsh", {}), ("eigvalsh", {"UPLO": "U"}), ("cholesky", {}),
                                               ("cholesky", {"upper": True}), ("eigh", {}), ("eigh", {"UPLO": "U"})])
def test_one_triangle_is_read_of_what_is_to_be_symmetric(name: str, options: dict[str, Any]) -> None:
    x = np.array([[3.0, 1.0], [2.0, 4.0]])
    found, expected = (getattr(np.linalg, name)(given, **options) for given in (tn.tensor(x), x))
    first = [part[0] if name == "eigh" else part for part in (found, expected)]
    assert isinstance(first[0], tn.Tensor)
    np.testing.assert_allclose(first[0].numpy(), first[1])


def test_what_is_left_out_has_no_gradient() -> None:
    for call in (lambda x: x.sum(where=x > 1), lambda x: x.prod(where=x > 1, initial=2.0),
                 lambda x: x.max(where=x < 3, initial=0.0), lambda x: x.mean(where=x > 1), lambda x: np.sum(x, where=x > 1)):
        slopes = [tn.grad(run)(tn.tensor([1.0, 2.0, 3.0])).tolist() for run in (call, tn.jit(call))]
        assert slopes[0] == slopes[1]
        assert slopes[0][0] == 0 and slopes[0][1] != 0


def test_initial_is_of_the_results_type_and_needed_where_there_may_be_nothing() -> None:
    x = tn.tensor([1, 2])
    assert x.sum(initial=2.0).tolist() == 5 and x.max(initial=np.float64(7)).dtype is tn.int64
    for call in (lambda: x.sum(initial=2.5), lambda: x.max(where=[True, False]), lambda: x.any(initial=True),
                 lambda: tn.select([x > 1], [x, x]), lambda: x.select(0)):
        with pytest.raises(tn.errors.ArgumentError):
            call()
    assert tn.select([x > 1], [x], default=7).tolist() == tn.select([x > 1], [x], 7).tolist() == [7, 2]


def test_lists_beside_tensors_are_arrays_and_those_of_objects_are_numpys() -> None:
    x = tn.tensor([1.0, 2.0])
    assert [part.tolist() for part in np.broadcast_arrays(x, [[3.0], [4.0]])] == [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    found = np.broadcast_arrays(x, 0.5, [None, "a"])
    assert [part.tolist() for part in found] == [[1, 2], [0.5, 0.5], [None, "a"]]


def test_numpy_takes_element_types_for_its_own() -> None:
    assert np.zeros(2, tn.float32).dtype == np.float32 and np.result_type(tn.int32, tn.float32) == np.float64
    assert np.ones(2).astype(tn.float16).dtype == np.float16 and np.issubdtype(tn.float64, np.floating)
    assert np.dtype(tn.bfloat16) == tn.bfloat16.numpy and np.iinfo(tn.int8).max == 127

"""Products and decompositions against NumPy, and their gradients against differences, real and complex, in stacks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon as tn
from gradients import check_gradient
from tenon.errors import ArgumentError, GradientError, LinearAlgebraError, ShapeError, TenonError
from tenon.graph.text import parse_graph
from tenon.graph.verify import verify

RNG = np.random.default_rng(3)


def normal(*shape, kind="f"):
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if kind == "c" else x


def positive(*shape, kind="f"):
    x = normal(*shape, kind=kind)
    return x @ x.conj().swapaxes(-1, -2) + np.eye(shape[-1])


def same(got, expected, **tolerance):
    np.testing.assert_allclose(got.numpy(), expected, **({"rtol": 1e-9, "atol": 1e-9} | tolerance))


both = pytest.mark.parametrize("kind", ["f", "c"])


# ---------------------------------------------------------------- products

@pytest.mark.parametrize("formula", [
    "ij,jk->ik", "ij,jk", "ij,kj->ki", "ij,ij->", "ij,ij->ij", "ii", "ii->i", "iij->ij", "i,j->ij", "ij->ji", "ij->",
    "ij->j",
    "bij,bjk->bik", "bij,bjk,bkl->bil", "ij,jk,kl,li->", "...ij,...jk->...ik", "...ii->...i", "i...,j...->...ij", "ba",
    "ij,j",
    "ab,bc,cd,de->ae", "ijk,jil->kl", "a,a,a->a", "i,->i", "b...,b...", "ij,kl->", "abc,bd->acd", "iji,j->",
])
def test_einsum_is_numpys(formula):
    sizes = dict(zip("abcdeijkl", [2, 3, 4, 2, 5, 3, 3, 4, 2]))
    sizes |= {"j": 3} if "iij" in formula or "ij" in formula else {}
    terms = formula.split("->")[0].split(",")
    operands = [normal(*([2, 3] if "..." in term else []), *(sizes[c] for c in term.replace("...", ""))) for term
                in terms]
    for k, term in enumerate(terms):                # the axes of ... where they are
        if "..." in term and not term.startswith("..."):
            at = term.index("...")
            operands[k] = np.moveaxis(operands[k], (0, 1), (at, at + 1))
    same(tn.einsum(formula, *operands), np.einsum(formula, *operands))
    if sum(x.size for x in operands) < 80:
        check_gradient(lambda *xs: tn.einsum(formula, *xs), *operands)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_einsum_on_random_formulas(data):
    sizes = {label: data.draw(st.integers(1, 3)) for label in "abcde"}
    terms = data.draw(st.lists(st.text("abcde", min_size=1, max_size=4), min_size=1, max_size=4))
    used = sorted(set("".join(terms)))
    output = data.draw(st.lists(st.sampled_from(used), unique=True, max_size=4))
    formula = ",".join(terms) + "->" + "".join(output)
    operands = [normal(*(sizes[c] if term.count(c) > 1 or data.draw(st.integers(0, 5)) else 1 for c in term)) for term
                in terms]
    same(tn.einsum(formula, *operands), np.einsum(formula, *operands))


def test_einsum_with_lists_of_axes_and_its_errors():
    x, y = normal(2, 3), normal(3, 4)
    same(tn.einsum(x, [0, 1], y, [1, 2], [0, 2]), x @ y)
    for formula, error in [("ij,jk,kl", ArgumentError), ("ij->k", ArgumentError), ("ijk", ShapeError),
                           ("ij->ii", ArgumentError),
                           ("i1", ArgumentError)]:
        with pytest.raises(error):
            tn.einsum(formula, x)
    with pytest.raises(ShapeError, match="sizes 3 and 4"):
        tn.einsum("ij,ji->", x, normal(4, 2))


def test_products_are_numpys():
    for a, b in [((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((2, 2, 3), (4, 3, 5)), ((), (2,))]:
        x, y = normal(*a), normal(*b)
        same(tn.dot(x, y), np.dot(x, y))
    x, y = normal(2, 3, kind="c"), normal(2, 3, kind="c")
    same(tn.vdot(x, y), np.vdot(x, y))
    same(tn.inner(x, y), np.inner(x, y))
    same(tn.outer(x, y), np.outer(x, y))
    same(tn.vecdot(x, y), (x.conj() * y).sum(-1))
    same(tn.vecdot(x, y, axis=0), (x.conj() * y).sum(0))
    same(tn.cross(x, y), np.cross(x, y))
    x, y = normal(2, 3, 4), normal(4, 3, 5)
    same(tn.tensordot(x, y, axes=([1, 2], [1, 0])), np.tensordot(x, y, ([1, 2], [1, 0])))
    same(tn.tensordot(x, y, axes=0), np.tensordot(x, y, 0))
    same(tn.cdist(x[0], x[1]), np.linalg.norm(x[0][:, None] - x[1][None], axis=-1))
    matrices = [normal(3, 7), normal(7, 2), normal(2, 9), normal(9, 4)]
    same(tn.linalg.multi_dot(matrices), np.linalg.multi_dot(matrices))
    same(tn.linalg.multi_dot([matrices[0][0], *matrices[1:3]]), np.linalg.multi_dot([matrices[0][0], *matrices[1:3]]))
    m = normal(2, 3, 3)
    for n in (-2, 0, 1, 2, 5):
        same(tn.linalg.matrix_power(m, n), np.linalg.matrix_power(m, n))


def test_sums_with_products():
    x, y, z, u, v = normal(2, 4), normal(2, 3), normal(3, 4), normal(3), normal(2)
    same(tn.addmm(x, y, z, beta=0.5, alpha=2.0), 0.5 * x + 2 * y @ z)
    same(tn.addmv(v, y, u), v + y @ u)
    same(tn.addr(y, v, u), y + np.outer(v, u))
    a, b = normal(5, 2, 3), normal(5, 3, 4)
    same(tn.addbmm(x, a, b), x + (a @ b).sum(0))
    same(tn.baddbmm(x, a, b), x + a @ b)
    same(tn.bmm(a, b), a @ b)
    same(tn.mv(y, u), y @ u)
    with pytest.raises(ShapeError):
        tn.mm(a, b)
    check_gradient(tn.addbmm, x, a, b)
    check_gradient(lambda x, y: tn.cross(x, y, axis=0), normal(3, 2), normal(3, 2))
    check_gradient(tn.cdist, normal(2, 3), normal(4, 3))


# ---------------------------------------------------------------- decompositions

@both
def test_cholesky(kind):
    a = positive(2, 3, 3, kind=kind)
    same(tn.linalg.cholesky(a), np.linalg.cholesky(a))
    same(tn.linalg.cholesky(a, upper=True), np.linalg.cholesky(a).conj().swapaxes(-1, -2))
    check_gradient(tn.linalg.cholesky, a[:1])
    check_gradient(tn.linalg.cholesky, positive(2, 2), order=2)
    b, low = normal(3, 2), np.linalg.cholesky(a[0])
    same(tn.linalg.cholesky_solve(b, low), np.linalg.solve(a[0], b))
    same(tn.linalg.cholesky_inverse(low), np.linalg.inv(a[0]))


@both
@pytest.mark.parametrize("shape", [(2, 3, 3), (4, 2), (2, 4)])
def test_qr_and_lu(kind, shape):
    a = normal(*shape, kind=kind)
    q, r = tn.linalg.qr(a)
    expected = np.linalg.qr(a)
    same(q, expected[0])
    same(r, expected[1])
    check_gradient(tn.linalg.qr, a)
    q, r = tn.linalg.qr(a, mode="complete")
    same(tn.matmul(q, r), a)
    p, low, u = tn.linalg.lu(a)
    same(tn.matmul(tn.matmul(p, low), u), a)
    assert np.abs(low.numpy()).max() <= 1 + 1e-12
    check_gradient(tn.linalg.lu, a)
    packed, pivots = tn.linalg.lu_factor(a)
    for found, expected in zip(tn.lu_unpack(packed, pivots), (p, low, u), strict=True):
        same(found, expected.numpy())
    check_gradient(lambda x: tn.linalg.lu_factor(x).LU, a)


@both
def test_what_factors_solve(kind):
    a, b = normal(2, 40, 40, kind=kind), normal(40, 3, kind=kind)
    factors = tn.linalg.lu_factor(a)
    same(tn.linalg.lu_solve(*factors, b), np.linalg.solve(a, np.broadcast_to(b, (2, 40, 3))))
    same(tn.linalg.lu_solve(*factors, b, adjoint=True), np.linalg.solve(a.conj().swapaxes(1, 2), b[None]))
    same(tn.linalg.lu_solve(*factors, b.T, left=False) @ a, np.broadcast_to(b.T, (2, 3, 40)))


def test_which_minor_is_not_positive():
    a = np.stack([np.eye(3), np.diag([1.0, 4.0, -1.0]), np.diag([-1.0, 1.0, 1.0])])
    factor, info = tn.linalg.cholesky_ex(a)
    assert info.numpy().tolist() == [0, 3, 1]
    same(factor[1, :2, :2], np.diag([1.0, 2.0]))
    check_gradient(lambda x: tn.linalg.cholesky_ex(x).L, positive(2, 3, 3))


def test_rows_times_the_matrix_of_their_group():
    x, w, ends = normal(6, 2), normal(3, 2, 4), tn.tensor([2, 2, 5])
    found = tn.grouped_mm(x, w, offs=ends)
    same(found, np.concatenate([x[:2] @ w[0], x[2:5] @ w[2], np.zeros((1, 4))]))
    same(tn.grouped_mm(w.swapaxes(1, 2), x.T, offs=ends), found.numpy().T)
    same(tn.grouped_mm(x.T, found, offs=ends)[2], x[2:5].T @ found.numpy()[2:5])
    check_gradient(lambda a, b: tn.grouped_mm(a, b, offs=ends), x, w)
    check_gradient(lambda a: tn.grouped_mm(a.mT, a, offs=ends), x)


@both
@pytest.mark.parametrize("shape", [(2, 3, 3), (4, 2), (2, 4)])
def test_svd(kind, shape):
    a = normal(*shape, kind=kind)
    u, s, vh = tn.linalg.svd(a, full_matrices=False)
    same(s, np.linalg.svd(a, compute_uv=False))
    same(tn.linalg.svdvals(a), s.numpy())
    same(tn.matmul(u * s[..., None, :], vh), a)
    assert tn.linalg.svd(a)[0].shape[-1] == shape[-2]
    check_gradient(tn.linalg.svdvals, a, order=2)

    def projector(x):
        u, s, vh = tn.linalg.svd(x, full_matrices=False)
        scale = (s * s * s)[..., None, :].astype(u.dtype)
        return tn.matmul(u[..., :1] * scale[..., :1], vh[..., :1, :])
    check_gradient(projector, a)
    if kind == "f":
        check_gradient(lambda x: tuple(tn.linalg.svd(x, full_matrices=False)), a)


@both
def test_eigh_and_eig(kind):
    a = normal(2, 3, 3, kind=kind)
    a = a + a.conj().swapaxes(-1, -2)
    w, v = tn.linalg.eigh(a)
    same(w, np.linalg.eigvalsh(a))
    same(tn.matmul(a, v), v.numpy() * w.numpy()[:, None])
    check_gradient(tn.linalg.eigvalsh, a, order=2)
    weights = normal(3, 3)
    check_gradient(lambda x: abs(tn.linalg.eigh(x)[1]) ** 2 * weights, a[0])
    b = normal(2, 3, 3, kind=kind)
    w, v = tn.linalg.eig(b)
    same(tn.matmul(b.astype(complex), v), v.numpy() * w.numpy()[:, None])
    check_gradient(tn.linalg.eigvals, b)
    check_gradient(lambda x: abs(tn.linalg.eig(x)[1]) ** 2 * weights, b[0])


# ---------------------------------------------------------------- equations

@both
def test_solving(kind):
    a, b = normal(2, 3, 3, kind=kind), normal(2, 3, 2, kind=kind)
    same(tn.linalg.solve(a, b), np.linalg.solve(a, b))
    same(tn.linalg.solve(a, b[0]), np.linalg.solve(a, b[0]))
    same(tn.linalg.solve(a[0], b[0, :, 0]), np.linalg.solve(a[0], b[0, :, 0]))
    same(tn.linalg.inv(a), np.linalg.inv(a))
    same(tn.linalg.solve_triangular(a, b, upper=True), np.linalg.solve(np.triu(a), b))
    same(tn.linalg.solve_triangular(a, b.swapaxes(-1, -2), left=False) @ tn.tril(a), b.swapaxes(-1, -2))
    unit = np.tril(a, -1) + np.eye(3)
    same(tn.linalg.solve_triangular(a, b, unitriangular=True), np.linalg.solve(unit, b))
    check_gradient(tn.linalg.solve, a, b, order=2)
    check_gradient(tn.linalg.inv, a[0], order=2)
    check_gradient(lambda a, b: tn.linalg.solve_triangular(a, b, unitriangular=True), a[0], b[0])
    check_gradient(lambda a, b: tn.linalg.solve_triangular(a, b, upper=True), a, b, order=2)


@both
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(("size", "columns"), [(0, 3), (1, 3), (32, 1), (71, 0), (71, 70)])
def test_triangles_of_which_the_other_half_is_not_read(size, columns, upper, kind):
    a, b = normal(2, size, size, kind=kind) + 20 * np.eye(size), normal(2, size, columns, kind=kind)
    half = np.triu(a) if upper else np.tril(a)
    hidden = np.where(half == 0, np.nan, a)
    same(tn.linalg.solve_triangular(hidden, b, upper=upper), np.linalg.solve(half, b))
    same(tn.jit(tn.linalg.solve_triangular)(tn.tensor(hidden), tn.tensor(b), upper=upper), np.linalg.solve(half, b))


def test_a_triangle_with_a_zero_on_its_diagonal_has_no_inverse():
    with pytest.raises(LinearAlgebraError, match="solve_triangular: singular matrix"):
        tn.linalg.solve_triangular(np.tril(np.ones((3, 3))) - np.diag([0.0, 0, 1]), np.ones(3))


@both
def test_determinants(kind):
    a = normal(2, 3, 3, kind=kind)
    same(tn.linalg.det(a), np.linalg.det(a))
    same(tn.linalg.slogdet(a).logabsdet, np.linalg.slogdet(a)[1])
    check_gradient(tn.linalg.det, a, order=2)
    check_gradient(lambda x: tuple(tn.linalg.slogdet(x)), a)
    same(tn.linalg.logdet(positive(2, 3, 3) * 0 + 2 * np.eye(3)), np.full(2, 3 * np.log(2)))


@both
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3)])
def test_pseudo_inverse_and_least_squares(kind, shape):
    a, b = normal(*shape, kind=kind), normal(shape[0], 2, kind=kind)
    same(tn.linalg.pinv(a), np.linalg.pinv(a))
    check_gradient(tn.linalg.pinv, a)
    expected = np.linalg.lstsq(a, b, rcond=None)
    found = tn.linalg.lstsq(a, b)
    same(found.solution, expected[0])
    assert found.rank.item() == expected[2]
    same(found.singular_values, expected[3])


def test_norms_rank_and_condition():
    a = normal(2, 3, 4)
    for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        same(tn.linalg.matrix_norm(a, ord), np.linalg.norm(a, ord, axis=(-2, -1)))
        check_gradient(lambda x, ord=ord: tn.linalg.matrix_norm(x, ord), a)
    same(tn.linalg.matrix_norm(a, "fro", axis=(0, 2), keepdims=True), np.linalg.norm(a, "fro", axis=(0, 2),
                                                                                     keepdims=True))
    low = normal(4, 2) @ normal(2, 4)
    assert tn.linalg.matrix_rank(np.stack([low, normal(4, 4)])).tolist() == [2, 4]
    square = normal(3, 3)
    for p in (None, 1, "fro", np.inf, -2):
        same(tn.linalg.cond(square, p), np.linalg.cond(square, p))
    with pytest.raises(ArgumentError):
        tn.linalg.matrix_norm(a, 7)


@both
def test_matrix_exponential(kind):
    a = normal(2, 3, 3, kind=kind) * np.array([0.3, 6.0])[:, None, None]
    w, v = np.linalg.eig(a)
    same(tn.linalg.matrix_exp(a), v * np.exp(w)[:, None] @ np.linalg.inv(v), rtol=1e-7)
    check_gradient(tn.linalg.matrix_exp, a[0], order=2)


def test_the_exponential_of_what_is_not_finite_is_nan():
    a = np.zeros((4, 2, 2))
    a[0, 0, 0], a[1, 1, 0], a[2, 0, 1] = np.nan, np.inf, -np.inf
    for found in (tn.linalg.matrix_exp(a), tn.jit(tn.linalg.matrix_exp)(tn.tensor(a))):
        assert np.isnan(found.numpy()[:3]).all() and np.allclose(found.numpy()[3], np.eye(2))


# ---------------------------------------------------------------- what does not exist

def test_matrices_without_an_inverse_or_a_factor_say_so():
    singular = np.ones((2, 2))
    with pytest.raises(LinearAlgebraError, match="inv: singular matrix") as error:
        tn.linalg.inv(singular)
    assert "pinv" in str(error.value)
    with pytest.raises(LinearAlgebraError, match="solve: singular"):
        tn.linalg.solve(singular, singular)
    with pytest.raises(LinearAlgebraError, match="not positive definite"):
        tn.linalg.cholesky(-np.eye(2))


def test_shapes_and_gradients_that_do_not_exist_say_so():
    for call in (lambda: tn.linalg.inv(normal(2, 3)), lambda: tn.linalg.svd(normal(3)), lambda: tn.linalg.det(normal(2,
                                                                                                                     3)),
                 lambda: tn.linalg.solve(normal(3, 3), normal(2, 2)), lambda: tn.linalg.eigh(normal(2, 3))):
        with pytest.raises(ShapeError):
            call()
    x = tn.tensor(normal(3, 2), requires_grad=True)
    with pytest.raises(GradientError, match="full_matrices"):
        tn.linalg.svd(x)[0].sum().backward()


def test_empty_matrices():
    assert tn.linalg.det(np.zeros((0, 0))).item() == 1
    assert tn.linalg.inv(np.zeros((2, 0, 0))).shape == (2, 0, 0)
    assert tn.linalg.svdvals(np.zeros((0, 3))).shape == (0,)
    assert tn.linalg.solve(np.zeros((0, 3, 3)), np.zeros((0, 3, 2))).shape == (0, 3, 2)


def test_the_namespace_takes_diagonals_of_the_last_two_axes() -> None:
    x = tn.arange(24, dtype="f64").reshape(2, 3, 4)
    assert tn.linalg.diagonal(x).shape == (2, 3) and tn.diagonal(x).shape == (4, 2)
    assert tn.linalg.trace(x, dtype="f32").tolist() == [15.0, 51.0]


def test_a_tolerance_for_each_matrix_of_a_stack() -> None:
    x = np.stack([np.diag([1.0, 0.01]), np.diag([1.0, 0.01])])
    got = tn.linalg.pinv(tn.tensor(x), tn.tensor([0.1, 0.001]))
    np.testing.assert_allclose(got.numpy(), np.linalg.pinv(x, np.array([0.1, 0.001])), atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_matrices_of_every_size_are_the_same_compiled(size, lead) -> None:
    a, b = positive(*lead, size, size), normal(*lead, size, 3)

    def everything(a, b):
        return (tn.linalg.solve(a, b), tn.linalg.inv(a), tn.linalg.det(a), *tn.linalg.slogdet(a), tn.linalg.cholesky(a),
                tn.linalg.solve_triangular(a, b, upper=True), tn.linalg.solve_triangular(a, b))
    given = tn.tensor(a), tn.tensor(b)
    for found, expected in zip(tn.jit(everything)(*given), everything(*given), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["inv", "cholesky"])
def test_small_matrices_that_are_refused_say_so_compiled(name) -> None:
    function = getattr(tn.linalg, name)
    for f in (function, tn.jit(function)):
        with pytest.raises(LinearAlgebraError, match=r"singular|positive definite"):
            f(tn.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]))
    np.testing.assert_allclose(tn.jit(function)(tn.tensor([[4.0, 0.0], [0.0, 4.0]])).numpy(),
                               function(tn.tensor([[4.0, 0.0], [0.0, 4.0]])).numpy(), rtol=1e-6)


def test_what_is_nearly_nothing_of_a_singular_matrix() -> None:
    zero = tn.tensor([[2.0, 0.0], [0.0, 0.0]])
    sign, size = tn.jit(tn.linalg.slogdet)(zero)
    assert (tn.jit(tn.linalg.det)(zero).item(), sign.item(), size.item()) == (0, 0, -np.inf)
    assert not np.signbit(tn.jit(tn.linalg.det)(-zero).item())


@pytest.mark.parametrize("rows", ["7, 7", "3, 13", "0, 0"])
def test_only_small_matrices_are_written_out(rows) -> None:
    """Elimination of many rows is code without end, and a text may ask for it."""
    text = f"def f(x: f32[2, {rows.split(',')[0]}, {rows.split(',')[0]}], y: f32[2, {rows}]):\n" \
           f"    v0: f32[2, {rows}] = small_solve(x, y)\n    return v0\n"
    with pytest.raises(TenonError, match="expected 1 to 6 rows"):
        verify(parse_graph(text))


def test_gradients_of_a_filter_with_small_systems() -> None:
    def loss(q, z):
        p, total = q * 2, 0.0
        for row in z:
            s = p + q
            p = q + p - p @ tn.linalg.solve(s, p)
            total = total + row @ tn.linalg.solve(s, row) + tn.linalg.slogdet(s)[1]
        return total
    q, z = tn.tensor(positive(2, 2)), tn.tensor(normal(4, 2))
    np.testing.assert_allclose(tn.jit(tn.grad(loss))(q, z).numpy(), tn.grad(loss)(q, z).numpy(), rtol=1e-8)


def test_a_unit_triangle_is_one_in_every_call() -> None:
    a, b = normal(3, 3), normal(3, 2)
    expected = np.linalg.solve(np.tril(a, -1) + np.eye(3), b)
    for _ in range(4):
        same(tn.linalg.solve_triangular(tn.tensor(a), tn.tensor(b), unitriangular=True), expected)


@pytest.mark.parametrize("size", [2, 3, 9])
@pytest.mark.parametrize("place", [(0, 0), (1, 0), (1, 1)])
def test_a_determinant_that_is_no_number_has_no_sign(size, place):
    x = np.random.default_rng(0).standard_normal((2, size, size))
    x[(1, *place)] = np.nan
    for run in (tn.linalg.slogdet, tn.jit(lambda x: tuple(tn.linalg.slogdet(x)))):
        sign, logarithm = run(tn.asarray(x))
        assert np.isnan(sign.numpy()).tolist() == np.isnan(logarithm.numpy()).tolist() == [False, True]
        np.testing.assert_allclose(sign.numpy()[0] * np.exp(logarithm.numpy()[0]), np.linalg.det(x[0]))


SMALL = [tn.linalg.inv, tn.linalg.det, tn.linalg.slogdet, tn.linalg.cholesky, lambda x: tn.linalg.solve(x, x[..., :2]),
         lambda x: tn.linalg.solve_triangular(x, x)]


@pytest.mark.parametrize("which", range(len(SMALL)))
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_matrices_with_infinities_or_nan_are_the_same_eagerly_and_compiled(which: int, size: int) -> None:
    """Refused or not, and in which elements of the result are NaN."""
    random, run = np.random.default_rng(size), tn.jit(SMALL[which])

    def outcome(f: Any, x: np.ndarray) -> Any:
        try:
            found = f(tn.asarray(x))
        except LinearAlgebraError:
            return "refused"
        return [part.numpy() for part in (found if isinstance(found, tuple) else (found,))]
    for turn in range(12):
        x = np.where(random.random((2, size, size)) < 0.2, random.choice([np.nan, np.inf, -np.inf, 0.0], (2, size, size)),
                     random.integers(-2, 3, (2, size, size)) if turn % 2 else random.standard_normal((2, size, size)))
        x[0] = np.where(np.eye(size) > 0, np.abs(x[0]) + 4, x[0])
        eager, compiled = outcome(SMALL[which], x), outcome(run, x)
        assert eager == "refused" if compiled == "refused" else eager != "refused", x
        if compiled != "refused":
            for one, other in zip(eager, compiled, strict=True):
                np.testing.assert_allclose(one, other, 1e-6, 1e-9)


@pytest.mark.parametrize("name", ["svd", "svdvals", "eigh", "eigvals", "pinv"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_decomposition_refuses_what_is_no_number(name: str, bad: float) -> None:
    """LAPACK's did not end for some matrices with infinities."""
    x = np.array([[-bad, -0.2, -1.6], [-bad, -1.1, -1.7], [-0.3, 0.3, 1.3]], np.float32)
    for run in (getattr(tn.linalg, name), tn.jit(getattr(tn.linalg, name))):
        with pytest.raises(LinearAlgebraError, match="infinities or NaN"):
            run(tn.asarray(x))


@pytest.mark.parametrize("function", [
    lambda x: tn.linalg.svd(x)[1], lambda x: tn.linalg.eigh(x)[0], tn.linalg.eigvalsh, tn.linalg.svdvals,
    lambda x: tn.linalg.eigvals(x).real], ids=["svd", "eigh", "eigvalsh", "svdvals", "eigvals"])
def test_values_that_meet_have_gradients_without_their_vectors(function):
    """That of the sum is U V^T, whichever vectors stand for equal values."""
    gradient = tn.grad(lambda x: function(x).sum())
    for found in (gradient(tn.eye(3)), tn.jit(gradient)(tn.eye(3))):
        np.testing.assert_allclose(found.numpy(), np.eye(3), atol=1e-6)


def test_singular_values_have_gradients_with_full_matrices():
    x = tn.tensor(np.random.default_rng(0).normal(size=(2, 4)))
    u, _, vh = np.linalg.svd(x.numpy(), full_matrices=False)
    np.testing.assert_allclose(tn.grad(lambda x: tn.linalg.svd(x)[1].sum())(x).numpy(), u @ vh)

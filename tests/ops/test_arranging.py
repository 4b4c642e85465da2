"""Shapes, pieces, diagonals and creation against NumPy; symbolic sizes; errors with the user's line."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from gradients import check_gradient
from tenon.dims.symbolic_dim import symbol
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.verify import verify
from tenon.types import TensorType, float32

X = np.arange(24.0).reshape(2, 3, 4)

LIKE_NUMPY: dict[str, tuple[Any, Any]] = {      # what Tenon does, what NumPy does
    "flatten": (lambda x: x.flatten(), lambda x: x.ravel()),
    "flatten some": (lambda x: x.flatten(1), lambda x: x.reshape(2, 12)),
    "unflatten": (lambda x: x.unflatten(-1, (2, -1)), lambda x: x.reshape(2, 3, 2, 2)),
    "transpose": (lambda x: x.transpose(), lambda x: x.T),
    "transpose some": (lambda x: x.transpose(0, 2, 1), lambda x: x.transpose(0, 2, 1)),
    "moveaxis": (lambda x: tn.moveaxis(x, (0, -1), (1, 0)), lambda x: np.moveaxis(x, (0, -1), (1, 0))),
    "swapaxes": (lambda x: x.swapaxes(0, -1), lambda x: x.swapaxes(0, -1)),
    "matrix_transpose": (tn.matrix_transpose, np.matrix_transpose),
    "expand_dims": (lambda x: x.expand_dims((0, -1)), lambda x: np.expand_dims(x, (0, -1))),
    "squeeze": (lambda x: x[:1, :, :1].squeeze(), lambda x: x[:1, :, :1].squeeze()),
    "squeeze one": (lambda x: x[:1].squeeze(-3), lambda x: x[0]),
    "expand": (lambda x: x[:1].expand(5, -1, 4), lambda x: np.broadcast_to(x[:1], (5, 3, 4))),
    "concat": (lambda x: tn.concat([x, x[:, :1]], axis=1), lambda x: np.concatenate([x, x[:, :1]], 1)),
    "concat flat": (lambda x: tn.concat([x, x[0]], axis=None), lambda x: np.concatenate([x, x[0]], None)),
    "stack": (lambda x: tn.stack([x, x + 1], axis=-1), lambda x: np.stack([x, x + 1], -1)),
    "hstack": (lambda x: tn.hstack([x, x]), lambda x: np.hstack([x, x])),
    "vstack": (lambda x: tn.vstack([x[0, 0], x[0]]), lambda x: np.vstack([x[0, 0], x[0]])),
    "dstack": (lambda x: tn.dstack([x[0], x[1]]), lambda x: np.dstack([x[0], x[1]])),
    "dstack vectors": (lambda x: tn.dstack([x[0, 0], x[0, 1]]), lambda x: np.dstack([x[0, 0], x[0, 1]])),
    "column_stack": (lambda x: tn.column_stack([x[0, 0], x[0].T]), lambda x: np.column_stack([x[0, 0], x[0].T])),
    "flip": (lambda x: x.flip(), lambda x: np.flip(x)),
    "flip some": (lambda x: x.flip((0, -1)), lambda x: np.flip(x, (0, -1))),
    "fliplr": (tn.fliplr, np.fliplr),
    "flipud": (tn.flipud, np.flipud),
    "rot90": (lambda x: tn.rot90(x, 1, (1, 2)), lambda x: np.rot90(x, 1, (1, 2))),
    "rot270": (lambda x: tn.rot90(x, -1), lambda x: np.rot90(x, -1)),
    "rot180": (lambda x: tn.rot90(x, 2), lambda x: np.rot90(x, 2)),
    "roll": (lambda x: tn.roll(x, 5), lambda x: np.roll(x, 5)),
    "roll some": (lambda x: tn.roll(x, (1, -2), (0, 2)), lambda x: np.roll(x, (1, -2), (0, 2))),
    "tile": (lambda x: tn.tile(x, (2, 1, 1, 2)), lambda x: np.tile(x, (2, 1, 1, 2))),
    "tile less": (lambda x: x.tile(2), lambda x: np.tile(x, 2)),
    "repeat": (lambda x: x.repeat(3, axis=1), lambda x: x.repeat(3, axis=1)),
    "repeat flat": (lambda x: x.repeat(2), lambda x: x.repeat(2)),
    "repeat each": (lambda x: x.repeat([0, 2, 1], 1), lambda x: x.repeat([0, 2, 1], 1)),
    "select": (lambda x: x.select(1, -1), lambda x: x[:, -1]),
    "pad": (lambda x: tn.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=7.0),
            lambda x: np.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=7.0)),
    "pad reflect": (lambda x: tn.pad(x, (1, 1), "reflect"), lambda x: np.pad(x, (1, 1), "reflect")),
    "pad edge": (lambda x: tn.pad(x, 2, "replicate"), lambda x: np.pad(x, 2, "edge")),
    "pad wrap": (lambda x: tn.pad(x, (2, 1), "wrap"), lambda x: np.pad(x, (2, 1), "wrap")),
    "pad symmetric": (lambda x: tn.pad(x, (0, 2), "symmetric"), lambda x: np.pad(x, (0, 2), "symmetric")),
    "diagonal": (lambda x: tn.diagonal(x, -1, 1, 2), lambda x: np.diagonal(x, -1, 1, 2)),
    "diagonal first": (lambda x: tn.diagonal(x, 1), lambda x: np.diagonal(x, 1)),
    "trace": (lambda x: tn.trace(x, 1), lambda x: np.trace(x, 1)),
    "diag of a vector": (lambda x: tn.diag(x[0, 0], -2), lambda x: np.diag(x[0, 0], -2)),
    "diag of a matrix": (lambda x: tn.diag(x[0], 1), lambda x: np.diag(x[0], 1)),
    "tril": (lambda x: tn.tril(x, 1), lambda x: np.tril(x, 1)),
    "triu": (lambda x: tn.triu(x, -1), lambda x: np.triu(x, -1)),
    "kron": (lambda x: tn.kron(x[0, :2, :2], x[1]), lambda x: np.kron(x[0, :2, :2], x[1])),
    "kron of ranks": (lambda x: tn.kron(x[0, 0], x), lambda x: np.kron(x[0, 0], x)),
    "atleast_3d": (lambda x: tn.atleast_3d(x[0]), lambda x: np.atleast_3d(x[0])),
    "atleast_3d vector": (lambda x: tn.atleast_3d(x[0, 0]), lambda x: np.atleast_3d(x[0, 0])),
    "atleast_2d": (lambda x: tn.atleast_2d(x[0, 0]), lambda x: np.atleast_2d(x[0, 0])),
}


@pytest.mark.parametrize("name", LIKE_NUMPY)
def test_values_and_gradients(name: str) -> None:
    ours, numpys = LIKE_NUMPY[name]
    np.testing.assert_array_equal(ours(tn.asarray(X)).numpy(), numpys(X))
    check_gradient(ours, X)


def test_block_diag_and_diag_embed() -> None:
    got = tn.block_diag(tn.ones(1, 2), tn.tensor(5.0), tn.ones(2, 1) * 3)
    assert got.tolist() == [[1, 1, 0, 0], [0, 0, 5, 0], [0, 0, 0, 3], [0, 0, 0, 3]]
    x = tn.asarray(X)
    embedded = tn.diag_embed(x, 1, 0, -1)
    assert embedded.shape == (5, 2, 3, 5)
    np.testing.assert_array_equal(tn.diagonal(embedded, 1, 0, -1).numpy(), X)


def test_grids() -> None:
    x, y, z = np.arange(2), np.arange(3), np.arange(4)
    for indexing in ("xy", "ij"):
        for got, expected in zip(tn.meshgrid(x, y, z, indexing=indexing), np.meshgrid(x, y, z, indexing=indexing)):
            np.testing.assert_array_equal(got.numpy(), expected)
    assert tn.cartesian_prod(x, y).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


@pytest.mark.parametrize(("cut", "expected"), [
    (lambda x: tn.split(x, 3, axis=1), lambda x: np.split(x, 3, axis=1)),
    (lambda x: tn.split(x, [1, 3], -1), lambda x: np.split(x, [1, 3], -1)),
    (lambda x: tn.tensor_split(x, 3, axis=2), lambda x: np.array_split(x, 3, axis=2)),
    (lambda x: tn.tensor_split(x, [2, 1, 9], axis=2), lambda x: np.array_split(x, [2, 1, 9], axis=2)),
    (lambda x: tn.chunk(x, 3, axis=2), lambda x: [x[..., :2], x[..., 2:]]),
    (lambda x: tn.split_with_sizes(x, [1, 3], axis=2), lambda x: [x[..., :1], x[..., 1:]]),
    (lambda x: tn.unstack(x, axis=1), lambda x: [x[:, 0], x[:, 1], x[:, 2]]),
])
def test_cuts(cut: Any, expected: Any) -> None:
    parts = cut(tn.asarray(X))
    assert isinstance(parts, tuple) and len(parts) == len(expected(X))
    for part, other in zip(parts, expected(X)):
        np.testing.assert_array_equal(part.numpy(), other)
    check_gradient(lambda x: cut(x)[-1], X)


def test_empty_tensors_keep_their_shapes() -> None:
    x = tn.zeros(0, 3)
    assert x.flatten().shape == (0,) and x.ravel().shape == (0,) and x.T.shape == (3, 0) and x.flip().shape == (0, 3)
    assert tn.concat([x, tn.ones(2, 3)]).shape == (2, 3) and tn.stack([x, x]).shape == (2, 0, 3)
    assert x.roll(1).shape == (0, 3) and x.tile(2, 2).shape == (0, 6) and x.repeat(2, 0).shape == (0, 3)
    assert x.reshape(3, 0).shape == (3, 0) and tn.pad(x, 1).shape == (2, 5) and tn.tril(x).shape == (0, 3)
    assert [p.shape for p in tn.tensor_split(x, 2)] == [(0, 3), (0, 3)] and tn.unstack(x) == ()


def test_joined_tensors_agree_on_a_type() -> None:
    assert tn.concat([tn.ones(1, dtype="i32"), tn.ones(1, dtype="f64")]).dtype.name == "float64"
    assert tn.stack([tn.tensor(1), tn.tensor(2.5)]).tolist() == [1.0, 2.5]
    assert tn.stack([1, tn.tensor(2)]).tolist() == [1, 2]


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: x.reshape(5, 5), "reshape: f64[2, 3, 4] has 24 elements, [5, 5] has 25"),
    (lambda x: x.reshape(5, -1), "reshape: 24 elements do not divide into [5, -1]"),
    (lambda x: x.reshape(-1, -1), "only one size may be -1"),
    (lambda x: tn.squeeze(x, 1), "squeeze: axis 1 of f64[2, 3, 4] has size 3, not 1"),
    (lambda x: x.transpose((0, 1)), "permute: f64[2, 3, 4] needs 3 axes, got (0, 1)"),
    (lambda x: tn.concat([x, x[0]]), "concat: f64[2, 3, 4] and f64[3, 4] differ in more than axis 0"),
    (lambda x: tn.concat([tn.sum(x), tn.sum(x)]), "concat: a scalar has no axis to join along"),
    (lambda x: tn.concat([]), "concat: no tensors were given"),
    (lambda x: tn.stack([x, x[:1]]), "stack: f64[2, 3, 4] and f64[1, 3, 4] differ in shape"),
    (lambda x: tn.split(x, 2, axis=1), "split: axis 1 of f64[2, 3, 4] does not divide into 2 equal pieces"),
    (lambda x: tn.split_with_sizes(x, [1, 1], axis=1), "[1, 1] add up to 2"),
    (lambda x: tn.pad(x, 3, "reflect"), "pad: 3 elements on one side of axis 0 of f64[2, 3, 4] are too many"),
    (lambda x: tn.pad(x, 1, "mirror"), "pad: no mode 'mirror'"),
    (lambda x: x.expand(2, 3, 5), "broadcast_to: f64[2, 3, 4] does not broadcast to [2, 3, 5]"),
    (lambda x: x.select(0, 2), "index into axis 0 2 is out of range"),
    (lambda x: tn.tril(x[0, 0]), "tril: f64[4] has fewer than two axes"),
    (lambda x: tn.zeros(2, -1), "a size must not be negative: [2, -1]"),
    (lambda x: tn.zeros(2.5), "a size must be an integer, not 2.5"),
    (lambda x: tn.arange(0, 3, 0), "arange: step must not be 0"),
])
def test_errors_name_what_is_wrong_and_where(call: Any, message: str) -> None:
    with pytest.raises((ShapeError, ArgumentError)) as error:
        call(tn.asarray(X))
    assert message in str(error.value)
    assert "test_arranging.py" in str(error.value)


# ---------------------------------------------------------------- creation

@pytest.mark.parametrize("args", [(5,), (1, 7, 2), (5, 0, -2), (0.5, 2.1, 0.4), (3, 3), (5, 2), (1.0,), (0, 10, 3.5)])
def test_arange_is_numpys(args: Any) -> None:
    np.testing.assert_allclose(tn.arange(*args).numpy(), np.arange(*args), rtol=1e-6)
    assert tn.arange(*args).shape == np.arange(*args).shape


@pytest.mark.parametrize("args", [(0, 1, 5), (2, -3, 4), (0, 1, 1), (0, 1, 0), (1, 1, 3)])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_is_numpys(args: Any, endpoint: bool) -> None:
    got = tn.linspace(*args, endpoint=endpoint, dtype="f64").numpy()
    np.testing.assert_allclose(got, np.linspace(*args, endpoint=endpoint), rtol=1e-15, atol=1e-16)
    if endpoint and args[2] > 1:
        assert got[-1] == args[1]


def test_the_rest_of_creation_is_numpys() -> None:
    np.testing.assert_allclose(tn.logspace(0, 3, 4, dtype="f64").numpy(), np.logspace(0, 3, 4))
    np.testing.assert_allclose(tn.logspace(0, 3, 4, base=2.0, dtype="f64").numpy(), np.logspace(0, 3, 4, base=2))
    for n, m, k in [(3, None, 0), (2, 4, 1), (4, 2, -1), (0, 0, 0), (2, 2, 5)]:
        np.testing.assert_array_equal(tn.eye(n, m, k=k).numpy(), np.eye(n, m, k))
        np.testing.assert_array_equal(tn.tri(n, m, k).numpy(), np.tri(n, m, k))
    assert tn.full((2,), 0.1, dtype="f64").tolist() == [0.1, 0.1]
    assert tn.full((), True).dtype.name == "bool" and tn.full((1,), 2j).dtype.name == "complex64"
    assert tn.zeros_like(X).dtype.name == "float64" and tn.full_like(X, 3, dtype="i8").dtype.name == "int8"
    assert tn.ones((2, 3)).shape == tn.ones([2, 3]).shape == tn.ones(2, 3).shape == (2, 3) and tn.zeros(()).shape == ()
    assert tn.zeros(2, requires_grad=True).requires_grad
    with pytest.raises(DTypeError, match="the number 300 does not fit uint8"):
        tn.full((2,), 300, dtype="u8")


def test_a_filled_tensor_passes_the_gradient_to_its_value() -> None:
    check_gradient(lambda v: tn.full((2, 3), v), np.array(2.0))
    check_gradient(lambda a, b: tn.linspace(a, b, 4), np.array(1.0), np.array(3.0))


# ---------------------------------------------------------------- symbolic sizes

B = symbol("B")
SYMBOLIC: dict[str, Any] = {
    "flatten": lambda x: x.flatten(), "reshape": lambda x: x.reshape(-1, 2), "mean": lambda x: x.mean(),
    "var": lambda x: x.var(axis=0, correction=1), "concat": lambda x: tn.concat([x, x]), "flip": lambda x: x.flip(),
    "pad": lambda x: tn.pad(x, ((1, 2), (0, 0))), "roll": lambda x: x.roll(1, 0),
    "stack": lambda x: tn.stack([x, x], axis=1),
    "tril": lambda x: tn.tril(x), "arange": lambda x: tn.arange(x.shape[0]), "eye": lambda x: tn.eye(x.shape[0]),
    "zeros": lambda x: tn.zeros((x.shape[0], 2)), "ones_like": tn.ones_like, "tile": lambda x: x.tile(2, 1),
    "repeat": lambda x: x.repeat(2, axis=0), "split": lambda x: tn.split(tn.concat([x, x]), 2)[1],
    "linspace": lambda x: tn.linspace(0, 1, x.shape[0]), "squeeze": lambda x: x.expand_dims(0).squeeze(0),
    "select": lambda x: x.select(0, -1), "softmax": lambda x: x.exp() / x.exp().sum(axis=1, keepdims=True),
    "transpose": lambda x: x.transpose(), "diff": lambda x: tn.diff(x, axis=0),
    "trace": lambda x: (x @ x.transpose()).trace(),
    "nanmean": lambda x: tn.nanmean(x, axis=0), "argmax": lambda x: x.argmax(axis=0), "norm": lambda x: tn.norm(x),
    "expand": lambda x: x[:1].expand(x.shape[0], -1), "logsumexp": lambda x: tn.logsumexp(x, axis=0),
    "kron": lambda x: tn.kron(x, tn.ones(2, 1)), "meshgrid": lambda x: tn.meshgrid(x.select(1, 0), x.select(1, 1))[0],
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_a_symbolic_size_gives_what_the_number_gives(name: str) -> None:
    fn = SYMBOLIC[name]
    graph = verify(trace(fn, TensorType(float32, (B, 4)), name="program"))
    assert graph.symbols() == ("B",)
    for n in (2, 5):
        x = np.random.default_rng(n).uniform(0.5, 1.0, (n, 4)).astype(np.float32)
        expected = fn(tn.asarray(x)).numpy()
        got, = interpret(graph, [x])
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_an_order_of_axes_is_a_sequence_or_several_numbers() -> None:
    x = tn.zeros(2, 3, 4)
    for y in (x.permute(2, 0, 1), x.permute((2, 0, 1)), tn.permute(x, [2, 0, 1]), tn.permute_dims(x, axes=(-1, 0, 1))):
        assert y.shape == (4, 2, 3)
    with pytest.raises(ShapeError, match="needs 3 axes"):
        x.permute(1, 2)


def test_a_tensor_in_the_place_of_an_axis_is_told_where_it_belongs() -> None:
    x, at = tn.zeros(2, 3), tn.tensor([[0], [1]])
    for call in (lambda: x.sum(at), lambda: x.take(at, at), lambda: x.softmax(at)):
        with pytest.raises(DTypeError, match="tensors come before numbers"):
            call()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "bfloat16"])
def test_triangles_and_diagonals_keep_the_type_of_their_elements(dtype: str) -> None:
    x = tn.ones(3, 3, dtype=dtype)
    for y in (tn.tril(x), tn.triu(x), tn.diag_embed(x), tn.diag(x[0]), tn.jit(tn.tril)(x)):
        assert y.dtype is x.dtype


def test_what_a_causal_mask_hides() -> None:
    causal = tn.tril(tn.ones(3, 3, dtype=tn.bool))
    assert (~causal).tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert tn.zeros(3, 3).masked_fill(~causal, 1.0).sum().item() == 3.0
    with pytest.raises(DTypeError, match="a mask is bool, this one is int64"):
        tn.zeros(3, 3).masked_fill(~causal.astype("int64"), 1.0)


@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_diagonals_of_sizes_that_change(offset: int) -> None:
    def both(x: Any) -> Any:
        return tn.trace(x, offset), tn.grad(lambda x: tn.square(tn.diagonal(x, offset)).sum())(x)
    jitted = tn.jit(both, fullgraph=True)
    for shape in ((12, 3), (16, 4), (2, 9), (5, 5), (3, 2)):
        x = tn.tensor(np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape))
        for found, expected in zip(jitted(x), both(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())

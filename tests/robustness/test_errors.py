"""Wrong calls: what the error says, of which class it is, and that it stands at the user's line in both modes."""


import builtins
import contextlib
import copy
import inspect
import itertools
import linecache
import pickle
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import errors, nn
from tenon.errors import TenonError
from tenon.ops import PUBLIC

# What is written | the class | what the message is, in full
CALLS = """
tn.ones((2,3)) @ tn.ones((2,3)) | ShapeError | matmul: inner sizes differ: f32[2, 3] @ f32[2, 3]
tn.ones((2,3)) + tn.ones((4,)) | ShapeError | add: shapes [2, 3] and [4] do not broadcast: sizes 3 and 4 differ at axis -1
tn.where(tn.ones((2,3))>0, tn.ones(4), 0.0) | ShapeError | where: shapes [2, 3] and [4] and [] do not broadcast: sizes 3 and 4 differ at axis -1
tn.ones((2,3)).sum(axis=2) | AxisError | sum: axis 2 is out of range for a tensor of 2 dimensions
tn.ones((2,3)).sum(axis=(0,0)) | ShapeError | sum: axis (0, 0) names an axis twice
tn.ones((2,3)).mean(axis="x") | DTypeError | mean: axis must be an integer, not 'x'
tn.ones((2,3)).reshape(4,2) | ShapeError | reshape: f32[2, 3] has 6 elements, [4, 2] has 8
tn.ones((2,3)).reshape(-1,-1) | ShapeError | reshape: only one size may be -1: [-1, -1]
tn.ones((2,3)).reshape(-1, 0) | ShapeError | reshape: -1 has no single answer in [-1, 0]: the other sizes multiply to 0
tn.ones((2,3)).transpose(0,2) | AxisError | axis2 2 is out of range for a tensor of 2 dimensions
tn.ones((2,3)).permute((0,0)) | ShapeError | permute: axes (0, 0) names an axis twice
tn.ones((2,3))[5] | OutOfRange | x[key]: index 5 is out of range for axis 0 of size 2
tn.ones((2,3))[0,0,0] | OutOfRange | x[key]: the key has 3 indices, the tensor 2 axes
tn.ones((2,3))["a"] | DTypeError | x[key]: an index must be an integer, a slice, None, ... or an array of integers or booleans, not str
tn.ones((2,3))[1.5] | DTypeError | x[key]: an index must be an integer, a slice, None, ... or an array of integers or booleans, not float
tn.ones((2,3))[tn.tensor([0,7])] | OutOfRange | x[key]: index 7 is out of range for axis 0 of size 2
tn.ones((2,3))[tn.ones((3,3))>0] | OutOfRange | x[mask]: a mask of shape [3, 3] does not fit a tensor of shape [2, 3]
tn.concat([tn.ones((2,3)), tn.ones((2,4))]) | ShapeError | concat: f32[2, 3] and f32[2, 4] differ in more than axis 0
tn.concat([tn.ones((2,3)), tn.ones((2,4))], axis=5) | AxisError | concat: axis 5 is out of range for a tensor of 2 dimensions
tn.concat([]) | ArgumentError | concat: no tensors were given
tn.scatter(tn.ones(3), [0, 2], 1.0) | ArgumentError | scatter: 'indices' must be a tensor, not [0, 2]
tn.adaptive_avg_pool2d(tn.ones((1,1,4,4)), 2, 2) | ArgumentError | adaptive_avg_pool2d: too many positional arguments
tn.interpolate(tn.ones((1,1,4,4)), scale_factor="2") | ArgumentError | interpolate: it cannot be called with (f32[1, 1, 4, 4], scale_factor='2')
tn.stack([tn.ones(2), tn.ones(3)]) | ShapeError | stack: f32[2] and f32[3] differ in shape
tn.split(tn.ones((4,)), 3) | ShapeError | split: axis 0 of f32[4] does not divide into 3 equal pieces
tn.split(tn.ones((4,)), [1,9], axis=2) | AxisError | axis 2 is out of range for a tensor of 1 dimensions
tn.broadcast_to(tn.ones((2,3)), (4,3)) | ShapeError | broadcast_to: shapes [2, 3] and [4, 3] do not broadcast: sizes 2 and 4 differ at axis -2
tn.squeeze(tn.ones((2,3)), axis=0) | ShapeError | squeeze: axis 0 of f32[2, 3] has size 2, not 1
tn.expand_dims(tn.ones((2,3)), axis=7) | AxisError | axis 7 is out of range for a tensor of 3 dimensions
tn.flip(tn.ones((2,3)), axis=4) | AxisError | axis 4 is out of range for a tensor of 2 dimensions
tn.roll(tn.ones((2,3)), 1, axis=4) | AxisError | axis 4 is out of range for a tensor of 2 dimensions
tn.tile(tn.ones((2,3)), "x") | ArgumentError | a size must be an integer, not 'x'
tn.repeat(tn.ones((2,3)), -1) | ShapeError | broadcast_to: a size must not be negative: [6, -1]
tn.einsum("ij,jk->ik", tn.ones((2,3)), tn.ones((2,3))) | ShapeError | einsum: the axis 'j' has the sizes 3 and 2
tn.einsum("ij,jk->iz", tn.ones((2,3)), tn.ones((3,3))) | ArgumentError | einsum: the output names 'z', which no operand has
tn.einsum("ij", tn.ones((2,3)), tn.ones((3,3))) | ArgumentError | einsum: the formula has 1 terms, 2 operands were given
tn.tensordot(tn.ones((2,3)), tn.ones((2,3)), axes=1) | ShapeError | tensordot: axes (1,) of f32[2, 3] and (0,) of f32[2, 3] differ in size
tn.exp("hello") | DTypeError | exp: expected a tensor, an array or a number, not str
tn.exp(tn.ones(3), 4, 5) | ArgumentError | exp takes (x), and 3 positional arguments were given
tn.exp() | ArgumentError | exp: 'x' is missing
tn.exp(tn.ones(3), foo=1) | ArgumentError | exp: no argument 'foo'
tn.exp(None) | ArgumentError | exp: expected a tensor, an array or a number for 'x', not None
tn.exp([1,2,"x"]) | DTypeError | exp: expected a tensor, an array or a number, not list
tn.exp(object()) | DTypeError | exp: expected a tensor, an array or a number, not object
tn.ones(3) + "a" | DTypeError | add: expected a tensor, an array or a number, not str
tn.ones(3) + None | ArgumentError | add: expected a tensor, an array or a number for 'y', not None
tn.ones(3) + object() | DTypeError | add: expected a tensor, an array or a number, not object
tn.ones(3) & tn.ones(3) | DTypeError | bitwise_and: elements of type float32 are not taken
~tn.ones(3) | DTypeError | bitwise_invert: elements of type float32 are not taken
tn.ones(3) << 1 | DTypeError | bitwise_left_shift: elements of type float32 are not taken
tn.tensor([1,2],dtype="uint8") + 300 | DTypeError | add: the number 300 does not fit uint8
tn.tensor([1,2],dtype="uint8") * -1 | DTypeError | multiply: the number -1 does not fit uint8
tn.tensor([1,2]) ** -1 | ArgumentError | power: an integer to a negative integer power is a fraction
tn.tensor([True]) - tn.tensor([True]) | DTypeError | subtract: elements of type bool are not taken
-tn.tensor([True]) | DTypeError | negative: elements of type bool are not taken
tn.zeros((2,-1)) | ShapeError | a size must not be negative: [2, -1]
tn.zeros("a") | ArgumentError | a size must be an integer, not 'a'
tn.zeros((2,3), dtype="float99") | DTypeError | no such element type: 'float99'
tn.zeros((2,3), dtype=3) | DTypeError | no such element type: 3
tn.pad(tn.ones(2), (1.0, 0.0)) | ArgumentError | pad: a size must be an integer, not 1.0
tn.roll(tn.ones(2), 1.5) | DTypeError | roll: a shift must be an integer, not 1.5
tn.repeat(tn.ones(2), 2.0) | DTypeError | repeat: counts must be integers, not 2.0
tn.zeros(2.5) | ArgumentError | a size must be an integer, not 2.5
tn.arange(0, 10, 0) | ArgumentError | arange: step must not be 0
tn.linspace(0, 1, -3) | ArgumentError | linspace: num must not be negative, got -3
tn.eye(-2) | ShapeError | reshape: a size must not be negative: [-2, 1]
tn.full((2,), "x") | DTypeError | expected a tensor, an array or a number, not str
tn.argmax(tn.ones((0,))) | ShapeError | argmax: axis 0 of f32[0] is empty, there is no element to take
tn.max(tn.ones((0,3)), axis=0) | ShapeError | max: axis 0 of f32[0, 3] is empty, there is no element to take
tn.ones((2,3)).max(axis=5) | AxisError | max: axis 5 is out of range for a tensor of 2 dimensions
tn.argmax(tn.ones(3)*1j) | DTypeError | argmax: elements of type complex64 are not taken
tn.sort(tn.ones(3), axis=1) | AxisError | sort: axis 1 is out of range for a tensor of 1 dimensions
tn.topk(tn.ones(3), 5) | ArgumentError | topk: k=5 of 3 elements along axis 0
tn.cumsum(tn.ones((2,3)), axis=3) | AxisError | cumsum: axis 3 is out of range for a tensor of 2 dimensions
tn.take_along_axis(tn.ones((2,3)), tn.tensor([0]), axis=1) | ShapeError | take_along_axis: i64[1] and f32[2, 3] differ in the number of axes
tn.gather(tn.ones((2,3)), tn.tensor([[0.5]]), axis=1) | DTypeError | gather: indices must be integers, these are f32[1, 1]
tn.one_hot(tn.tensor([0,1]), -2) | ArgumentError | one_hot: num_classes must be a size, not -2
tn.one_hot(tn.tensor([0.5,1]), 3) | DTypeError | one_hot: indices must be integers, these are f32[2]
tn.searchsorted(tn.ones((2,2)), tn.ones(2)) | ShapeError | searchsorted: the rows of f32[2, 2] and f32[2] do not match
F.cross_entropy(tn.ones((2,3)), tn.tensor([0,1,2])) | ShapeError | cross_entropy: scores f32[2, 3] need class indices of shape [2], the target is i64[3]
F.cross_entropy(tn.ones((2,3)), tn.ones((2,))) | ShapeError | cross_entropy: scores f32[2, 3] need class probabilities of shape [2, 3], the target is f32[2]
F.mse_loss(tn.ones((2,3)), tn.ones((2,4))) | ShapeError | mse_loss: the prediction f32[2, 3] and the target f32[2, 4] differ in shape
F.conv2d(tn.ones((1,3,8,8)), tn.ones((4,2,3,3))) | ShapeError | conv: f32[1, 3, 8, 8] has 3 channels, the kernel f32[4, 2, 3, 3] with groups=1 takes 2
F.conv2d(tn.ones((1,3,8)), tn.ones((4,3,3,3))) | ShapeError | conv: f32[1, 1, 3, 8] has 1 channels, the kernel f32[4, 3, 3, 3] with groups=1 takes 3
F.conv2d(tn.ones((1,3,2,2)), tn.ones((4,3,3,3))) | ShapeError | conv: a window of 3 (dilation 1) is longer than the padded input, 2 + 0 + 0 along axis 0 of the sizes
F.conv2d(tn.ones((1,3,8,8)), tn.ones((4,3,3,3)), stride=0) | ArgumentError | conv: stride=0 must be at least 1
F.max_pool2d(tn.ones((1,3,2,2)), 5) | ShapeError | max_pool: a window of 5 (dilation 1) is longer than the padded input, 2 + 0 + 0 along axis 0 of the sizes
F.embedding(tn.tensor([0.5]), tn.ones((3,4))) | DTypeError | take: indices must be integers, these are f32[1]
F.embedding(tn.ones((3,4)), tn.tensor([0, 9])) | DTypeError | take: indices must be integers, these are f32[3, 4]
nn.Linear(3,4)(tn.ones((2,5))) | ShapeError | linear: the last size of x f32[2, 5] must be the last of weight f32[4, 3]
nn.Conv2d(3,4,3)(tn.ones((2,5,8,8))) | ShapeError | conv: f32[2, 5, 8, 8] has 5 channels, the kernel f32[4, 3, 3, 3] with groups=1 takes 3
nn.Embedding(3,4)(tn.tensor([5])) | OutOfRange | take: index 5 is out of range for axis 0 of size 3
nn.LayerNorm(4)(tn.ones((2,5))) | ShapeError | layer_norm: the last sizes of f32[2, 5] are not [4]
nn.BatchNorm2d(4)(tn.ones((2,5,3,3))) | ShapeError | batch_norm: f32[2, 5, 3, 3] has 5 channels, a vector for them is f32[4]
nn.Dropout(1.5) | ArgumentError | Dropout: p must be a probability, not 1.5
nn.Linear(-1, 3) | ArgumentError | Linear: in_features must be a size, not -1
tn.linalg.inv(tn.ones((2,3))) | ShapeError | inv: f32[2, 3] is no square matrix, nor a stack of them
tn.linalg.inv(tn.zeros((2,2))) | LinearAlgebraError | inv: singular matrix
tn.linalg.solve(tn.ones((2,2)), tn.ones((3,))) | ShapeError | solve: f32[2, 2] and the right-hand side f32[3, 1] do not fit
tn.linalg.cholesky(-tn.ones((2,2))) | LinearAlgebraError | cholesky: matrix is not positive definite
tn.linalg.det(tn.ones((3,))) | ShapeError | det: f32[3] is no square matrix, nor a stack of them
tn.clip(tn.ones(3), "a", 2) | DTypeError | clip: expected a tensor, an array or a number, not str
tn.astype(tn.ones(3), "nope") | DTypeError | no such element type: 'nope'
tn.ones(3).item() | ShapeError | item() needs exactly one element, this tensor is f32[3]
int(tn.ones(3)) | ShapeError | item() needs exactly one element, this tensor is f32[3]
bool(tn.ones(3)) | ArgumentError | the truth of a tensor with shape [3] is ambiguous
len(tn.tensor(3.0)) | DTypeError | a scalar tensor has no length
list(tn.tensor(3.0)) | DTypeError | a scalar tensor has no length
tn.tensor("abc") | DTypeError | tensor: str with elements of type <U3 makes no tensor
tn.tensor([object()]) | DTypeError | tensor: list with elements of type object makes no tensor
tn.tensor({1,2}) | DTypeError | tensor: set with elements of type object makes no tensor
tn.tensor({"a":1}) | DTypeError | tensor: dict with elements of type object makes no tensor
tn.tensor([1,2], requires_grad=True) | DTypeError | only floating and complex tensors have gradients, this one is int64
tn.ones(3).backward() | GradientError | backward() on a tensor that depends on nothing with requires_grad=True
(tn.ones(3).requires_grad_()*2).backward() | GradientError | backward() needs a scalar, this tensor is f32[3]
tn.ones(3).assign(tn.ones(4)) | ShapeError | assign: a tensor f32[3] was given f32[4]
tn.ones((2,3)).T @ tn.ones((4,)) | ShapeError | matmul: inner sizes differ: f32[3, 2] @ f32[4, 1]
tn.tensor(3.0).mT | ShapeError | mT needs at least two axes, this tensor is f32
tn.tensor(1.0) @ tn.tensor(2.0) | ShapeError | matmul: a scalar has no axis to multiply over
tn.softmax(tn.ones((2,3)), axis=2) | AxisError | softmax: axis 2 is out of range for a tensor of 2 dimensions
tn.norm(tn.ones(3), ord="x") | ArgumentError | norm: ord must be a number, inf or -inf, not 'x'
tn.var(tn.ones(3), axis=1) | AxisError | var: axis 1 is out of range for a tensor of 1 dimensions
tn.randint(5, 1, (3,)) | ArgumentError | randint: there is no integer from 5 up to 1
tn.rand(-3) | ShapeError | a size must not be negative: [-3]
tn.bernoulli(2.0) | ArgumentError | bernoulli: p=2.0 is not a probability
tn.normal(0.0, -1.0, (3,)) | ArgumentError | normal: the standard deviation must not be negative, got -1.0
tn.manual_seed("x") | ArgumentError | manual_seed: a seed must be an integer, not 'x'
tn.grad(lambda x: x*2)(tn.ones(3)) | GradientError | grad: the function returned f32[3], it must return a floating scalar
tn.grad(lambda x: x.sum())(tn.tensor([1,2])) | GradientError | grad: argument 0 has no floating elements to differentiate by, it is i64[2]
tn.vmap(lambda x, y: x+y)(tn.ones((2,3)), tn.ones((3,3))) | ShapeError | vmap: the number of examples differs: f32[2, 3] has 2 along axis 0, f32[3, 3] has 3 along axis 0
tn.jit(3) | ArgumentError | jit takes a function, not int
tn.unflatten(tn.ones(6), 0, (4,2)) | ShapeError | reshape: f32[6] has 6 elements, [4, 2] has 8
tn.diag(tn.ones((2,2,2))) | ShapeError | diag: a vector or a matrix is needed, not f32[2, 2, 2]
tn.tril(tn.ones(3)) | ShapeError | tril: f32[3] has fewer than two axes
tn.interpolate(tn.ones((2,3))) | ShapeError | interpolate: mode 'nearest' takes x with (1, 2, 3) axes of sizes, it is f32[2, 3]
tn.nn.functional.softmax(tn.ones(3), 7) | AxisError | softmax: axis 7 is out of range for a tensor of 1 dimensions
tn.optim.SGD([], lr=0.1) | ArgumentError | SGD: no parameters were given
tn.optim.SGD([tn.ones(3)], lr=-1) | ArgumentError | SGD: lr must not be negative, got -1
tn.optim.Adam([3.0]) | ArgumentError | Adam optimises tensors, not float
tn.optim.Adam(nn.ReLU()) | ArgumentError | Adam: parameters were expected, not ReLU
tn.optim.Adam([tn.ones(3)], lr="a") | ArgumentError | Adam: lr must be a number, got 'a'
tn.linspace(0, 1, 2.5) | ArgumentError | linspace: num must be an integer, got 2.5
tn.arange("a") | DTypeError | arange: expected a number, not 'a'
tn.matmul(tn.ones((2,3)), 3) | ShapeError | matmul: a scalar has no axis to multiply over
tn.asarray(np.array([1, None])) | DTypeError | tensor: ndarray with elements of type object makes no tensor
nn.Conv2d(3, 8, 3, padding="sam") | ArgumentError | Conv2d: padding must be a size, one an axis, 'same' or 'valid', not 'sam'
"""
SCOPE = {"tn": tn, "nn": nn, "F": nn.functional, "np": np}
ROWS = [tuple(part.strip() for part in row.split(" | ")) for row in CALLS.strip().splitlines()]
IN_COMPILED_CODE = ("tn.ones((2,3))[tn.tensor([0,7])]", "nn.Embedding(3,4)(tn.tensor([5]))")   # "an axis of size"


def function(body: str, arguments: str = "") -> Any:
    """A function of one line, with source that carets can point into."""
    name = f"<robust {abs(hash((body, arguments)))}>"
    code = f"def f({arguments}):\n    return {body}\n"
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    scope: dict[str, Any] = dict(SCOPE)
    exec(compile(code, name, "exec"), scope)
    return scope["f"]


def error_of(call: Any, *args: Any) -> TenonError:
    with pytest.raises(TenonError) as caught:
        call(*args)
    return caught.value


@pytest.mark.parametrize(("body", "kind", "message"), ROWS, ids=[row[0] for row in ROWS])
def test_a_wrong_call(body, kind, message):
    f = function(body)
    eager, jitted = error_of(f), error_of(tn.jit(f))
    for error in (eager, jitted):
        assert kind in [cls.__name__ for cls in type(error).__mro__]
        assert error.where.file == f.__code__.co_filename and error.where.line == 2
        assert "^" in str(error) and error.what in str(error)
    assert eager.what == message
    if body not in IN_COMPILED_CODE:
        assert str(jitted) == str(eager)


WRONG_KINDS = [[1, 3], None, "x y", -1, 1.5, True, object(), {}, np.array(["x"], object), np.float32, len, slice(1, 2)]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_call_with_arguments_of_wrong_kinds_is_refused_or_understood(name):
    """Never an error of Python's own, which names nothing that the user wrote."""
    signature = inspect.signature(PUBLIC[name]).parameters.values()
    required = sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in signature)
    for count in (max(1, required), required + 1):
        for place, wrong in itertools.product(range(count), WRONG_KINDS):
            args = [tn.tensor([[0, 1], [1, 0]]) if k % 2 else tn.tensor([[1.0, 2.0], [3.0, 4.0]]) for k in range(count)]
            args[place] = wrong
            with contextlib.suppress(TenonError):
                PUBLIC[name](*args)


def test_what_the_code_of_a_user_raises_is_raised():
    def refuse(x):
        raise ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        tn.op("refusing", type=refuse, ref=np.copy, replace=True)(tn.ones(3))
    assert not isinstance(caught.value, TenonError)


def test_errors_are_pythons_own_kinds_too():
    pairs = [("ShapeError", ValueError), ("DTypeError", TypeError), ("ArgumentError", ValueError),
             ("ArgumentError", TypeError), ("OutOfRange", IndexError), ("LinearAlgebraError", ArithmeticError),
             ("OutOfMemory", MemoryError), ("GradientError", RuntimeError)]
    for name, kind in pairs:
        assert issubclass(getattr(errors, name), kind) and issubclass(getattr(errors, name), TenonError)
    for body, python in (("tn.ones(3).nope", AttributeError), ("tn.nothing(3)", AttributeError)):
        with pytest.raises(python):
            function(body)()


# What only the running program can see: an index among the data.
CHECKED = [
    "x[i]", "x[0, i]", "tn.take(x, i, axis=1)", "tn.take_along_axis(x, i.reshape(1, -1), axis=1)",
    "tn.gather(x, tn.broadcast_to(i, (2, 2)), axis=1)", "tn.one_hot(i, 4)", "F.embedding(i, x)",
    "F.cross_entropy(x, i)", "tn.setitem(x, (0, i), 1.0)",
]


@pytest.mark.parametrize("body", CHECKED)
def test_an_index_out_of_range_in_compiled_code(body):
    f = function(body, "x, i")
    x = tn.ones((2, 4))
    g = tn.jit(f)
    good, bad = tn.tensor([0, 1]), tn.tensor([0, 7])
    want = f(x, good).numpy()
    np.testing.assert_allclose(g(x, good).numpy(), want, rtol=1e-6)
    eager, jitted = error_of(f, x, bad), error_of(g, x, bad)
    for error in (eager, jitted):
        assert isinstance(error, IndexError) and "index 7 is out of range for a" in error.what and error.hint
        assert "^" in str(error)
    assert jitted.where == eager.where
    assert jitted.what.split(":")[0] == eager.what.split(":")[0]
    np.testing.assert_allclose(g(x, good).numpy(), want, rtol=1e-6)       # the program is as good as before


@pytest.mark.parametrize("body", [
    "tn.zeros((1 << 40,))", "tn.ones((1 << 40, 1 << 40))", "tn.arange(1 << 45)",
    "tn.ones((1 << 20, 1)) * tn.ones((1, 1 << 21))", "tn.ones((1 << 20, 1)) @ tn.ones((1, 1 << 21))",
    "tn.repeat(tn.ones(4), 1 << 42)", "tn.pad(tn.ones(3), [(0, 1 << 42)])", "tn.rand(1 << 42)",
])
def test_what_is_too_large_is_refused(body):
    f = function(body)
    for call in (f, tn.jit(f)):
        error = error_of(call)
        assert isinstance(error, MemoryError) and "there is no such memory" in error.what and "^" in str(error)
        assert " TiB" in error.what or " EiB" in error.what


def test_a_size_that_grows_too_large_is_refused():
    f = tn.jit(function("tn.broadcast_to(x[:, None, None, None], (x.shape[0],) * 4).reshape(-1) + 1", "x"))
    assert f(tn.ones(3)).shape == (81,) and f(tn.ones(5)).shape == (625,)
    for size in (30_000, 1 << 20):      # the second overflows 64 bits
        assert isinstance(error_of(f, tn.broadcast_to(tn.ones(1), (size,))), MemoryError)
    assert f(tn.ones(4)).shape == (256,)


def test_an_error_travels_between_processes():
    error = error_of(function("tn.ones((2, 3)) @ tn.ones((2, 3))"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and type(again) is type(error)
    assert isinstance(error, builtins.ValueError)


def test_equal_code_in_another_file_or_otherwise_spaced_is_another_place():
    found = []
    for file, text in (("a.py", "place = look()"), ("b.py", "place = look()"), ("b.py", "place =     look()")):
        scope = {"look": errors.user_location}
        exec(compile(text, file, "exec"), scope)
        found.append((scope["place"].file, scope["place"].column))
    assert found == [("a.py", 8), ("b.py", 8), ("b.py", 12)]


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
@pytest.mark.parametrize("shape", [(0, 2**62), (0, 2**60), (2**61, 0), (2**40, 0, 2**20), (0, 2**31, 2**31)])
def test_sizes_beside_an_empty_axis_are_taken_where_numpy_takes_them(shape, dtype):
    def made():
        return tn.ones(shape, dtype=dtype)
    try:
        np.ones(shape, dtype)
    except ValueError:
        for run in (made, tn.jit(made)):
            with pytest.raises(TenonError, match="full_op: "):
                run()
    else:
        assert made().shape == tn.jit(made)().shape == shape


class Counting:
    """Counts what is asked of it that it does not have."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> None:
        self.asked.append(name)
        raise AttributeError(name)


def test_an_error_runs_no_code_of_the_users_to_tell_what_names_are() -> None:
    thing, layers = Counting(), nn.ModuleList([nn.ModuleList([nn.Linear(2, 2)]) for _ in range(3)])
    with pytest.raises(tn.errors.TenonError) as caught:
        layers[0][0](tn.ones(3, 3) * (1 if thing else 2))
    assert "in_features" in str(caught.value) and "ModuleList" not in str(caught.value) and not thing.asked
    for _ in range(100):
        assert not hasattr(layers[1], "lora_A")     # each asks within an error; they are not told within each other
    with pytest.raises(tn.errors.TenonError, match="no attribute 'lora_A'"):
        layers.lora_A(thing)
    assert not thing.asked


def test_errors_go_to_other_processes_and_are_copied() -> None:
    x, w = tn.ones(2, 3), tn.ones(4, 5)
    with pytest.raises(tn.errors.ShapeError) as caught:
        x @ w
    for other in (pickle.loads(pickle.dumps(caught.value)), copy.deepcopy(caught.value)):
        assert "x is f32[2, 3], w is f32[4, 5]" in str(other) and type(other) is tn.errors.ShapeError

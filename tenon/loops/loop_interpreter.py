"""A kernel run statement by statement on NumPy scalars: slow, and the oracle of the code generator.

Python functions are made of the statements and expressions first, which takes a third of the time of looking at each
for every element.

Every place that is read or written must be inside of its buffer, and every element be written before it is read: each
buffer has a shadow that says of which elements this holds, as memory checkers have.  A copy moves it along.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import evaluate
from tenon.errors import failed_check
from tenon.loops.expressions import (
    Binary,
    BitsOf,
    Buffer,
    Call,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    Index,
    Load,
    Local,
    Select,
    SizeOf,
    identity,
)
from tenon.loops.loop_ir import (
    Accumulator,
    Block,
    Chunk,
    Contraction,
    Kernel,
    Let,
    Loop,
    Nest,
    Prefetch,
    Stmt,
    Store,
    TransposeTile,
    Update,
)
from tenon.ops import special_reference
from tenon.ops.shape import cast
from tenon.records import dataclass
from tenon.types import DType, Shape

Environment = dict[Expr, Any]
Value = Callable[[Environment], Any]
Action = Callable[[Environment], None]


def interpret(kernel: Kernel, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    """The outputs of `kernel` on these inputs."""
    sizes = dict(sizes or {})
    memory = {b: Memory.of(a) for b, a in zip(kernel.inputs, arrays, strict=True)}
    memory |= {b: Memory.unwritten(b, sizes) for b in kernel.outputs + kernel.temporaries}
    for nest in kernel.nests:
        _run(nest, memory, sizes)
    for b in kernel.outputs:
        assert memory[b].written.all(), f"{b.name}[{np.argmin(memory[b].written)}] is never written"
    return [memory[b].elements.reshape([evaluate(n, sizes) for n in b.type.shape]) for b in kernel.outputs]


def run_nest(nest: Nest, memory: Mapping[Buffer, np.ndarray], sizes: Mapping[str, int]) -> None:
    """The statements of a nest, on memory that holds the elements of each buffer."""
    _run(nest, {b: Memory.of(elements) for b, elements in memory.items()}, sizes)


def _run(nest: Nest, memory: Mapping[Buffer, Memory], sizes: Mapping[str, int]) -> None:
    with np.errstate(all="ignore"):
        _Run({**memory, **{b: Memory.unwritten(b, sizes) for b in nest.locals}}, sizes).block(nest.body)({})


@dataclass(frozen=True, eq=False)
class Memory:
    """The elements of a buffer, and which of them have been written."""

    elements: np.ndarray
    written: np.ndarray

    @staticmethod
    def of(array: np.ndarray) -> Memory:
        """That of an array all of whose elements are there."""
        return Memory(np.ascontiguousarray(array).ravel(), np.ones(array.size, bool))

    @staticmethod
    def unwritten(buffer: Buffer, sizes: Mapping[str, int]) -> Memory:
        count = evaluate(buffer.elements, sizes)
        return Memory(np.zeros(count, buffer.type.dtype.numpy), np.zeros(count, bool))

    def store(self, position: int, value: Any) -> None:
        self.elements[position], self.written[position] = value, True

    def copy(self, position: int, source: Memory, at: int) -> None:
        """An element of another buffer, or of this one, which may be unwritten as well."""
        self.elements[position], self.written[position] = source.elements[at], source.written[at]

    def transpose(self, shape: Shape, lines: int, columns: int) -> None:
        """The first lines become columns."""
        for part in (self.elements, self.written):
            square = part.reshape(shape)
            square[:columns, :lines] = square[:lines, :columns].T.copy()


class _Run:
    """Makes a Python function of each statement and expression, once, and calls those for every element."""

    def __init__(self, memory: Mapping[Buffer, Memory], sizes: Mapping[str, int]):
        self.memory, self.sizes = memory, sizes
        self.chosen = True          # whether what is computed is wanted: a choice computes both of its sides
        self.values: dict[Expr, Value] = {}

    def block(self, body: Block) -> Action:
        actions = [self.statement(x) for x in body if not isinstance(x, Prefetch)]

        def run(env: Environment) -> None:
            for action in actions:
                action(env)
        return actions[0] if len(actions) == 1 else run

    def statement(self, x: Stmt) -> Action:
        match x:
            case Loop():
                return self.loop(x)
            case Contraction():
                return self.contraction(x)
            case Let(local=local, value=value):
                return self.let(local, self.value(value))
            case Store(value=Load(mask=None) as copied):
                return self.copy(x, copied)
            case Store():
                return self.store(x)
            case TransposeTile(buffer=buffer, lines=lines, columns=columns):
                return lambda env: self.memory[buffer].transpose(buffer.type.shape, lines, columns)
            case Accumulator(local=local, kind=kind):
                start = wide(local.dtype).type(identity(kind, local.dtype).value)
                return self.let(local, lambda env: start)
            case Update(local=local, kind=kind, value=value):
                combine, new = COMBINE[kind], self.value(value)
                return self.let(local, lambda env: combine(env[local], new(env)))
        raise AssertionError(x)

    def loop(self, x: Loop) -> Action:
        index, extent, body = x.index, self.value(x.extent), self.block(x.body)

        def run(env: Environment) -> None:
            for k in range(int(extent(env))):
                env[index] = np.int64(k)
                body(env)
        return run

    def let(self, local: Local | Index, value: Value) -> Action:
        def run(env: Environment) -> None:
            env[local] = value(env)
        return run

    def copy(self, x: Store, copied: Load) -> Action:
        memory, source = self.memory[x.buffer], self.memory[copied.buffer]
        place, at = self.position(x.buffer, x.offset), self.position(copied.buffer, copied.offset)
        return lambda env: memory.copy(place(env), source, at(env))

    def store(self, x: Store) -> Action:
        memory, place, value = self.memory[x.buffer], self.position(x.buffer, x.offset), self.value(x.value)
        return lambda env: memory.store(place(env), value(env))

    def contraction(self, x: Contraction) -> Action:
        left, right, epilogue = self.value(x.left), self.value(x.right), self.block(x.epilogue)

        def run(env: Environment) -> None:
            for place in self.places(x.batch + x.rows + x.columns):
                env |= place
                if x.chunk is not None:
                    env |= self.chunk(x.chunk, x.rows, place)
                total = wide(x.sum.dtype).type(0)
                for k in self.places(x.depth):
                    inner = env | k
                    total = total + left(inner) * right(inner)
                env[x.sum] = total
                epilogue(env)
        return run

    def chunk(self, chunk: Chunk, rows: Sequence[Index], place: Environment) -> Environment:
        """Of chunks as even as can be, the one that a row is in, and whether it is its first row."""
        sizes, count = ([evaluate(index.extent, self.sizes) for index in axis] for axis in (rows, (chunk.number,)))
        row = int(np.ravel_multi_index([place[index] for index in rows], sizes))
        numbers = [x * count[0] // math.prod(sizes) for x in (row, row - 1)]
        return {chunk.number: np.int64(numbers[0]), chunk.first: np.bool_(numbers[0] != numbers[1])}

    def places(self, indices: Sequence[Index]) -> Iterator[Environment]:
        """All values of several indices."""
        extents = [range(evaluate(index.extent, self.sizes)) for index in indices]
        for numbers in itertools.product(*extents):
            yield dict(zip(indices, map(np.int64, numbers), strict=True))

    # ------------------------------------------------------------ expressions

    def value(self, x: Expr) -> Value:
        found = self.values.get(x)
        if found is None:
            found = self.values[x] = self.expression(x)
        return found

    def expression(self, x: Expr) -> Value:
        match x:
            case Const(value=value, dtype=dtype):
                return _constant(wide(dtype).type(value))
            case SizeOf(dim=dim):
                return _constant(np.int64(evaluate(dim, self.sizes)))
            case Index() | Local():
                return operator.itemgetter(x)
            case Load():
                return self.load(x)
            case Binary(op=op, left=left, right=right):
                return _applied(SCALAR.get(op, ELEMENTWISE[op]), self.value(left), self.value(right))
            case Call(name=name, args=args, dtype=dtype):
                function, given, kind = FUNCTIONS[name], [self.value(arg) for arg in args], wide(dtype)
                return lambda env: np.asarray(function(*(arg(env) for arg in given))).astype(kind)[()]
            case Select():
                return self.select(x)
            case Cast(x=inner, dtype=dtype):
                return _applied(lambda value, dtype: converted(value, dtype)[()], self.value(inner), _constant(dtype))
            case BitsOf(x=inner, dtype=dtype):
                exact, bits, of = inner.dtype.numpy, dtype.numpy, self.value(inner)
                return lambda env: np.asarray(of(env)).astype(exact).view(bits).astype(wide(dtype))[()]
            case CheckedIndex():
                return self.checked(x)
        raise AssertionError(x)

    def load(self, x: Load) -> Value:
        memory, place, kind = self.memory[x.buffer], self.position(x.buffer, x.offset), wide(x.dtype)
        mask = None if x.mask is None else self.value(x.mask)
        elements, written, none = memory.elements, memory.written, kind.type(0)

        def run(env: Environment) -> Any:
            if mask is not None and not mask(env):
                return none
            position = place(env)
            assert written[position] or not self.chosen, f"{x}: {position} was never written"
            return elements[position].astype(kind)
        return run

    def select(self, x: Select) -> Value:
        """A choice.  The side that is not taken is computed too, of whatever lies in memory."""
        condition, then, otherwise = self.value(x.condition), self.value(x.then), self.value(x.otherwise)

        def side(value: Value, holds: Any, env: Environment) -> Any:
            outer, self.chosen = self.chosen, self.chosen and bool(holds)
            found = value(env)
            self.chosen = outer
            return found

        def run(env: Environment) -> Any:
            holds = condition(env)
            a, b = side(then, holds, env), side(otherwise, not holds, env)
            return a if holds else b
        return run

    def position(self, buffer: Buffer, offset: Expr) -> Callable[[Environment], int]:
        """A place in a buffer, which must be inside of it."""
        value, size = self.value(offset), self.memory[buffer].elements.size

        def run(env: Environment) -> int:
            found = int(value(env))
            assert 0 <= found < size, f"{buffer.name}[{offset}]: {found} is outside"
            return found
        return run

    def checked(self, x: CheckedIndex) -> Value:
        size, inner = evaluate(x.size, self.sizes), self.value(x.x)
        mask = None if x.mask is None else self.value(x.mask)

        def run(env: Environment) -> Any:
            given = int(inner(env))
            if (-size if x.wraps else 0) <= given < size:
                return np.int64(given + size if given < 0 else given)
            if mask is not None and not mask(env):
                return np.int64(0)
            raise failed_check(x.operator, given, size, x.where)
        return run


def _constant(value: Any) -> Value:
    return lambda env: value


def _applied(function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    return lambda env: function(left(env), right(env))


def wide(dtype: DType) -> np.dtype[Any]:
    """The type that values of this type are computed in."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.bits == 16 else dtype.numpy


def converted(x: Any, dtype: DType) -> np.ndarray:
    """Values in another type, as the operator `cast` gives them: a whole number ends where its type does."""
    assert cast.ref is not None
    return np.asarray(cast.ref(x, dtype)).astype(wide(dtype))


def _floor_divide(x: Any, y: Any) -> Any:
    if not isinstance(y, np.ndarray):
        return np.floor_divide(x, y) if y else x - x
    return np.where(y == 0, x - x, np.floor_divide(x, np.where(y == 0, x.dtype.type(1), y)))


def _remainder(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return np.remainder(x, y)
    if not isinstance(y, np.ndarray):
        return np.remainder(x, y) if y else x - x
    return np.where(y == 0, x - x, np.remainder(x, np.where(y == 0, x.dtype.type(1), y)))


def _shift(shift: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def shifted(x: Any, by: Any) -> Any:
        inside = (by >= 0) & (by < x.dtype.itemsize * 8)
        beyond = np.where(x < 0, x.dtype.type(-1 if shift is np.right_shift and x.dtype.kind == "i" else 0),
                          x.dtype.type(0))
        return np.where(inside, shift(x, np.where(inside, by, x.dtype.type(0))), beyond)[()]
    return shifted


# Of scalars, and of whole arrays.
ELEMENTWISE: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": _floor_divide, "%": _remainder,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": _shift(np.left_shift), ">>": _shift(np.right_shift), "min": np.minimum, "max": np.maximum,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}
# The same of scalars, in a tenth of the time.
SCALAR: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne}
COMBINE: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "any": np.logical_or,
    "all": np.logical_and,
}


def _per_element(function: Callable[[float], float]) -> Callable[[Any], Any]:
    def number(x: Any) -> float:
        try:
            return function(float(x))
        except (ValueError, OverflowError):
            return math.nan if math.isnan(x) else math.inf
    return lambda x: np.asarray(np.vectorize(number, otypes=[np.float64])(x)).astype(x.dtype)[()]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh",
        "tanh", "hypot", "fmod", "logaddexp", "nextafter", "copysign", "floor", "ceil", "trunc", "isnan")
} | {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power, "round": np.rint, "abs": np.abs, "neg": np.negative,
    "product": np.multiply,
    "not": np.invert, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "normal_cdf": _per_element(lambda x: (1 + math.erf(x * math.sqrt(0.5))) / 2),
    "erfinv": special_reference.erfinv, "digamma": special_reference.digamma,
    "erf": _per_element(math.erf), "erfc": _per_element(math.erfc), "lgamma": _per_element(math.lgamma),
}

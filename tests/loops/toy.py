"""A few operators, defined for the loop tests alone."""

import numpy as np

from tenon.graph.op import Op
from tenon.types import TensorType, bool_, int64


def insert(i, axis, k):
    return i[:axis] + (k,) + i[axis:]


def drop(i, axis):
    return i[:axis] + i[axis + 1:]


def map_op(name, ref, scalar, dtype=None):
    return Op(f"toy_{name}", type=lambda x, *ys: x if dtype is None else x.with_dtype(dtype), ref=ref,
              compute=lambda s, i, *xs: scalar(s, *(x(i) for x in xs)))


def reduce_op(name, ref, kind, dtype=None):
    return Op(f"toy_{name}", type=lambda x, *, axis: TensorType(dtype or x.dtype, drop(x.shape, axis)),
              ref=lambda x, *, axis: ref(x, axis=axis),
              compute=lambda s, i, x, *, axis: s.reduce(kind, (x.shape[axis],), lambda k: x(insert(i, axis, k[0]))))


add = map_op("add", np.add, lambda s, x, y: x + y)
sub = map_op("sub", np.subtract, lambda s, x, y: x - y)
mul = map_op("mul", np.multiply, lambda s, x, y: x * y)
div = map_op("div", np.divide, lambda s, x, y: x / y)
floordiv = map_op("floordiv", lambda x, y: np.floor_divide(x, y), lambda s, x, y: x // y)
mod = map_op("mod", lambda x, y: np.remainder(x, y), lambda s, x, y: x % y)
neg = map_op("neg", np.negative, lambda s, x: -x)
exp = map_op("exp", np.exp, lambda s, x: s.call("exp", x))
maximum = map_op("maximum", np.maximum, s_max := lambda s, x, y: s.maximum(x, y))
minimum = map_op("minimum", np.minimum, lambda s, x, y: s.minimum(x, y))
less = map_op("less", np.less, lambda s, x, y: x < y, bool_)
left_shift = map_op("left_shift", lambda x, y: np.left_shift(x, y), lambda s, x, y: x << y)
right_shift = map_op("right_shift", lambda x, y: np.right_shift(x, y), lambda s, x, y: x >> y)
where = Op("toy_where", type=lambda c, x, y: x, ref=np.where, compute=lambda s, i, c, x, y: s.select(c(i), x(i), y(i)))

cast = Op("toy_cast", type=lambda x, *, dtype: x.with_dtype(dtype), ref=lambda x, *, dtype: x.astype(dtype.numpy),
          compute=lambda s, i, x, *, dtype: s.cast(x(i), dtype))
sum_ = reduce_op("sum", lambda x, axis: np.sum(x, axis=axis, dtype=x.dtype), "add")
prod = reduce_op("prod", lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype), "mul")
max_ = reduce_op("max", lambda x, axis: np.max(x, axis=axis), "max")
min_ = reduce_op("min", lambda x, axis: np.min(x, axis=axis), "min")
any_ = reduce_op("any", lambda x, axis: np.any(x, axis=axis), "any")
all_ = reduce_op("all", lambda x, axis: np.all(x, axis=axis), "all")
argmax = reduce_op("argmax", lambda x, axis: np.argmax(x, axis=axis), "argmax", int64)
argmin = reduce_op("argmin", lambda x, axis: np.argmin(x, axis=axis), "argmin", int64)
total = Op("toy_total", type=lambda x: x.with_shape(()), ref=lambda x: np.sum(x, dtype=x.dtype),
           compute=lambda s, i, x: s.reduce("add", x.shape, lambda k: x(k)))

spread = Op("toy_spread", type=lambda x, *, axis, n: x.with_shape(insert(x.shape, axis, n)),
            ref=lambda x, *, axis, n: np.repeat(np.expand_dims(x, axis), n, axis),
            compute=lambda s, i, x, *, axis, n: x(drop(i, axis)))
transpose = Op("toy_transpose", type=lambda x: x.with_shape(x.shape[::-1]), ref=np.transpose,
               compute=lambda s, i, x: x(i[::-1]))


def _reshaped(s, i, x, *, shape):
    flat = s.const(0, int64)
    for n, k in zip(shape, i, strict=True):
        flat = flat * n + k
    index = []
    for n in reversed(x.shape):
        index.insert(0, flat % n)
        flat = flat // n
    return x(index)


reshape = Op("toy_reshape", type=lambda x, *, shape: x.with_shape(shape), ref=lambda x, *, shape: x.reshape(shape),
             compute=_reshaped)
pad = Op("toy_pad", type=lambda x, *, low, high: x.with_shape((x.shape[0] + low + high, *x.shape[1:])),
         ref=lambda x, *, low, high: np.pad(x, [(low, high)] + [(0, 0)] * (x.ndim - 1), constant_values=7),
         compute=lambda s, i, x, *, low, high: s.when((i[0] >= low) & (i[0] < x.shape[0] + low),
                                                       lambda: x((i[0] - low, *i[1:])), 7))
gather = Op("toy_gather", type=lambda x, at: TensorType(x.dtype, at.shape + x.shape[1:]),
            ref=lambda x, at: x[at],
            compute=lambda s, i, x, at: x((s.index(at(i[:at.ndim]), x.shape[0]), *i[at.ndim:])))
matmul = Op("toy_matmul", type=lambda a, b: TensorType(a.dtype, (a.shape[0], b.shape[1])), ref=np.matmul,
            compute=lambda s, i, a, b: s.reduce("add", (a.shape[1],), lambda k: a((i[0], k[0])) * b((k[0], i[1]))))


def softmax(x, axis):
    n = x.shape[axis]
    e = exp(sub(x, spread(max_(x, axis=axis), axis=axis, n=n)))
    return div(e, spread(sum_(e, axis=axis), axis=axis, n=n))

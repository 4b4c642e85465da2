"""Products of matrices in disguise: recognised, and right in every layout, with prologues and epilogues."""

import numpy as np
import pytest

import tenon as tn
from loops import toy
from loops.compiled import check
from loops.test_maps import data, type_of
from tenon.backends.cpu.contraction_codegen import template_of
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import trace
from tenon.graph.op import Op
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.loops.loop_ir import Contraction
from tenon.types import TensorType, float32


def einsum_op(name, letters, dtype=None):
    """A sum of products, spelled as NumPy's einsum."""
    (left, right), out = letters.split("->")[0].split(","), letters.split("->")[1]
    summed = [c for c in dict.fromkeys(left + right) if c not in out]

    def extents(a, b):
        return dict(zip(left + right, a.shape + b.shape, strict=True))

    def rule(a, b):
        return TensorType(dtype or a.dtype, tuple(extents(a, b)[c] for c in out))

    def compute(s, i, a, b):
        at = dict(zip(out, i, strict=True))

        def body(k):
            index = at | dict(zip(summed, k, strict=True))
            x, y = a([index[c] for c in left]), b([index[c] for c in right])
            return x * y if dtype is None else s.cast(x, dtype) * s.cast(y, dtype)
        return s.reduce("add", [extents(a, b)[c] for c in summed], body)

    def ref(a, b):
        wide = np.float64 if a.dtype.kind == "f" else a.dtype
        return np.einsum(letters, a.astype(wide), b.astype(wide)).astype(dtype.numpy if dtype else a.dtype)

    return Op(f"toy_einsum_{name}", type=rule, ref=ref, compute=compute)


LAYOUTS = {letters: einsum_op(letters.replace(",", "_").replace("->", "_"), letters) for letters in (
    "ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ki,jk->ij", "ik,kj->ji", "bik,bkj->bij", "bik,kj->bij", "bhik,bhjk->bhij",
    "bikl,klj->bij", "abk,ck->abc", "ibk,bkj->bij")}
IMAGES = einsum_op("images", "oc,bcs->bos")
DOT = einsum_op("dot", "ij,j->")
SIZES = dict(zip("abchijkl", (8, 4, 7, 2, 17, 19, 23, 6), strict=True))


def is_contraction(kernel):
    return any(isinstance(s, Contraction) for nest in kernel.nests for s in nest.body)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_layouts(letters):
    types = [type_of("f32", *(SIZES[c] for c in part)) for part in letters.split("->")[0].split(",")]
    assert is_contraction(check(trace(LAYOUTS[letters], *types), *map(data, types), interpreted=False, tolerance=1e-4))


@pytest.mark.parametrize("rows", [50001, 5461 * 9, symbol("N")])
def test_a_long_sum_of_products_ends_where_its_last_chunk_does(rows):
    types = [type_of("f32", rows, 3), type_of("f32", 3)]
    check(trace(DOT, *types), np.ones((rows if isinstance(rows, int) else 5, 3), "f4"), np.ones(3, "f4"),
          interpreted=False, tolerance=1e-4)


def test_the_interpreter_knows_contractions():
    a, b = type_of("f32", 9, 16), type_of("f32", 16, 32)
    assert is_contraction(check(trace(toy.matmul, a, b), data(a), data(b), tolerance=1e-4))


def test_symbolic_sizes():
    m, n, k = map(symbol, "MNK")
    graph = trace(toy.matmul, type_of("f32", m, k), type_of("f32", k, n))
    for sizes in [(2, 2, 2), (33, 18, 7), (5, 300, 40)]:
        a, b = type_of("f32", sizes[0], sizes[2]), type_of("f32", sizes[2], sizes[1])
        assert is_contraction(check(graph, data(a), data(b), interpreted=False, tolerance=1e-4))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i32", "i64"])
def test_element_types(dtype):
    a, b = type_of(dtype, 20, 30), type_of(dtype, 30, 40)
    tolerance = 1e-1 if dtype.endswith("16") else None
    kernel = check(trace(LAYOUTS["ik,kj->ij"], a, b), data(a, -1, 2), data(b, -1, 2), interpreted=False,
                   tolerance=tolerance)
    assert is_contraction(kernel)


@pytest.mark.parametrize("letters, sizes, way", [
    ("ik,kj->ij", ((6, 130), (130, 77)), "outer"), ("ik,jk->ij", ((6, 130), (77, 130)), "depth")])
def test_integers_are_read_along_their_lines_while_they_are_packed(letters, sizes, way):
    product = einsum_op(f"integers_{way}", letters, float32)
    types = [type_of("i16", *size) for size in sizes]
    kernel = check(trace(lambda x, y: product(x, y), *types), *(data(t, -9, 9) for t in types), interpreted=False)
    statement = next(s for s in kernel.nests[0].body if isinstance(s, Contraction))
    template = template_of(statement, {buffer: place for place, buffer in enumerate(kernel.buffers)}, len(kernel.buffers), host())
    assert template.right.pointer is None and template.right.contiguous == way


def test_epilogue_and_prologue_are_fused():
    a, b, c = type_of("f32", 20, 30), type_of("f32", 30, 40), type_of("f32", 40)

    def body(a, b, c):
        y = toy.add(toy.matmul(toy.neg(a), toy.transpose(toy.transpose(b))), toy.spread(c, axis=0, n=20))
        return toy.div(toy.exp(toy.neg(y)), toy.maximum(y, y))

    kernel = check(trace(body, a, b, c), data(a, -1, 1), data(b, -1, 1), data(c, 30, 40), interpreted=False,
                   tolerance=1e-4)
    assert is_contraction(kernel) and len(kernel.nests) == 1


@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("dtype, places, runs", [("f32", 41, True), ("f32", 39, False), ("f64", 200, True),
                                                 ("bf16", 999, False), ("bf16", 1000, True)])
def test_columns_in_several_runs_are_a_batch_of_products(rows, dtype, places, runs):
    """An image's places are a line for every channel, and those of the next image lie elsewhere."""
    a, b = type_of(dtype, rows, 64), type_of(dtype, 3, 64, places)
    kernel = check(trace(lambda a, b: toy.exp(IMAGES(a, b)), a, b), data(a, -1, 1), data(b, -1, 1), interpreted=False,
                   tolerance=1e-1 if dtype == "bf16" else 1e-4)
    found = [s for s in kernel.nests[0].body if isinstance(s, Contraction)]
    assert found or not runs                    # plain loops do few rows of short runs as well
    assert all(len(s.batch) == runs for s in found)


def test_lines_of_windows_overlap_and_are_no_runs():
    x, w = type_of("f32", 3, 1, 500), type_of("f32", 20, 1, 9)
    kernel = check(trace(lambda x, w: tn.conv(x, w), x, w), data(x), data(w), interpreted=False, tolerance=1e-3)
    assert [s.batch for s in kernel.nests[0].body if isinstance(s, Contraction)] == [()]


def test_two_products_added():
    a, b = type_of("f32", 20, 30), type_of("f32", 30, 40)
    kernel = check(trace(lambda x, w, h, u: toy.exp(toy.add(toy.matmul(x, w), toy.matmul(h, u))), a, b, a, b),
                   data(a, -1, 0), data(b, 0, 1), data(a, -1, 0), data(b, 0, 1), interpreted=False, tolerance=1e-4)
    assert len(kernel.nests) == 2 and all(isinstance(nest.body[0], Contraction) for nest in kernel.nests)


def test_a_product_that_is_read_twice_is_computed_once():
    a, b = type_of("f32", 20, 30), type_of("f32", 30, 40)

    def body(a, b):
        y = toy.matmul(a, b)
        return y, toy.neg(y), toy.sum_(y, axis=1)

    kernel = check(trace(body, a, b), data(a), data(b), interpreted=False, tolerance=1e-4)
    assert sum(isinstance(nest.body[0], Contraction) for nest in kernel.nests) == 1


def several(product, *others):
    """Three results of one product and of what is read beside it; one of them is the product itself."""
    y = toy.add(product, others[0])
    return y, toy.sub(toy.mul(y, others[1]), toy.exp(toy.minimum(y, y))), product


@pytest.mark.parametrize("letters", LAYOUTS)
def test_several_results_of_one_product_are_one_nest(letters):
    *factors, out = letters.replace("->", ",").split(",")
    types = [type_of("f32", *(SIZES[c] for c in part)) for part in (*factors, out, out)]
    graph = trace(lambda a, b, *others: several(LAYOUTS[letters](a, b), *others), *types)
    kernel = check(graph, *(data(t, -1, 1) for t in types), interpreted=False, tolerance=1e-3)
    assert is_contraction(kernel) and len(kernel.nests) == 1


@pytest.mark.parametrize("m, n, k", [(45, 70, 33), (1, 100, 64), (100, 3, 64), (2, 2, 1500), (30, 65, 3000)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32"])
def test_several_results_of_small_narrow_and_deep_products(dtype, m, n, k):
    a, b, c = type_of(dtype, m, k), type_of(dtype, k, n), type_of(dtype, m, n)
    graph = trace(lambda a, b, c: (toy.add(toy.matmul(a, b), c), toy.mul(toy.matmul(a, b), c)), a, b, c)
    tolerance = {"bf16": 1e-1, "f32": 1e-2, "f64": 1e-9, "i32": None}[dtype]
    check(graph, data(a, -2, 3), data(b, -2, 3), data(c, -2, 3), interpreted=False, tolerance=tolerance)


def test_several_results_of_symbolic_sizes():
    m, n, k = map(symbol, "MNK")
    graph = trace(lambda a, b, c: (toy.add(toy.matmul(a, b), c), toy.mul(toy.matmul(a, b), c)),
                  type_of("f32", m, k), type_of("f32", k, n), type_of("f32", m, n))
    for sizes in [(2, 2, 2), (33, 18, 7), (5, 300, 40), (30, 65, 1500)]:
        a, b, c = type_of("f32", sizes[0], sizes[2]), type_of("f32", sizes[2], sizes[1]), type_of("f32", *sizes[:2])
        assert is_contraction(check(graph, data(a), data(b), data(c), interpreted=False, tolerance=1e-2))


def test_attention():
    q, v = type_of("f32", 2, 20, 16), type_of("f32", 2, 20, 16)

    def body(q, k, v):
        return LAYOUTS["bik,bkj->bij"](toy.softmax(LAYOUTS["bhik,bhjk->bhij"](
            toy.reshape(q, shape=(2, 1, 20, 16)), toy.reshape(k, shape=(2, 1, 20, 16))), 3), v)

    def folded(q, k, v):
        scores = LAYOUTS["bhik,bhjk->bhij"](toy.reshape(q, shape=(2, 1, 20, 16)), toy.reshape(k, shape=(2, 1, 20, 16)))
        return LAYOUTS["bik,bkj->bij"](toy.reshape(toy.softmax(scores, 3), shape=(2, 20, 20)), v)

    kernel = check(trace(folded, q, q, v), data(q, -1, 1), data(q, -1, 1), data(v), interpreted=False, tolerance=1e-4)
    assert sum(isinstance(nest.body[0], Contraction) for nest in kernel.nests) == 2


def convolution(x, w, *, stride, padding):
    n, _, height, width = x.shape
    f, _, kh, kw = w.shape
    sizes = [(size + 2 * padding - k) // stride + 1 for size, k in ((height, kh), (width, kw))]
    return TensorType(float32, (n, f, *sizes))


def convolve(s, i, x, w, *, stride, padding):
    n, f, y, z = i
    _, _, height, width = x.shape

    def body(k):
        c, dy, dx = k
        u, v = y * stride + dy - padding, z * stride + dx - padding
        inside = (u >= 0) & (u < height) & (v >= 0) & (v < width)
        return s.when(inside, lambda: x((n, c, u, v)), 0.0) * w((f, c, dy, dx))
    return s.reduce("add", w.shape[1:], body)


def convolution_ref(x, w, *, stride, padding):
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("ncyxij,fcij->nfyx", windows, w)


conv = Op("toy_conv", type=convolution, ref=convolution_ref, compute=convolve)


@pytest.mark.parametrize("stride, padding", [(1, 0), (1, 1), (2, 1), (2, 0)])
def test_convolution(stride, padding):
    x, w = type_of("f32", 2, 3, 9, 11), type_of("f32", 7, 3, 3, 3)
    kernel = check(trace(lambda x, w: conv(x, w, stride=stride, padding=padding), x, w), data(x), data(w),
                   interpreted=False, tolerance=1e-4)
    assert is_contraction(kernel)


def test_small_products_are_plain_loops():
    a, b = type_of("f32", 3, 4), type_of("f32", 4, 5)
    assert not is_contraction(check(trace(toy.matmul, a, b), data(a), data(b)))




def test_a_vector_times_a_matrix_reads_the_matrix_as_it_lies():
    for rows, layout in ((1, "ik,kj->ij"), (2, "ki,kj->ij"), (1, "ik,jk->ij")):
        types = [type_of("f32", *({"i": rows, "k": 67, "j": 83}[c] for c in part)) for part in layout.split("->")[0].split(",")]
        assert is_contraction(check(trace(LAYOUTS[layout], *types), *map(data, types), interpreted=False, tolerance=1e-4))


@pytest.mark.parametrize("product", ["matmul(v1, g)", "matmul(v3, v2)"])
def test_a_vector_that_lies_in_pieces_of_unknown_length(product):
    """An index of no components was taken apart: the weights' gradient of an RNN with one input could not be compiled."""
    shape = "1, 72" if product == "matmul(v1, g)" else "72, 1"
    graph = parse_graph(f"""def f(x: f32[N, 2, 1], g: f32[2*N, 72]):
        v0: f32[1, 2, N] = permute(x, axes=(2, 1, 0))
        v1: f32[1, 2*N] = reshape(v0, shape=(1, 2*N))
        v2: f32[2*N, 1] = permute(v1, axes=(1, 0))
        v3: f32[72, 2*N] = permute(g, axes=(1, 0))
        v4: f32[{shape}] = {product}
        return v4""")
    for n in (2, 33, 300):
        assert is_contraction(check(graph, data(type_of("f32", n, 2, 1)), data(type_of("f32", 2 * n, 72)), interpreted=False,
                                    tolerance=1e-4))

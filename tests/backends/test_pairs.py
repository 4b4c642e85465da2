"""Products of bfloat16: of pairs where the processor multiplies those, and the same numbers everywhere else."""

import numpy as np
import pytest

import tenon as tn
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import has_matrix_registers, host
from tenon.pipeline import compile
from tenon.runtime.program import Program
from tenon.runtime.thread_pool import get_num_threads, set_num_threads
from tenon.types import bfloat16

PRIMES = 1, 2, 3, 5, 7, 31, 33
WORDS = "tdpbf16ps", "vdpbf16ps"          # which multiply pairs in matrix registers, or as vectors


def product(rows: int, depth: int, columns: int, left: str = "mk", right: str = "kn", batch: str = "",
            kind: str = "bf16") -> Program:
    """The product of matrices that lie by these letters, of bfloat16 or rounded to it."""
    sizes = {"m": rows, "k": depth, "n": columns}
    shapes = {side: ", ".join(filter(None, [batch, *(str(sizes[x]) for x in letters)]))
              for side, letters in (("a", left), ("b", right))}
    axes = "(0, 2, 1)" if batch else "(1, 0)"
    names = {"a": "a", "b": "b"} if kind == "bf16" else {"a": "ra", "b": "rb"}
    lines = [] if kind == "bf16" else [f"r{x}: bf16[{shapes[x]}] = cast({x}, dtype=bf16)" for x in "ab"]
    for side, turned in (("a", left == "km"), ("b", right == "nk")):
        if turned:
            last = shapes[side].split(", ")
            shape = ", ".join([*last[:-2], last[-1], last[-2]])
            lines.append(f"{side}t: bf16[{shape}] = permute({names[side]}, axes={axes})")
            names[side] = f"{side}t"
    shape = ", ".join(filter(None, [batch, str(rows), str(columns)]))
    lines.append(f"y: bf16[{shape}] = matmul({names['a']}, {names['b']})")
    made = compile(parse_graph("\n    ".join(
        [f"def product(a: {kind}[{shapes['a']}], b: {kind}[{shapes['b']}]):", *lines, "return y"])), backend="cpu")
    assert isinstance(made, Program)
    return made


def arrays_for(made: Program) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=tuple(p.shape)).astype(p.dtype.numpy) for p in made.graph.params]


def check(made: Program, arrays: list[np.ndarray]) -> np.ndarray:
    (found,), (wanted,) = made.run(arrays), interpret(made.graph, arrays)
    assert found.dtype == wanted.dtype
    scale = float(np.abs(wanted.astype(np.float32)).max(initial=1e-30))
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=1e-2, atol=1e-2 * scale)
    return found


def multiplies_pairs(made: Program) -> bool:
    return any(word in unit.ir for unit in made.kernels for word in WORDS)


@pytest.mark.parametrize("rows, depth, columns", [(8, 64, 33), (19, 33, 47), (9, 1, 130), (130, 127, 16), (3, 100, 64)])
@pytest.mark.parametrize("codes", ["i8", "u8"])
@pytest.mark.parametrize(("kind", "turned"), [("bf16", True), ("f32", True), ("bf16", False)])
def test_numbers_of_8_bits_become_pairs_as_they_are_packed(rows: int, depth: int, columns: int, codes: str, kind: str,
                                                           turned: bool) -> None:
    shape = (columns, depth) if turned else (depth, columns)
    lines = [f"def product(a: {kind}[{rows}, {depth}], b: {codes}[{shape[0]}, {shape[1]}]):",
             f"wide: f32[{shape[0]}, {shape[1]}] = cast(b, dtype=f32)",
             f"w: bf16[{shape[0]}, {shape[1]}] = cast(wide, dtype=bf16)", f"x: bf16[{rows}, {depth}] = cast(a, dtype=bf16)",
             *([f"t: bf16[{depth}, {columns}] = permute(w, axes=(1, 0))"] if turned else []),
             f"y: bf16[{rows}, {columns}] = matmul(x, {'t' if turned else 'w'})", "return y"]
    lines = [line for line in lines if kind == "f32" or not line.startswith("x:")]
    made = compile(parse_graph("\n    ".join(x if kind == "f32" else x.replace("(x,", "(a,") for x in lines)), backend="cpu")
    random = np.random.default_rng(0)
    low, high = (0, 256) if codes == "u8" else (-128, 128)
    b = random.integers(low, high, shape).astype(codes.replace("i", "int").replace("u", "uint"))
    check(made, [random.normal(size=(rows, depth)).astype(made.graph.params[0].dtype.numpy), b])
    if turned and host().pairs == "vectors" and depth > 2:
        assert multiplies_pairs(made) == (rows >= 8)


@pytest.mark.parametrize("left", ["mk", "km"])
@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("depth", [32, 41])
def test_float32_is_rounded_to_nearest_even_as_it_is_packed(left: str, right: str, depth: int) -> None:
    made, random = product(24, depth, depth, left, right, kind="f32"), np.random.default_rng(0)
    x = random.integers(-2**24, 2**24, (24, depth)).astype(np.float32)
    x[::3] = random.integers(-512, 512, x[::3].shape) + 0.5     # halfway between two of them, where they are large
    x[1, 5], x[2, 6] = 3.4e38, 1 + 2**-8
    found, = made.run([x if left == "mk" else np.ascontiguousarray(x.T), np.eye(depth, dtype=np.float32)])
    wanted = x.astype(bfloat16.numpy).astype(np.float32)
    rows = [i for i in range(24) if np.isfinite(wanted[i]).all()]
    np.testing.assert_array_equal(found.astype(np.float32)[rows], wanted[rows])
    assert host().pairs != "vectors" or any("vcvtne2ps2bf16" in unit.ir for unit in made.kernels)


def test_a_quantized_layer_under_autocast_multiplies_pairs() -> None:
    tn.manual_seed(0)
    layer = tn.nn.quantize(tn.nn.Linear(70, 48))
    x = tn.randn(40, 70)

    def forward(x):
        with tn.autocast(), tn.no_grad():
            return layer(x)
    np.testing.assert_allclose(np.asarray(tn.jit(forward)(x)), np.asarray(layer(x).detach()), atol=2e-2)
    made = compile(tn.jit(forward).graph(x), backend="cpu")
    assert host().pairs != "vectors" or multiplies_pairs(made)


def test_a_processor_that_multiplies_pairs_is_known_for_it() -> None:
    assert host().pairs == ("registers" if has_matrix_registers() else "vectors" if host().has("avx512bf16") else None)


@pytest.mark.parametrize("left", ["mk", "km"])
@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [
    (33, 64, 45), (97, 256, 71), (130, 2080, 9)])
def test_all_layouts_and_edges(left: str, right: str, rows: int, depth: int, columns: int, kind: str) -> None:
    made = product(rows, depth, columns, left, right, kind=kind)
    assert multiplies_pairs(made) == bool(host().pairs)
    check(made, arrays_for(made))


@pytest.mark.parametrize("left", ["mk", "km"])
@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_no_factor_is_copied_before_it_is_packed(left: str, kind: str) -> None:
    made = product(32, 64, 256, left, kind=kind)
    assert not any(unit.kernel.temporaries for unit in made.kernels)
    check(made, arrays_for(made))


@pytest.mark.parametrize(("left", "right", "batch", "kind"), [
    ("mk", "kn", "", "bf16"), ("mk", "nk", "3", "bf16"), ("km", "kn", "2", "bf16"), ("km", "nk", "", "bf16"),
    ("mk", "nk", "", "f32"), ("km", "kn", "", "f32")])
def test_odd_and_prime_sizes(left: str, right: str, batch: str, kind: str) -> None:
    for depth, rows, columns in zip(PRIMES, PRIMES[3:] + PRIMES[:3], PRIMES[5:] + PRIMES[:5], strict=True):
        made = product(rows, depth, columns, left, right, batch, kind)
        a, b = arrays_for(made)
        (found,), (x, y) = made.run([a, b]), (z.astype(bfloat16.numpy).astype(np.float64) for z in (a, b))
        x, y = np.swapaxes(x, -1, -2) if left == "km" else x, np.swapaxes(y, -1, -2) if right == "nk" else y
        wanted, terms = x @ y, np.abs(x) @ np.abs(y)
        assert np.all(np.abs(found.astype(np.float64) - wanted) <= np.abs(wanted) / 255 + terms * 1e-6)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(5, 2083, 33), (33, 7, 97)])
@pytest.mark.parametrize("left", ["mk", "km"])
def test_depth_that_ends_within_a_chunk_of_pairs(left: str, rows: int, depth: int, columns: int) -> None:
    made = product(rows, depth, columns, left, "nk" if left == "mk" else "kn")
    assert multiplies_pairs(made) == bool(host().pairs)
    check(made, arrays_for(made))


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 64, 300), (64, 64, 1), (64, 2, 64)])
def test_others_are_products_of_float32(rows: int, depth: int, columns: int) -> None:
    made = product(rows, depth, columns)
    assert not multiplies_pairs(made)
    check(made, arrays_for(made))


@pytest.mark.parametrize(("left", "right"), [("mk", "nk"), ("km", "kn")])
def test_batches(left: str, right: str) -> None:
    made = product(20, 64, 24, left, right, batch="3")
    assert multiplies_pairs(made) == bool(host().pairs)
    check(made, arrays_for(made))


@pytest.mark.parametrize(("depth", "right"), [(64, "kn"), (31, "nk"), (50, "kn")])
def test_nan_and_infinity_stay_in_their_rows_and_columns(depth: int, right: str) -> None:
    made = product(40, depth, 40, right=right)
    a, b = arrays_for(made)
    a[3, 0], b[-1, 11] = np.nan, np.inf
    (found,), (wanted,) = made.run([a, b]), interpret(made.graph, [a, b])
    np.testing.assert_array_equal(np.isfinite(found.astype(np.float32)), np.isfinite(wanted.astype(np.float32)))


def test_one_size_that_is_a_symbol() -> None:
    made = compile(parse_graph("""
def product(a: bf16[N, 64], b: bf16[64, 48]):
    y: bf16[N, 48] = matmul(a, b)
    return y
"""), backend="cpu")
    assert isinstance(made, Program)
    random = np.random.default_rng(0)
    for rows in (0, 1, 31, 64):
        check(made, [random.normal(size=s).astype(bfloat16.numpy) for s in ((rows, 64), (64, 48))])


def test_an_epilogue_takes_the_sums_in_float32() -> None:
    made = compile(parse_graph("""
def layer(x: bf16[40, 64], w: bf16[48, 64], bias: bf16[48]):
    wt: bf16[64, 48] = permute(w, axes=(1, 0))
    y: bf16[40, 48] = matmul(x, wt)
    b: bf16[40, 48] = broadcast_to(bias, shape=(40, 48))
    z: bf16[40, 48] = add(y, b)
    out: bf16[40, 48] = maximum(z, 0.0)
    return out
"""), backend="cpu")
    assert isinstance(made, Program) and len(made.kernels) == 1
    check(made, arrays_for(made))


def images(rows: int, depth: int, run: int, kind: str = "bf16") -> Program:
    """One matrix by each of three images: columns lie in three runs of memory."""
    made = compile(parse_graph(f"""
def product(a: bf16[{rows}, {depth}], images: {kind}[3, {depth}, {run}]):
    b: bf16[3, {depth}, {run}] = cast(images, dtype=bf16)
    wide: bf16[3, {rows}, {depth}] = broadcast_to(a, shape=(3, {rows}, {depth}))
    y: bf16[3, {rows}, {run}] = matmul(wide, b)
    return y
"""), backend="cpu")
    assert isinstance(made, Program)
    return made


@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize(("rows", "depth", "run"), [
    (20, 64, 49), (33, 32, 196), (19, 31, 17), (97, 71, 5), (5, 2083, 16), (66, 40, 8), (70, 63, 4), (40, 64, 100)])
def test_columns_in_several_runs_of_memory_are_put_together(rows: int, depth: int, run: int, kind: str) -> None:
    made = images(rows, depth, run, kind)
    assert multiplies_pairs(made) == bool(host().pairs)
    assert not any(unit.kernel.temporaries for unit in made.kernels)
    a, b = arrays = arrays_for(made)
    check(made, arrays)
    b[1, -1, -1], a[2, 0] = np.nan, np.inf
    (found,), (wanted,) = made.run([a, b]), interpret(made.graph, [a, b])
    np.testing.assert_array_equal(np.isfinite(found.astype(np.float32)), np.isfinite(wanted.astype(np.float32)))


def test_threads_give_the_same_bits() -> None:
    before = get_num_threads()
    for made in product(300, 2080, 200, "km", "nk"), images(65, 2080, 49):
        arrays, found = arrays_for(made), []
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append(made.run(arrays)[0].tobytes())
        set_num_threads(before)
        assert found[0] == found[1] == found[2]


def test_a_training_step_under_autocast_uses_them() -> None:
    tn.manual_seed(0)
    net = tn.nn.Sequential(tn.nn.Linear(64, 96), tn.nn.ReLU(), tn.nn.Linear(96, 32))

    def step(x: tn.Tensor) -> tn.Tensor:
        with tn.autocast():
            loss = (net(x).astype("float32") ** 2).mean()
        loss.backward()
        return loss
    made = compile(tn.jit(step).graph(tn.randn(64, 64)), backend="cpu")
    assert isinstance(made, Program)
    assert sum(any(word in unit.ir for word in WORDS) for unit in made.kernels) >= (4 if host().pairs else 0)

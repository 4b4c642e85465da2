"""The contraction template against NumPy: element types, layouts, sizes, epilogues, convolution, threads."""
from functools import cache
from itertools import product

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from benchmarks.example_specs import F32, F64, convolution, fixed, matmul
from benchmarks.run_spec import Native
from tenon.backends.cpu.contraction import GemmSpec, Operand, Tile, choose_tile, emit_contraction
from tenon.backends.cpu.contraction.gemm_spec import left_layout, narrow_tile
from tenon.backends.cpu.contraction.ir_helpers import I32, I64, address, const
from tenon.backends.cpu.contraction.panel_prefetch import crowded
from tenon.llvm import shared_functions
from tenon.llvm.host_target import host
from tenon.llvm.target_module import TargetModule
from tenon.records import replace
from tenon.target import Target

ELEMENTS = {"f32": (F32, np.float32), "f64": (F64, np.float64), "i32": (I32, np.int32), "i64": (I64, np.int64)}
LAYOUTS = list(product(("mk", "km"), ("kn", "nk")))
SIZES = [(1, 1, 1), (0, 3, 3), (3, 0, 3), (5, 5, 0), (2, 50, 600), (70, 1, 33), (1, 70, 23), (7, 17, 5), (6, 16, 40),
         (101, 103, 97), (13, 200, 801)]
GUARD = 64
compiled = cache(lambda *args, **options: Native(matmul(*args, **options)))


def random(kind: type, *shape: int) -> np.ndarray:
    values = np.random.default_rng(sum(shape)).integers(-50, 50, shape)
    return values.astype(kind) if kind in (np.int32, np.int64) else (values / 64).astype(kind)


def guarded(*shape: int) -> np.ndarray:
    """An array with not-a-number on both sides of it."""
    whole = np.full(np.prod(shape) + 2 * GUARD, np.nan, np.float32)
    return whole[GUARD:-GUARD].reshape(shape)


def run(name: str, left: str, right: str, sizes: tuple[int, int, int], batch: int = 1, threads: int = 1) -> np.ndarray:
    """The product, by as many threads one after the other, from scratch memory full of not-a-number."""
    element, kind = ELEMENTS[name]
    (m, n, k), call = sizes, compiled(element, left, right)
    a, b = random(kind, batch, m, k), random(kind, batch, k, n)
    a_stored, b_stored = (np.ascontiguousarray(x if plain else x.swapaxes(1, 2))
                          for x, plain in ((a, left == "mk"), (b, right == "kn")))
    out = np.full((batch, m, n), 99, kind)
    for thread in range(threads):
        call(out, a_stored, b_stored, batch, m, n, k, thread=thread, threads=threads)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4 if kind is np.float32 else 1e-12, atol=1e-5 * np.sqrt(k + 1))
    return out


@pytest.mark.parametrize("name, left, right", [
    *(("f32", *layout) for layout in LAYOUTS), *(("f64", *layout) for layout in LAYOUTS),
    ("i32", "mk", "kn"), ("i32", "km", "nk"), ("i64", "mk", "nk")])
def test_products_agree_with_numpy_in_every_layout_and_size(name: str, left: str, right: str) -> None:
    for sizes in SIZES:
        run(name, left, right, sizes)


@pytest.mark.parametrize("left, right", LAYOUTS)
def test_the_last_columns_have_a_tile_of_the_vectors_that_they_fill(left: str, right: str) -> None:
    tile = replace(choose_tile(F32, host()), depth=2 * choose_tile(F32, host()).lanes)
    m, k = 2 * tile.rows + 1, 5 * tile.lanes + 3
    a, b = (random(np.float32, *shape) for shape in ((1, m, k), (1, k, 3 * tile.width)))
    assert narrow_tile(matmul(F32), tile) is None
    for rest in (0, 1, tile.lanes, tile.lanes + 1, tile.width - tile.lanes, tile.width - 1):
        n = 2 * tile.width + rest
        spec = matmul(F32, left, right, known=(m, n, k))
        narrow, vectors = narrow_tile(spec, tile), -(-rest // tile.lanes)
        assert (0 if narrow is None else narrow.vectors) == vectors % tile.vectors
        stored = a if left == "mk" else np.ascontiguousarray(a.swapaxes(1, 2))
        other = np.ascontiguousarray(b[..., :n] if right == "kn" else b[..., :n].swapaxes(1, 2))
        call, results = Native(spec, tile), [guarded(1, m, n) for _ in range(2)]
        for threads, out in zip((1, 3), results, strict=True):
            for thread in range(threads):
                call(out, stored, other, 1, m, n, k, thread=thread, threads=threads)
            assert np.isnan(out.base[:GUARD]).all() and np.isnan(out.base[-GUARD:]).all()
        np.testing.assert_array_equal(*results)
        np.testing.assert_allclose(results[0], a @ b[..., :n], rtol=1e-4, atol=1e-4)


def test_a_large_product_goes_through_every_block_boundary() -> None:
    tile = choose_tile(F32, host())
    run("f32", "mk", "kn", (tile.block_rows + tile.rows + 1, tile.columns + tile.width + 1, tile.depth + 1))


@pytest.mark.parametrize("left, right", LAYOUTS)
def test_known_sizes_choose_the_tile_and_rows_are_read_in_place(left: str, right: str) -> None:
    for m, n, k in [(64, 96, 40), (101, 103, 97), (29, 47, 1024), (30, 20, 1030), (1, 5, 300), (5, 0, 3), (40, 50, 0),
                    (1, 9000, 21), (2, 77, 31), (3, 2100, 18), (4, 1300, 30), (5, 70, 33)]:
        call = Native(matmul(F32, left, right, known=(m, n, k)))
        a, b = random(np.float32, m, k), random(np.float32, k, n)
        stored = [np.ascontiguousarray(x if plain else x.T) for x, plain in ((a, left == "mk"), (b, right == "kn"))]
        results = []
        for threads in (1, 3):
            results.append(np.full((m, n), np.nan, np.float32))
            for thread in range(threads):
                call(results[-1], *stored, 1, m, n, k, thread=thread, threads=threads)
        np.testing.assert_allclose(results[0], a @ b, rtol=1e-4, atol=1e-3)
        assert np.array_equal(*results)


@pytest.mark.parametrize("over", [(0, 0), (1, 0), (0, 1), (1, 17)])
@pytest.mark.parametrize("epilogue", [False, True])
def test_code_for_edges_is_made_where_there_may_be_some(over: tuple[int, int], epilogue: bool) -> None:
    """Known sizes of whole tiles, and a little more, over several blocks of depth."""
    k = 2 * choose_tile(F32, host()).depth + 3
    tile = choose_tile(F32, host(), known=(None, None, k))
    m, n = 2 * tile.rows + over[0], 2 * tile.width + over[1]
    spec, module = matmul(F32, bias_relu=epilogue, known=(m, n, k)), TargetModule(host())
    emit_contraction(module, "product", spec, tile)
    whole, names = over == (0, 0), {x.name for x in module.functions}
    assert ("product.pack_left" in names) is (over[0] > 0)
    assert ("product.finish" in names) is epilogue
    assert any(store_part_is_called(x) for x in module.functions) is not (whole or epilogue)
    left, right, bias = random(np.float32, m, k), random(np.float32, k, n), random(np.float32, n)
    call, more = Native(spec, tile), [bias] if epilogue else []
    for threads in (1, 3):
        out = guarded(m, n)
        for thread in range(threads):
            call(out, left, right, 1, m, n, k, *more, thread=thread, threads=threads)
        expected = np.maximum(left @ right + bias, 0) if epilogue else left @ right
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)
        assert np.isnan(out.base[:GUARD]).all() and np.isnan(out.base[-GUARD:]).all()


def store_part_is_called(function: ir.Function) -> bool:
    """Whether it is the piece that stores the part of a tile that there is."""
    return isinstance(function, shared_functions.Piece) and "llvm.masked.store" in function.text and "fmuladd" not in function.text


@pytest.mark.parametrize("epilogue", [False, True])
def test_sums_wait_between_blocks_of_depth_in_the_result_or_in_scratch(epilogue: bool) -> None:
    m, n, k = 33, 50, 100
    tile = Tile(rows=4, vectors=2, lanes=4, depth=16, columns=24, block_rows=12)
    a, b, bias, out = (random(np.float32, *shape) for shape in ((m, k), (k, n), (n,), (m, n)))
    Native(matmul(F32, bias_relu=epilogue), tile)(out, a, b, 1, m, n, k, *([bias] if epilogue else []))
    expected = np.maximum(a @ b + bias, 0) if epilogue else a @ b
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("left, right", LAYOUTS)
@pytest.mark.parametrize("known", [False, True])
def test_panels_are_packed_by_their_first_tile_and_fetched_by_the_tiles_before(left: str, right: str, known: bool) -> None:
    """Blocks of two tiles of rows: whole panels and parts of one, whole tiles and parts of one, in several blocks."""
    tile = Tile(rows=4, vectors=2, lanes=4, depth=16, block_rows=8, columns=24)
    for m, n, k in [(8, 24, 16), (19, 29, 40), (3, 8, 36), (9, 7, 17), (20, 16, 64)]:
        call = Native(matmul(F32, left, right, known=(m, n, k) if known else None), tile)
        a, b, out = guarded(m, k), guarded(k, n), guarded(m, n)
        stored = []
        for x, plain in ((a, left == "mk"), (b, right == "kn")):
            x[:] = np.random.default_rng(m).standard_normal(x.shape)
            stored.append(x if plain else guarded(*x.shape[::-1]))
            stored[-1][:] = x if plain else x.T
        for thread in range(2):
            call(out, *stored, 1, m, n, k, thread=thread, threads=2)
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
        assert np.isnan(out.base[:GUARD]).all() and np.isnan(out.base[-GUARD:]).all()


@pytest.mark.parametrize("vector_bytes", [16, 64])
def test_the_tiles_of_other_machines_give_right_results_too(vector_bytes: int) -> None:
    for left, right in ("mk", "nk"), ("km", "kn"):
        call = Native(matmul(F32, left, right), choose_tile(F32, Target(vector_bytes, 16 if vector_bytes < 64 else 32)))
        for m, n, k in [(37, 70, 20), (16, 33, 401), (100, 1, 50), (1, 100, 50)]:
            a, b, out = random(np.float32, m, k), random(np.float32, k, n), np.full((m, n), np.nan, np.float32)
            stored = (np.ascontiguousarray(x if plain else x.T) for x, plain in ((a, left == "mk"), (b, right == "kn")))
            call(out, *stored, 1, m, n, k)
            np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("left, right", LAYOUTS)
def test_any_number_of_threads_gives_the_same_bits(left: str, right: str) -> None:
    for sizes in [(97, 33, 801), (33, 211, 801), (2, 100, 50), (50, 3, 70), (1, 1, 5), (5, 0, 5)]:
        one, two, three = (run("f32", left, right, sizes, batch=3, threads=threads) for threads in (1, 2, 3))
        assert np.array_equal(one, two) and np.array_equal(one, three)


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_batches(batch: int) -> None:
    run("f32", "mk", "kn", (20, 30, 40), batch, threads=2)
    run("f32", "mk", "nk", (3, 3, 3), batch, threads=2)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_the_epilogue_sees_every_finished_sum_once(name: str) -> None:
    element, kind = ELEMENTS[name]
    call = compiled(element, "mk", "kn", bias_relu=True)
    for m, n, k in [(1, 1, 1), (50, 70, 30), (13, 33, 900), (2, 40, 10), (7, 5, 0)]:
        a, b, bias, out = random(kind, m, k), random(kind, k, n), random(kind, n), np.full((m, n), np.nan, kind)
        call(out, a, b, 1, m, n, k, bias)
        np.testing.assert_allclose(out, np.maximum(a @ b + bias, 0), rtol=1e-4, atol=1e-4)


# images, channels, height, width, filters, kernel, padding, stride
CONVOLUTIONS = [(2, 3, 9, 7, 5, 3, 1, 1), (2, 3, 11, 40, 7, 3, 1, 1), (1, 4, 9, 9, 7, 3, 1, 2),
                (2, 3, 6, 5, 5, 5, 2, 1), (1, 3, 33, 37, 8, 7, 3, 2), (3, 20, 14, 14, 9, 3, 1, 1),
                (1, 60, 7, 7, 9, 3, 1, 1), (2, 5, 8, 8, 6, 1, 0, 1), (3, 4, 5, 4, 6, 3, 1, 1), (2, 3, 3, 3, 4, 3, 1, 1),
                (2, 3, 13, 29, 6, 5, 2, 2), (2, 200, 6, 28, 5, 3, 1, 1), (2, 7, 9, 13, 6, 3, 1, 3), (5, 3, 2, 2, 4, 2, 0, 2)]


def reference_convolution(image: np.ndarray, weight: np.ndarray, padding: int, stride: int) -> np.ndarray:
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, edges), weight.shape[2:], axis=(2, 3))
    return np.einsum("ncyxij,fcij->nfyx", windows[:, :, ::stride, ::stride], weight)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution_gathers_its_windows_while_packing(case: tuple[int, ...]) -> None:
    images, channels, height, width, filters, kernel, padding, stride = case
    image = random(np.float32, images, channels, height, width)
    weight = random(np.float32, filters, channels, kernel, kernel)
    expected = reference_convolution(image, weight, padding, stride)
    call, results = Native(convolution(F32, *case)), []
    for threads in (1, 3):
        out = np.full(expected.shape, np.nan, np.float32)
        for thread in range(threads):
            call(out, image, weight, thread=thread, threads=threads)
        results.append(out)
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
    assert np.array_equal(*results)


def test_the_gradient_of_a_convolutions_weight_sums_over_composite_depth() -> None:
    """grad[f, (c, dy, dx)] = sum over (i, y, x) of upstream[i, f, y, x] * image[i, c, y + dy - 1, x + dx - 1]."""
    images, channels, size, filters = 3, 4, 9, 7

    def offset(b: ir.IRBuilder, digits: list[ir.Value], sizes: list[int]) -> ir.Value:
        place = digits[0]
        for digit, extent in zip(digits[1:], sizes[1:], strict=True):
            place = b.add(b.mul(place, const(extent)), digit)
        return place

    def upstream(b, args, g, m, k):
        return address(b, args[1], offset(b, [k[0], m[0], k[1], k[2]], [images, filters, size, size]), F32)

    def pixel(b, args, g, n, k):
        digits = [k[0], n[0], b.sub(b.add(k[1], n[1]), const(1)), b.sub(b.add(k[2], n[2]), const(1))]
        return address(b, args[2], offset(b, digits, [images, channels, size, size]), F32)

    def inside(b, args, g, n, k):
        low, high = b.sub(const(1), n[2]), b.sub(const(size + 1), n[2])
        row = b.icmp_unsigned("<", b.sub(b.add(k[1], n[1]), const(1)), const(size))
        return low, b.select(row, high, low)

    def store(b, args, g, m, n, value, lanes):
        b.store(value, address(b, args[0], b.add(b.mul(m, const(channels * 9)), n), F32), align=4)

    def checked(b, args, g, n, k):                                      # the same element, by itself
        low, high = inside(b, args, g, n, k)
        safe = b.and_(b.icmp_signed(">=", k[2], low), b.icmp_signed("<", k[2], high))
        value = b.load(b.select(safe, pixel(b, args, g, n, k), args[2]), typ=F32)
        return b.select(safe, value, ir.Constant(F32, 0.0))

    depth = (fixed(images), fixed(size), fixed(size))
    columns = (fixed(channels), fixed(3), fixed(3))
    pointer = matmul(F32).arguments[0]
    image, above = random(np.float32, images, channels, size, size), random(np.float32, images, filters, size, size)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nfyx,ncyxij->fcij", above, windows)
    for right in (Operand(pointer=pixel, contiguous="depth", inside=inside), Operand(load=checked)):
        spec = GemmSpec(host(), (pointer,) * 3, F32, (), (fixed(filters),), columns, depth,
                           Operand(pointer=upstream, contiguous="depth"), right, store)
        out = np.full(expected.shape, np.nan, np.float32)
        Native(spec)(out, above, image)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_vectors_handed_to_store_do_not_cross_a_store_run() -> None:
    """Columns (image, place) whose results lie in [image, m, place]: a run ends with each image."""
    images, m, places, k = 5, 20, 21, 12

    def store(b, args, g, row, n, value, lanes):
        image, place = b.udiv(n, const(places)), b.urem(n, const(places))
        where = b.add(b.mul(b.add(b.mul(image, const(m)), row), const(places)), place)
        b.store(value, address(b, args[0], where, F32), align=4)

    plain = matmul(F32)
    spec = replace(plain, store=store, store_run=fixed(places), stored_at=None)
    a, b = random(np.float32, m, k), random(np.float32, k, images * places)
    out = np.full((images, m, places), np.nan, np.float32)
    Native(spec)(out, a, b, 1, m, images * places, k)
    np.testing.assert_allclose(out, (a @ b).reshape(m, images, places).swapaxes(0, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(40, 70, 900), (41, 64, 3)])
def test_rows_of_the_result_need_not_be_equally_far_apart(sizes: tuple[int, int, int]) -> None:
    """Row m of the product is row (m % 3, m // 3) of the result."""
    m, n, k = sizes

    def target(b, args, g, row, column):
        place = b.add(b.mul(b.urem(row, const(3)), const(m)), b.udiv(row, const(3)))
        return address(b, args[0], b.add(b.mul(place, const(n)), column), F32)

    def store(b, args, g, row, column, value, lanes):
        b.store(value, target(b, args, g, row, column), align=4)

    spec = replace(matmul(F32), store=store, stored_at=target, straight=False)
    a, b, out = random(np.float32, m, k), random(np.float32, k, n), np.full((3, m, n), np.nan, np.float32)
    Native(spec)(out, a, b, 1, m, n, k)
    places = np.arange(m) % 3, np.arange(m) // 3
    np.testing.assert_allclose(out[places], a @ b, rtol=1e-4, atol=1e-3)
    out[places] = np.nan
    assert np.isnan(out).all(), "nothing else is written"


def test_products_of_different_sizes_share_their_sums() -> None:
    """What adds up the sums of a tile is told at run time how deep it is, and where everything lies."""
    found = []
    for left, *known in [("mk", 9 * 40, 48 * 30, 2000), ("mk", 9 * 30, 48 * 50, 1000), ("mk", 9 * 20, 48 * 40, 4096)]:
        module = TargetModule(host())
        emit_contraction(module, "contraction", matmul(F32, left, "nk", known=known), Tile(9, 3, 16, 512, 90, 480))
        found.append(set(shared_functions.parted(shared_functions.text_of(module))[1]))
    assert found[0] and found[0] == found[1] == found[2]


def test_load_may_convert_half_precision_on_the_way() -> None:
    half = ir.HalfType()

    def left(b, args, g, m, k):
        return b.fpext(b.load(address(b, args[1], b.add(b.mul(m[0], args[6]), k[0]), half), typ=half), F32)

    def right(b, args, g, n, k):
        return b.fpext(b.load(address(b, args[2], b.add(b.mul(k[0], args[5]), n[0]), half), typ=half), F32)

    operands = {"left": Operand(load=left, contiguous="depth"), "right": Operand(load=right, contiguous="outer")}
    spec = replace(matmul(F32), **operands)
    call = Native(spec)
    for m, n, k in [(3, 2, 5), (40, 50, 300), (1, 64, 100)]:
        a, b, out = random(np.float16, m, k), random(np.float16, k, n), np.full((m, n), np.nan, np.float32)
        call(out, a, b, 1, m, n, k)
        np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("triple, processor, features, vector_bytes, registers, instruction", [
    ("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 32, 16, "vfmadd231ps"),
    ("x86_64-unknown-linux-gnu", "skylake-avx512", "", 64, 32, "vfmadd231ps"),
    ("aarch64-unknown-linux-gnu", "cortex-a76", "+neon", 16, 32, "fmla"),
])
def test_code_for_other_processors_keeps_its_sums_in_registers(
        triple: str, processor: str, features: str, vector_bytes: int, registers: int, instruction: str) -> None:
    machine = Target(vector_bytes, registers)
    for spec in matmul(F32, known=(100, 200, 300)), matmul(F32, "km", "nk"), convolution(F32, 2, 3, 9, 14, 7, 3, 1, 1):
        module = TargetModule(host(), "other")
        module.triple = triple
        tile = choose_tile(F32, machine, spec.known)
        emit_contraction(module, "contraction", spec, tile)
        text, sums = shared_functions.parted(shared_functions.text_of(module))
        lines = [line for one in (text, *sums.values())
                 for line in other_assembly(one, triple, processor, features).splitlines()]
        longest = max((len(block) for block in blocks(lines, instruction)), default=0)
        assert longest >= tile.rows * tile.vectors, "the sums of a whole tile are added to between two labels"


def other_assembly(text: str, triple: str, processor: str, features: str) -> str:
    """The machine code of a module for a processor that need not be this one."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_triple(triple).create_target_machine(processor, features, opt=2)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


def blocks(lines: list[str], instruction: str) -> list[list[str]]:
    """The uses of an instruction on vectors, label after label."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.endswith(":"):
            found.append([])
        elif line.split()[:1] == [instruction]:
            found[-1].append(line)
    return found


@pytest.mark.parametrize("left, right", LAYOUTS)
@pytest.mark.parametrize("epilogue", [False, True])
def test_shallow_products_go_along_rows_in_blocks_of_columns(left: str, right: str,
                                                             epilogue: bool) -> None:
    """On a machine whose second cache does not hold the result: whole tiles and parts of one, several blocks."""
    machine = replace(host(), vector_bytes=64, registers=32, l2_bytes=16 << 10, l1_bytes=32 << 10, pairs=None)
    tile = Tile(rows=4, vectors=2, lanes=4, depth=32, block_rows=48, columns=24)
    for m, n, k in [(101, 211, 7), (77, 300, 32), (131, 64, 17), (5, 4100, 30)]:
        for threads in (1, 3):
            call = Native(matmul(F32, left, right, known=(m, n, k), bias_relu=epilogue, machine=machine), tile)
            a, b, out, bias = guarded(m, k), guarded(k, n), guarded(m, n), random(np.float32, n)
            a[:], b[:] = random(np.float32, m, k), random(np.float32, k, n)
            stored = [np.ascontiguousarray(x if plain else x.T) for x, plain in ((a, left == "mk"), (b, right == "kn"))]
            for thread in range(threads):
                call(out, *stored, 1, m, n, k, *([bias] if epilogue else []), thread=thread, threads=threads)
            expected = np.maximum(a @ b + bias, 0) if epilogue else a @ b
            np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)
            assert np.isnan(out.base[:GUARD]).all() and np.isnan(out.base[-GUARD:]).all()


def test_a_tile_whose_sums_are_only_stored_is_no_function():
    """It stands in the loop over tiles, since what a call passes on costs as much as a tile's other instructions."""
    for epilogue in False, True:
        module = TargetModule(host())
        emit_contraction(module, "product", matmul(F32, bias_relu=epilogue, known=(96, 300, 4000)))
        assert ("product.tile" in {x.name for x in module.functions}) is epilogue
        names = [x.name for x in module.functions]
        assert ("product.last_tile" in names) is epilogue
        assert [name for name in names if "finish" in name] == ["product.finish"] * epilogue      # of both tiles


def test_depth_is_gone_through_at_once_where_a_panel_of_it_leaves_room_in_the_second_cache() -> None:
    machine = Target(vector_bytes=64, registers=32, l2_bytes=1 << 20)
    for depth, parts in [(512, 1), (768, 1), (1024, 1), (1040, 2), (2048, 3), (3072, 5)]:
        tile = choose_tile(F32, machine, (800, 800, depth))
        assert -(-depth // tile.depth) == parts
        assert tile.width * tile.depth * 4 <= machine.l2_bytes // 4
        assert tile.block_rows * tile.depth * 4 <= machine.l2_bytes * 5 // 8


def test_rows_that_compete_are_copied_unless_the_second_cache_scatters_them() -> None:
    machine, tile = Target(64, 32, 1 << 20), Tile(8, 3, 16, 1024, 128, 2400)
    for depth, scatters, in_place in [(1024, False, False), (1024, True, True), (1000, False, True)]:
        spec = matmul(F32, known=(800, 1000, depth), machine=replace(machine, hashes_l2_sets=scatters))
        assert left_layout(spec, tile)[0] is in_place


def test_lines_that_are_far_apart_are_fetched_ahead_where_the_second_cache_scatters_them() -> None:
    spec, machine = matmul(F32, known=(800, 1024, 1024)), Target(64, 32, 1 << 20)
    tile = choose_tile(F32, machine, spec.known)
    assert crowded(spec, tile, machine) and not crowded(spec, tile, replace(machine, hashes_l2_sets=True))
    near = matmul(F32, known=(800, 1023, 1024))
    assert not crowded(near, tile, machine)


def test_lines_of_left_are_fetched_while_others_are_packed() -> None:
    for left, fetches in ("km", True), ("mk", False):
        module = TargetModule(host())
        emit_contraction(module, "product", matmul(F32, left, known=(1001, 300, 784)))
        (packing,) = (x for x in module.functions if x.name == "product.pack_left")
        assert ("llvm.prefetch" in str(packing)) is fetches

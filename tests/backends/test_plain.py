"""A module is cut in two, functions that most of LLVM's passes do nothing for and others, and does the same."""

import numpy as np
import pytest
from llvmlite import ir

from benchmarks.example_specs import F32, matmul
from benchmarks.run_spec import Native
from tenon.backends.cpu.contraction import emit_contraction
from tenon.backends.cpu.contraction.ir_helpers import ZERO, loop, splat, store_vector
from tenon.llvm import machine_code
from tenon.llvm.host_target import host
from tenon.llvm.optimization_level import HEAD, gains, headed, is_driver, join, split_module, text_of
from tenon.llvm.outline_loops import innermost, natural_loops
from tenon.llvm.target_module import TargetModule
from tenon.records import replace


def product(bias_relu: bool = False, **changes) -> ir.Module:
    module = TargetModule(host())
    emit_contraction(module, "product", replace(matmul(F32, bias_relu=bias_relu), **changes))
    return module


def test_a_tile_is_plain_and_what_makes_masks_in_a_loop_is_not():
    head, _, text = text_of(product(straight=False)).partition("\n")
    names = head.removeprefix(HEAD).split(" ")
    assert "product.tile" in names and "product.packed" in names
    assert "product.finish" not in names and "product.finish" in text


def one_loop(fill, short=False) -> ir.Function:
    """A function with one loop, whose body `fill` writes: given the builder, the index and the number of turns."""
    function = ir.Function(TargetModule(host()), ir.FunctionType(ir.VoidType(), [ir.IntType(64), ir.PointerType()]), "f")
    b = ir.IRBuilder(function.append_basic_block())
    count, where = function.args
    with loop(b, ZERO, count, short=short) as (i, _):
        fill(b, i, count, where)
    b.ret_void()
    return function


def scalars(b, i, count, where):
    b.store(b.mul(i, i), where)


def vectors(b, i, count, where):
    store_vector(b, splat(b, b.mul(i, i), 4), where)


def masks(b, i, count, where):
    many = splat(b, count, 4)
    b.store(b.icmp_signed("<", many, many), where)


@pytest.mark.parametrize("fill, short, expected", [
    (scalars, False, True), (scalars, True, False), (vectors, False, False), (masks, False, True), (masks, True, True)])
def test_what_gains_is_scalars_to_be_vectors_and_masks_to_be_taken_out(fill, short, expected):
    (found,) = natural_loops(one_loop(fill, short))
    assert gains(found.instructions) is expected


def test_the_loops_around_tiles_are_drivers_and_what_packs_or_computes_is_none():
    assert split_module(text_of(product())).drivers == ("product", "product.packed")


def calling(attribute, defined=True):
    """What calls a function of its module in a loop."""
    def fill(b, i, count, where):
        callee = ir.Function(b.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)]), "callee")
        if attribute:
            callee.attributes.add(attribute)
        if defined:
            ir.IRBuilder(callee.append_basic_block()).ret_void()
        b.call(callee, [i])
    return fill


def noting(turns, number=False):
    """What notes addresses, or numbers, in an inner loop, for the function that is called then."""
    def fill(b, i, count, where):
        with loop(b, ZERO, ir.Constant(ir.IntType(64), turns), short=True) as (k, _):
            b.store(k if number else where, b.gep(where, [k], source_etype=ir.IntType(64)))
        with loop(b, ZERO, i, short=True) as (k, _):
            calling("noinline")(b, k, count, where)
    return fill


@pytest.mark.parametrize("fill, expected", [
    (noting(16), True), (noting(17), False), (noting(16, number=True), False), (calling("noinline"), True),
    (calling(None, defined=False), True), (calling(None), False),
    (calling("alwaysinline"), False), (vectors, False)])
def test_a_driver_calls_in_its_innermost_loops_what_is_not_copied_into_them(fill, expected):
    assert is_driver(one_loop(fill)) is expected


def test_a_driver_is_not_optimised_and_the_tile_is():
    text = machine_code.optimised(text_of(product(straight=False)))
    unoptimised = [number for number, words in (line.split(" = ") for line in text.splitlines()
                                                if line.startswith("attributes")) if "optnone" in words]
    ends = {name: line.rpartition(")")[2] for line in text.splitlines() if line.startswith("define")
            for name in ("@product(", "@product.packed(", "@product.tile(", "@product.pack_right(") if name in line}
    found = {name for name, end in ends.items() if any(f"{x.split()[1]} " in f"{end} " for x in unoptimised)}
    assert len(ends) == 4 and found == {"@product(", "@product.packed("}


def test_a_short_module_is_left_whole():
    module = TargetModule(host())
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "nothing")
    ir.IRBuilder(function.append_basic_block()).ret_void()
    assert split_module(text_of(module)) is None


def entry_of(inner, calls=1, linkage="internal") -> ir.Function:
    inner.linkage = linkage
    function = ir.Function(inner.module, ir.FunctionType(ir.VoidType(), []), "entry")
    b = ir.IRBuilder(function.append_basic_block())
    for _ in range(calls):
        b.call(inner, [ZERO, ir.Constant(ir.PointerType(), None)])
    b.ret_void()
    return function


@pytest.mark.parametrize("calls, linkage, joined", [(1, "internal", True), (2, "internal", False), (1, "", False)])
def test_what_does_nothing_but_call_a_function_becomes_one_with_it_if_nobody_else_calls_it(calls, linkage, joined):
    inner = one_loop(vectors, short=True)
    inner.attributes.add("noinline")
    entry = entry_of(inner, calls, linkage)
    assert join(entry.module.functions) == ({entry: inner} if joined else {})
    assert ("alwaysinline" in inner.attributes) is joined and ("noinline" in inner.attributes) is not joined


def test_a_function_that_is_part_of_plain_ones_alone_stands_in_their_part_alone():
    module = product()
    (inner,) = (f for f in module.functions if f.name == "product")
    inner.linkage = "internal"
    entry = ir.Function(module, inner.function_type, "entry")
    b = ir.IRBuilder(entry.append_basic_block())
    b.call(inner, entry.args)
    b.ret_void()
    parts = split_module(text_of(module))
    assert parts is not None and parts.drivers == ("product.packed", "entry")
    assert 'void @"product"(' in parts.plain and '@"product"(' not in parts.others
    assert "@product(" not in machine_code.optimised(text_of(module))


def test_loops_are_the_innermost_ones():
    function = ir.Function(TargetModule(host()), ir.FunctionType(ir.VoidType(), [ir.IntType(64)]), "f")
    b = ir.IRBuilder(function.append_basic_block())
    inner = []
    with loop(b, ZERO, function.args[0]), loop(b, ZERO, function.args[0]):
        inner.append(b.block)
    with loop(b, ZERO, function.args[0]):
        inner.append(b.block)
    b.ret_void()
    assert {x.blocks for x in innermost(natural_loops(function))} == {(block,) for block in inner}


def test_both_parts_define_every_function_once():
    parts = split_module(text_of(product()))
    assert parts is not None
    defined = [line.split("@")[1].split("(")[0] for text in (parts.plain, parts.others) for line in text.splitlines()
               if line.startswith("define")]
    assert sorted(defined) == sorted(set(defined)) and '"product.packed"' in defined
    assert set(parts.names) < {name.strip('"') for name in defined}


@pytest.mark.parametrize("bias_relu", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 33, 5), (64, 96, 300)])
def test_the_parts_together_are_the_module(sizes, bias_relu):
    assert split_module(text_of(product(bias_relu))) is not None
    m, n, k = sizes
    rng = np.random.default_rng(m)
    left, right, bias = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (n,)))
    out = np.zeros((m, n), np.float32)
    Native(matmul(F32, bias_relu=bias_relu))(out, left, right, 1, m, n, k, *([bias] if bias_relu else []))
    expected = left @ right
    np.testing.assert_allclose(out, np.maximum(expected + bias, 0) if bias_relu else expected, rtol=1e-4, atol=1e-4)


def test_the_code_of_a_cut_module_is_the_same_every_time():
    text = text_of(product())
    assert machine_code.compile_object(text) == machine_code.compile_object(text)


def test_a_function_that_nobody_calls_any_more_is_left_alone():
    """What is dropped while functions are inlined is not there to be cleaned up."""
    text = headed(["kept", "dropped"], 'define i32 @"kept"(i32 %x) {\n  ret i32 %x\n}\n\n'
                                       'define internal i32 @"dropped"(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n', ["dropped"])
    assert b"dropped" not in machine_code.compile_object(text)

"""A module's text is llvmlite's own, to the letter: of kernels, and of every kind of instruction."""

import gc

import pytest
from llvmlite import binding, ir

import tenon as tn
from backends.kernel_text import ir_of
from benchmarks.example_specs import F32, F64, convolution, matmul
from tenon.backends.cpu.contraction import emit_contraction
from tenon.backends.cpu.lower_kernel import kernel_of, module_of
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.llvm.ir_printer import FORMATS, print_module
from tenon.llvm.target_module import TargetModule
from tenon.ops.graph_calls import fused
from tenon.pipeline import optimize

I1, I32, I64, PTR = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.PointerType()
V4 = ir.VectorType(ir.FloatType(), 4)


def function(module: ir.Module, name: str, *kinds: ir.Type) -> tuple[ir.IRBuilder, tuple[ir.Value, ...]]:
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    return ir.IRBuilder(made.append_basic_block("entry")), made.args


def every_kind() -> ir.Module:
    module = TargetModule(host(), 'of "every" kind')
    module.triple, module.data_layout = "x86_64-unknown-linux-gnu", "e-m:e"
    b, (i, j, p, v, c, x) = function(module, "all", I64, I64, PTR, V4, I1, ir.FloatType())
    named = b.add(i, j, name='a "name" with \\ marks', flags=["nsw", "nuw"])
    b.store(b.mul(named, I64(-3)), p, align=8)
    b.store(I1(1), p)
    loaded = b.load(p, typ=V4, align=4)
    b.load(p, typ=I32)
    b.store(b.fadd(loaded, V4([1.5, float("nan"), float("-inf"), -0.0]), flags=["contract", "nnan"]), p)
    b.gep(p, [i, I64(2)], inbounds=True, source_etype=ir.ArrayType(I32, 4))
    b.gep(p, [I32(7)], source_etype=ir.FloatType())
    b.fneg(v)
    b.insert_element(b.shuffle_vector(v, ir.Constant(V4, ir.Undefined), ir.Constant(ir.VectorType(I32, 4), [3, 2, 1, 0])),
                     b.extract_element(v, I32(1)), I32(0))
    b.select(c, b.icmp_signed("<", i, j) and i, j)
    b.select(c, v, loaded, flags=["nnan"])
    b.fcmp_ordered("<", v, loaded, flags=["fast"])
    b.fcmp_unordered("!=", x, x)
    b.icmp_unsigned(">=", i, j)
    b.trunc(i, I32)
    b.bitcast(x, I32)
    b.sitofp(i, ir.DoubleType())
    b.alloca(I64, size=I32(4))
    b.atomic_rmw("add", p, i, "monotonic")
    b.cmpxchg(p, i, j, "acq_rel", "monotonic")
    b.load_atomic(p, "acquire", 8, typ=I64)
    b.fence("seq_cst")
    b.comment("words")
    pair = ir.LiteralStructType([I64, I1])
    both = ir.Function(module, ir.FunctionType(pair, [I64, I64]), "llvm.sadd.with.overflow.i64")
    b.extract_value(b.insert_value(b.call(both, [i, j], name="pair"), j, 0), 1)
    printed = ir.Function(module, ir.FunctionType(I32, [PTR], var_arg=True), "printf")
    b.call(printed, [p, i], tail="tail")
    b.call(both, [i, j], attrs=("nounwind",), cconv="fastcc")
    b.call(printed, [p], arg_attrs={0: ("nonnull",)})
    b.asm(ir.FunctionType(I64, [I64]), "mov $0, $1", "=r,r", [i], True)
    metadata = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    module.add_named_metadata("kept", [I32(1)])
    head, loop, last = (b.append_basic_block(name) for name in ("head", "a loop", "last"))
    b.switch(i, head).add_case(1, last)
    b.position_at_end(head)
    b.branch(loop)
    b.position_at_end(loop)
    turn = b.phi(I64)
    turn.add_incoming(I64(0), head)
    turn.add_incoming(turn, loop)
    b.cbranch(c, loop, last).set_metadata("llvm.loop", metadata)
    b.position_at_end(last)
    b.ret_void()
    b, _ = function(module, "stops")
    b.function.attributes.add("noreturn")
    b.function.linkage = "internal"
    b.unreachable()
    text = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8), 3), "text")
    text.initializer, text.global_constant = ir.Constant(text.value_type, bytearray(b"a\"\n")), True
    ir.global_context.get_identified_type("named")
    return module


def product(element: ir.Type = F32, **options: bool) -> ir.Module:
    module = TargetModule(host(), "product")
    emit_contraction(module, "product", matmul(element, **options))
    return module


def windows() -> ir.Module:
    module = TargetModule(host())
    emit_contraction(module, "windows", convolution(F32, images=2, channels=3, height=6, width=5, filters=4, kernel=3))
    return module


@pytest.mark.parametrize("make", [ir.Module, every_kind, product, lambda: product(F64), lambda: product(bias_relu=True),
                                  windows], ids=["empty", "all", "f32", "f64", "epilogue", "windows"])
def test_the_text_is_that_of_llvmlite(make):
    module = make()
    assert print_module(module) == str(module)


def test_no_format_goes_untried():
    module = every_kind()
    kinds = {type(x) for f in module.functions for block in f.blocks for x in block.instructions}
    assert kinds >= set(FORMATS)


def test_llvm_reads_it():
    binding.parse_assembly(print_module(product())).verify()


def test_kernels_of_training():
    """Norms, exponentials, masks, orders and their gradients."""
    def step(x, w):
        loss = tn.log_softmax(tn.relu(x @ w), axis=-1)[:, 2].mean() + tn.sort(x, axis=1)[:, 0].sum()
        loss.backward()
        return loss, x.grad, w.grad
    x, w = (tn.ones(shape, requires_grad=True) for shape in ((7, 13), (13, 11)))
    bodies = [node.attrs["body"] for node in optimize(tn.jit(step).graph(x, w)).nodes if node.op is fused]
    assert len(bodies) > 2
    for body in bodies:
        module = module_of(kernel_of(body, "kernel"), host())
        assert print_module(module) == str(module)


def test_the_text_of_a_kernel_leaves_nothing_for_the_collector():
    body = parse_graph("def f(x: f32[40, 50], y: f32[50, 60]):\n    a: f32[40, 60] = matmul(x, y)\n"
                       "    b: f32[40, 60] = tanh(a)\n    return b")
    kernel = kernel_of(body, "kernel")
    gc.collect()
    gc.disable()
    try:
        before = len(parts_of_modules())
        ir_of(kernel, host())
        assert len(parts_of_modules()) == before
    finally:
        gc.enable()


def parts_of_modules() -> list[object]:
    """Asked by their types: an object that is asked itself may warn, as some of PyTorch do."""
    return [x for x in gc.get_objects() if issubclass(type(x), (ir.Block, ir.Instruction))]

"""Direct convolution: a factor is read in windows where it lies.  A statement of the loop IR -> LLVM IR.

`padded_copy` copies what the windows of a block cover; `forward_few_filters`, `weight_grad_depthwise` and
`weight_grad_wide` are schedules that read such copies, by what a vector holds; `depthwise_nhwc` reads images whose
channels are last where they lie; `work_share` is what they share. `bf16_tap_by_tap` reads bfloat16 with its channels
last, tap after tap, and leaves out what lies beyond the edges; `winograd` takes fewer multiplications for windows of 3
x 3 taps, of a convolution and of the gradient of its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from tenon.backends.cpu.conv_direct.bf16_tap_by_tap import TapPlan, tap_plan_of, taps_of
from tenon.backends.cpu.conv_direct.depthwise_nhwc import ChannelPlan, channel_plan_of
from tenon.backends.cpu.conv_direct.forward_few_filters import FewFiltersPlan, plan_of
from tenon.backends.cpu.conv_direct.weight_grad_depthwise import SumPlan, sum_plan_of
from tenon.backends.cpu.conv_direct.weight_grad_wide import FilterPlan, filter_plan_of
from tenon.backends.cpu.conv_direct.winograd.winograd_forward import WinogradForwardPlan, winograd_plan_of
from tenon.backends.cpu.conv_direct.winograd.winograd_weight_grad import WinogradFilterPlan, winograd_filter_plan_of
from tenon.backends.cpu.conv_direct.work_share import Task
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I64, POINTER
from tenon.llvm.target_module import target_of
from tenon.llvm.work_partition import SHARE
from tenon.loops.expressions import Buffer
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import Sliding, sliding
from tenon.target import Target


def slides(statement: Contraction, machine: Target) -> Sliding | None:
    """How windows slide in the statement, if it is better computed window by window."""
    x = statement
    found = sliding(x.left, x.right, x.batch, x.rows, x.columns, x.depth, adders=machine.separate_add_ports)
    return found or taps_of(x, machine)


def emit_sliding(module: ir.Module, name: str, statement: Contraction, found: Sliding,
                 arguments: Mapping[Buffer, int], pointers: int, symbols: Sequence[str]) -> ir.Function:
    """void name(pointers..., sizes..., first, until, threads, scratch)."""
    kinds = [POINTER] * pointers + [I64] * len(symbols) + [*SHARE, POINTER]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.attributes.add("nounwind")
    for argument in (*function.args[:pointers], function.args[-1]):
        argument.add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    sizes = dict(zip(symbols, function.args[pointers:], strict=False))
    values = Values(b, {buffer: function.args[k] for buffer, k in arguments.items()}, sizes)
    _plan(statement, found, target_of(b)).emit(Task(values, *function.args[-4:]))
    b.ret_void()
    return function


def sliding_scratch(statement: Contraction, found: Sliding, machine: Target) -> int:
    """Bytes of scratch memory that each thread needs."""
    return _plan(statement, found, machine).scratch


def _plan(statement: Contraction, found: Sliding, machine: Target) -> SlidingPlan:
    return PLANS[found.way](statement, found, machine)


SlidingPlan = FewFiltersPlan | SumPlan | FilterPlan | ChannelPlan | TapPlan | WinogradForwardPlan | WinogradFilterPlan
PLANS: dict[str, Callable[[Contraction, Sliding, Target], SlidingPlan]] = {
    "places": plan_of, "added places": sum_plan_of, "filters": filter_plan_of, "channels": channel_plan_of,
    "taps": tap_plan_of, "winograd places": winograd_plan_of, "winograd filters": winograd_filter_plan_of}

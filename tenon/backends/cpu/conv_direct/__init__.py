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
from tenon.backends.cpu.expression_codegen import argument_values
from tenon.backends.cpu.scalar_codegen import I64, POINTER
from tenon.llvm.target_module import target_of
from tenon.llvm.work_partition import SHARE
from tenon.loops.expressions import Buffer
from tenon.loops.loop_ir import Contraction
from tenon.loops.refusal import Refusal
from tenon.loops.select_conv_schedule import NO_ARRAY, NO_WINDOWS, Sliding, Way, considered, sliding
from tenon.target import Target


def slides(statement: Contraction, machine: Target) -> Sliding | None:
    """How windows slide in the statement, if it is better computed window by window."""
    x = statement
    found = sliding(x.left, x.right, x.batch, x.rows, x.columns, x.depth, machine)
    return found or taps_of(x, machine)


def ways_of(statement: Contraction, machine: Target) -> dict[Way, Sliding | Refusal]:
    """Each way in which windows may slide in the statement, or why it does not do, as far as one factor comes."""
    x, found = statement, dict[Way, Sliding | Refusal]()
    ways = considered(x.left, x.right, x.batch, x.rows, x.columns, x.depth, machine)
    for way, answer in ways:
        before = found.get(way, NO_WINDOWS)
        if isinstance(before, Refusal) and (answer or before in (NO_ARRAY, NO_WINDOWS)):
            found[way] = answer
    no_pairs = Refusal("vectors multiply no pairs, or none that lie so")
    return {**found, "bf16_tap_by_tap": taps_of(x, machine) or no_pairs}


def emit_sliding(module: ir.Module, name: str, statement: Contraction, found: Sliding,
                 arguments: Mapping[Buffer, int], pointers: int, symbols: Sequence[str]) -> ir.Function:
    """void name(pointers..., sizes..., first, until, threads, scratch)."""
    kinds = [POINTER] * pointers + [I64] * len(symbols) + [*SHARE, POINTER]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.attributes.add("nounwind")
    for argument in (*function.args[:pointers], function.args[-1]):
        argument.add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    values = argument_values(b, function.args, arguments, pointers, symbols)
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
    "depthwise_nhwc": channel_plan_of, "winograd_forward": winograd_plan_of, "forward_few_filters": plan_of,
    "winograd_weight_grad": winograd_filter_plan_of, "weight_grad_wide": filter_plan_of,
    "weight_grad_depthwise": sum_plan_of, "bf16_tap_by_tap": tap_plan_of}

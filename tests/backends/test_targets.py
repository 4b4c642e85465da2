"""Code for other machines than this one: what choosers decide and emitters write follows the target that they are given."""

from __future__ import annotations

import re

import pytest

from backends.kernel_text import ir_of
from tenon import cli
from tenon.backends.cpu.lower_kernel import kernel_of, learn
from tenon.errors import ArgumentError
from tenon.graph.text import parse_graph
from tenon.llvm import machine_code
from tenon.llvm.host_target import host
from tenon.pipeline import compile, cross_backend
from tenon.records import replace
from tenon.target import TARGETS, Target, target

PRODUCT = """def f(x: f32[64, 200], w: f32[200, 96]):
    v0: f32[64, 96] = matmul(x, w)
    v1: f32[64, 96] = maximum(v0, 0.0)
    return v1
"""
NAMED = {
    "x86-64-v3": ("vfmadd231ps", r"%ymm\d", r"%zmm\d"), "x86-64-v4": ("vfmadd231ps", r"%zmm\d", r"\bamx"),
    "aarch64-linux": ("fmla", r"v\d+\.4s", r"%ymm\d"), "riscv64": ("vfmacc.vf", r"vsetivli", r"v\d+\.4s")}
# Machines that nobody builds: long vectors and few registers, and short vectors with many.
LONG = Target(64, 8, l2_bytes=256 << 10, triple="x86_64-unknown-linux-gnu", cpu="x86-64-v4",
              features=TARGETS["x86-64-v4"].features)
MANY = Target(16, 64, l2_bytes=4 << 20, l1_bytes=128 << 10, triple="aarch64-unknown-linux-gnu", cpu="generic")


@pytest.mark.parametrize("name", NAMED)
def test_a_machine_of_a_name_gets_its_own_instructions(name):
    program = compile(parse_graph(PRODUCT), cross_backend(target(name)))
    instruction, registers, others = NAMED[name]
    text = program.assembly
    assert instruction in text and re.search(registers, text) and not re.search(others, text)
    assert set(TARGETS) == set(NAMED)


def test_the_command_prints_code_for_another_machine(tmp_path, capsys):
    file = tmp_path / "model.py"
    file.write_text("import tenon as tn\n\ndef f(x):\n    return tn.exp(x)\n")
    assert cli.main(["show", f"{file}:f", "f32[100]", "--target", "riscv64", "--stages", "llvm,asm"]) == 0
    assert "vfmadd" in (said := capsys.readouterr().out) and "# llvm" in said
    assert cli.main(["show", f"{file}:f", "f32[100]", "--target", "vax"]) == 1
    assert "aarch64-linux" in capsys.readouterr().err


def sums(machine):
    """The vectors that the register tile of the product adds up in, by what its text says."""
    kernel = kernel_of(parse_graph(PRODUCT), "f")
    return set(map(int, re.findall(r"<(\d+) x float>", ir_of(kernel, machine)))), learn(parse_graph(PRODUCT), kernel, machine)


def test_what_is_written_follows_an_invented_machine():
    long, of_long = sums(LONG)
    short, of_short = sums(MANY)
    assert max(long) == 16 and max(short) == 4
    assert of_long.scratch != of_short.scratch
    for machine in (LONG, MANY):
        assert machine_code.assembly(ir_of(kernel_of(parse_graph(PRODUCT), "f"), machine), machine)


def test_kernels_for_several_machines_are_kept_apart():
    made = [compile(parse_graph(PRODUCT), cross_backend(machine)).kernels[0] for machine in (LONG, MANY)]
    again = compile(parse_graph(PRODUCT), cross_backend(LONG)).kernels[0]
    assert made[0].key != made[1].key and again.key == made[0].key and again.ir == made[0].ir != made[1].ir
    assert machine_code.environment(replace(host(), l2_bytes=1)) != machine_code.environment()


def test_an_unknown_name_is_refused():
    with pytest.raises(ArgumentError, match="no target is named 'z80'"):
        target("z80")

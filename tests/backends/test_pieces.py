"""Pieces are compiled once, whoever calls them, and found again in memory and on disk."""

import ctypes
import gc
import math
import threading

import numpy as np
import pytest
from llvmlite import ir

from tenon.backends.cpu.contraction.memset import fill
from tenon.llvm import machine_code, shared_functions
from tenon.llvm.code_cache import CodeCache
from tenon.llvm.host_target import host
from tenon.llvm.target_module import TargetModule

I64, POINTER = ir.IntType(64), ir.PointerType()


@pytest.fixture
def disk(tmp_path, monkeypatch):
    cache = CodeCache(tmp_path)
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    return cache


@pytest.fixture
def compiled(monkeypatch):
    """The modules that LLVM was given by this thread; others may still be at what an earlier test began."""
    given, compile, here = [], machine_code._compile, threading.get_ident()

    def noted(text, form, target):
        if threading.get_ident() == here:
            given.append(text)
        return compile(text, form, target)
    monkeypatch.setattr(machine_code, "_compile", noted)
    return given


@pytest.fixture(autouse=True)
def nothing_made(monkeypatch):
    gc.collect()
    monkeypatch.setattr(machine_code, "_pieces", {})


def store_sum(b, amount, where, value):
    b.store(b.add(value, ir.Constant(I64, amount)), where)


def kernel(name, amount, argument):
    """The text of a module with a function that stores the sum of two numbers, by a piece."""
    module = TargetModule(host(), name)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), name)
    b = ir.IRBuilder(function.append_basic_block())
    shared_functions.call(b, store_sum, (amount,), [function.args[0], ir.Constant(I64, argument)])
    b.ret_void()
    return shared_functions.text_of(module)


def result(library, name):
    found = ctypes.c_int64()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address(name))(ctypes.addressof(found))
    return found.value


def test_kernels_share_a_piece_that_differs_in_nothing(disk, compiled):
    libraries = [machine_code.compile(kernel("f", 5, 1)), machine_code.compile(kernel("g", 5, 2)), machine_code.compile(kernel("h", 6, 2))]
    assert [result(*x) for x in zip(libraries, "fgh", strict=True)] == [6, 7, 8]
    assert len(compiled) == 5 and libraries[0]._pieces == libraries[1]._pieces != libraries[2]._pieces


def test_a_kernel_from_the_disk_finds_its_piece_there(disk, compiled):
    machine_code.compile(kernel("f", 7, 1))
    gc.collect()
    machine_code._pieces.clear()
    assert result(machine_code.compile(kernel("f", 7, 1)), "f") == 8 and len(compiled) == 2


def test_a_kernel_whose_piece_is_gone_from_the_disk_is_compiled_again(disk, compiled):
    library = machine_code.compile(kernel("f", 8, 1))
    (piece,) = library._pieces
    (name,) = shared_functions.parted(kernel("f", 8, 1))[1]
    disk.discard(machine_code._piece_key(name))
    del library, piece
    gc.collect()
    machine_code._pieces.clear()
    assert result(machine_code.compile(kernel("f", 8, 1)), "f") == 9 and len(compiled) == 4


def test_a_piece_that_cannot_be_loaded_is_compiled_again(disk, compiled):
    library = machine_code.compile(kernel("f", 12, 1))
    (name,) = shared_functions.parted(kernel("f", 12, 1))[1]
    disk.put(machine_code._piece_key(name), b"no code, written whole")
    del library
    gc.collect()
    machine_code._pieces.clear()
    assert result(machine_code.compile(kernel("f", 12, 1)), "f") == 13 and len(compiled) == 4


def test_a_piece_lives_as_long_as_a_kernel_that_calls_it(disk):
    library = machine_code.compile(kernel("f", 9, 1))
    (name,) = shared_functions.parted(kernel("f", 9, 1))[1]
    gc.collect()
    assert machine_code.is_loaded(name) and result(library, "f") == 10
    del library
    gc.collect()
    assert not machine_code.is_loaded(name)


def test_a_piece_that_llvm_refuses_is_an_error_of_each_kernel(disk):
    def wrong(b, where):
        b.unreachable()
        b.position_at_end(b.append_basic_block())
    module = TargetModule(host())
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), "f")
    b = ir.IRBuilder(function.append_basic_block())
    shared_functions.call(b, wrong, (), [function.args[0]])
    b.ret_void()
    text = shared_functions.text_of(module).replace("unreachable", "nonsense")
    for _ in range(2):
        with pytest.raises(machine_code.CodeError, match="refuses"):
            machine_code.compile(text)


def test_the_machine_code_of_a_kernel_shows_its_pieces():
    text = kernel("f", 10, 1)
    (name,) = shared_functions.parted(text)[1]
    assert f"{name}:" in machine_code.assembly(text)


def test_text_and_code_say_which_pieces_are_called():
    own, others = shared_functions.parted(kernel("f", 11, 1))
    assert "define void @\"f\"" in own and list(others) and all("define" in text for text in others.values())
    assert shared_functions.needs(shared_functions.needing(list(others), b"code")) == (list(others), b"code")
    assert shared_functions.needs(shared_functions.needing([], b"code")) == ([], b"code")


@pytest.mark.parametrize("number", [0.0, -math.inf])
@pytest.mark.parametrize("run, lines, apart", [(8, 1, 0), (5, 3, 16), (0, 2, 8), (16, 0, 16)])
def test_runs_are_filled_in_whole_vectors_and_nothing_between_them_is(number, run, lines, apart):
    module, F32, lanes = TargetModule(host()), ir.FloatType(), 8
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), "f")
    b = ir.IRBuilder(function.append_basic_block())
    fill(b, F32, lanes, function.args[0], *(ir.Constant(I64, x) for x in (run, lines, apart)), number)
    b.ret_void()
    found, expected = np.ones((2, 64), np.float32)
    for line in range(lines):
        expected[line * apart:][:-(-run // lanes) * lanes] = number
    library = machine_code.compile(shared_functions.text_of(module))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("f"))(found.ctypes.data)
    np.testing.assert_array_equal(found, expected)

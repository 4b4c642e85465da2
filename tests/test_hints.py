"""Names of PyTorch and NumPy: the usual ones work, others say what to write; what is in the place of a state or path."""

import ast
import gc
import subprocess
import sys

import numpy as np
import pytest

import tenon as tn
import tenon.nn.functional as F
from tenon import migration_hints, nn, optim
from tenon.errors import ArgumentError

TABLES = {"x": migration_hints.TENSOR, "net": migration_hints.MODULE, "tn": migration_hints.TENON, "nn": migration_hints.NN, "F": migration_hints.FUNCTIONAL, "linalg": migration_hints.LINALG}


def known():
    """What the code of hints speaks of."""
    return {"tn": tn, "nn": nn, "F": F, "linalg": tn.linalg, "x": tn.tensor([[1.0, 2.0], [3.0, 5.0]]), "y": tn.ones((2, 2)), "n": 0.5,
            "net": nn.Sequential(nn.Linear(3, 2)), "layer": nn.ReLU(), "at": tn.tensor([[1], [0]]),
            "f": lambda x: x.sum(), "image": tn.ones((1, 2, 3, 3)), "state": tn.random.default_generator.get_state()}


def is_code(hint):
    try:
        ast.parse(hint)
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, table in TABLES.items() for name in table])
def test_a_missing_name_says_what_to_write(owner, name):
    holder, hint = known()[owner], TABLES[owner][name]
    assert not hasattr(holder, name) and name not in dir(holder)
    with pytest.raises(AttributeError, match=name) as caught:
        getattr(holder, name)
    assert f"hint: {hint}" in str(caught.value) and "test_hints.py" in str(caught.value)
    if is_code(hint):
        values = known() | {"n": 2} if "seed" in hint else known()
        exec(hint, values)


def test_usual_names_of_pytorch_work():
    x = tn.tensor([[1.5, -2.5, 3.0]], requires_grad=True)
    assert x.view(3, -1).shape == (3, 1) and x.dim() == 2 and x.numel() == 3 and x.t().shape == (3, 1)
    assert x.contiguous() is x and x.clone() is not x and x.clone().tolist() == x.tolist()
    for name, dtype in (("half", tn.float16), ("float", tn.float32), ("double", tn.float64), ("long", tn.int64),
                        ("int", tn.int32), ("bool", tn.bool), ("bfloat16", tn.bfloat16)):
        assert getattr(x, name)().dtype is dtype
    x.clone().view(-1).double().sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0, 1.0]] and x.grad.dtype is tn.float32
    assert nn.Linear(2, 2).half().weight.dtype is tn.float16
    with pytest.raises(ArgumentError.__mro__[1], match="t: "):
        tn.ones(2, 2, 2).t()


@tn.jit
def captured(x):
    return x.view(-1).float().clone() + x.numel() * x.dim()


@tn.jit
def asks(x):
    return x * 2 if hasattr(x, "cuda") else x.cuda()


def test_they_work_in_captured_code_and_missing_ones_raise_there_at_the_users_line():
    x = tn.ones((2, 2), dtype="f64")
    for _ in range(3):
        assert captured(x).tolist() == [9.0] * 4 and captured(x).dtype is tn.float32
        with pytest.raises(AttributeError, match=r"x\.cuda\(\)"):
            asks(x)


def test_a_tensor_refuses_what_pytorch_would_write_through_data_and_a_module_keeps_its_own_attributes():
    x, net = tn.ones(2), nn.Linear(1, 1)
    with pytest.raises(ArgumentError, match="a tensor was expected, not int"):
        x.data = 3
    net.cuda = 5
    assert net.cuda == 5 and "cuda" in vars(net)


def test_what_is_no_state_no_parameters_and_no_file():
    net = nn.Linear(2, 2)
    adam = optim.Adam(net.parameters())
    for wrong in (3, None, [1]):
        for load in (net.load_state_dict, adam.load_state_dict):
            with pytest.raises(ArgumentError, match=r"test_hints.py"):
                load(wrong)
    with pytest.raises(ArgumentError, match="a dictionary of 'weight', 'bias'"):
        adam.load_state_dict(net.state_dict())
    for wrong in (3, [3], net):
        with pytest.raises(ArgumentError, match="parameters"):
            optim.clip_grad_norm(wrong, 1.0)


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(ArgumentError, match="directory"):
        tn.load(tmp_path)
    with pytest.raises(ArgumentError, match="not int"):
        tn.load(3)


def test_the_collector_runs_on_where_the_import_fails():
    code = ("import gc, sys; sys.modules['tenon.jit'] = None\n"
            "try: import tenon\nexcept ImportError: print(gc.isenabled())")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n" and gc.isenabled()
    assert np.asarray(tn.ones(1)).tolist() == [1.0]

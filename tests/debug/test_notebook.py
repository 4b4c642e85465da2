"""What a notebook shows of tensors, graphs and modules."""

import numpy as np

import tenon as tn
from tenon import nn
from tenon.debug.notebook import heat_map, summary


def test_a_tensor_shows_type_range_and_odd_values():
    html = tn.asarray(np.array([[1.0, np.nan], [np.inf, -2.0]], np.float32))._repr_html_()
    assert "f32[2, 2]" in html and "1 NaN" in html and "1 inf" in html and "min -2" in html
    assert html.count("<rect") == 4 and "#d33" in html


def test_a_large_tensor_is_thinned():
    assert heat_map(np.zeros((1000, 1000))).count("<rect") == 24 * 24


def test_odd_tensors():
    assert summary(np.zeros((0, 3))) == "empty"
    assert heat_map(np.zeros(())) == ""
    assert "2 elements" in summary(np.zeros(2, np.complex64))


def test_a_graph_shows_every_node_with_the_users_line():
    html = tn.jit(lambda x: tn.exp(x) * 2).graph(tn.ones(3))._repr_html_()
    assert html.count("<tr>") == 3 and "test_notebook.py" in html and "multiply(v0, 2.0)" in html


def test_a_module_shows_its_tree():
    html = nn.Sequential(nn.Linear(3, 4), nn.ReLU())._repr_html_()
    assert "Linear" in html and "16" in html

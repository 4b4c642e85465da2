"""Factors of 8 and 16 bits are converted while they are packed."""

import numpy as np
import pytest

import tenon as tn
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.pipeline import compile
from tenon.types import TensorType, as_dtype


@pytest.mark.parametrize(("narrow", "wide"), [
    ("int8", "float32"), ("uint8", "float32"), ("int16", "float32"), ("uint16", "float64"), ("float16", "float32"),
    ("bfloat16", "float32"), ("bfloat16", "float64"), ("int8", "int32"), ("uint8", "int64"), ("bool", "float32")])
@pytest.mark.parametrize("sizes", [(5, 33, 64), (16, 48, 32), (17, 7, 100), (4, 130, 61)])
def test_a_product_with_a_narrow_factor(narrow, wide, sizes):
    rows, columns, depth = sizes
    types = TensorType(as_dtype(wide), (rows, depth)), TensorType(as_dtype(narrow), (columns, depth))
    graph = trace(lambda x, w: x @ tn.cast(tn.permute(w, (1, 0)), wide), *types)
    random = np.random.default_rng(0)
    x = random.integers(-5, 6, types[0].shape).astype(types[0].dtype.numpy)
    low = 0 if narrow.startswith("u") else -100
    w = random.integers(low, 127, types[1].shape).astype(types[1].dtype.numpy)
    np.testing.assert_array_equal(compile(graph, "cpu").run([x, w])[0], interpret(graph, [x, w])[0])

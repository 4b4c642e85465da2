"""Models that lie, go round in circles, or ask for more than there is: name -> bytes of a model and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, INT = TensorProto.FLOAT, TensorProto.INT64
FEW = np.arange(4, dtype=np.float32)
Made = tuple[bytes, list[Any]]
HOSTILE: dict[str, Callable[[], Made]] = {}


def info(name: str, kind: int = F, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Any, weights: Any = (), inputs: Any = (("x", F, [4]),), outputs: Any = ("y",), functions: Any = (),
          opset: int = 21, domains: Any = ()) -> Any:
    graph = helper.make_graph(list(nodes), "g", [info(*i) for i in inputs], [info(o) for o in outputs],
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(weights).items()])
    imports = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, 1) for d in domains]]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def add(name: str, made: Any, *arrays: Any) -> None:
    """A model given as it is, or by a function."""
    def make() -> Made:
        found = made() if callable(made) else made
        data = found if isinstance(found, bytes) else found.SerializeToString()
        return data, list(arrays) if arrays else [FEW]
    assert name not in HOSTILE
    HOSTILE[name] = make


RELU = model([node("Relu", "x")]).SerializeToString()
add("nothing", b"")
add("text", b"this is no model")
add("zeros", b"\0" * 1000)
add("ones", b"\xff" * 1000)
add("cut in half", model([node("Add", "x w")], {"w": np.ones(1000, np.float32)}).SerializeToString()[:2000])
add("cut short", RELU[:-3])
add("no graph", lambda: onnx.ModelProto(ir_version=8).SerializeToString())

# ---------------------------------------------------------------- names
add("a cycle of two", model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "a")]))
add("a cycle of one", model([node("Add", "x y")]))
add("out of order", model([node("Relu", "a"), node("Relu", "x", "a")]))
add("a result twice", model([node("Relu", "x"), node("Neg", "x")]))
add("a result twice in a node", model([node("Split", "x", "y y", axis=0)]))
add("an input twice", model([node("Relu", "x")], inputs=(("x", F, [4]), ("x", F, [4]))))
add("an input that is a result", model([node("Relu", "x", "x"), node("Neg", "x")]))
add("nothing computes an input", model([node("Relu", "z")]))
add("nothing computes the result", model([node("Relu", "x", "z")]))
add("an attribute twice", lambda: _twice())
add("no opset", lambda: _without_opset())
add("opset 9999", model([node("Relu", "x")], opset=9999))
add("opset -1", model([node("Relu", "x")], opset=-1))
add("unknown operator", model([node("Nonsense", "x")]))
add("unknown domain", model([helper.make_node("Relu", ["x"], ["y"], domain="com.nowhere")]))
add("two initializers of a name", lambda: _two_weights())


def _twice() -> Any:
    n = node("Softmax", "x", axis=0)
    n.attribute.append(helper.make_attribute("axis", 1))
    return model([n])


def _without_opset() -> Any:
    m = model([node("Relu", "x")])
    del m.opset_import[:]
    return m


def _two_weights() -> Any:
    m = model([node("Add", "x w")], {"w": FEW})
    m.graph.initializer.append(numpy_helper.from_array(FEW, "w"))
    return m


# ---------------------------------------------------------------- tensors that lie
def _tensor(**fields: Any) -> Any:
    m = model([node("Add", "x w")], {"w": FEW})
    tensor = m.graph.initializer[0]
    for name, value in fields.items():
        if name in ("dims", "float_data", "string_data", "int32_data"):
            tensor.ClearField(name)
            getattr(tensor, name).extend(value)
        elif value is None:
            tensor.ClearField(name)
        else:
            setattr(tensor, name, value)
    return m


for _name, _fields in {
    "too few bytes": {"dims": [5]}, "too many bytes": {"dims": [3]}, "a negative size": {"dims": [-1]},
    "sizes beyond memory": {"dims": [1 << 40]}, "sizes that overflow": {"dims": [1 << 32, 1 << 32]},
    "sizes that overflow to 4": {"dims": [1 << 62, 4, 4]}, "no data": {"raw_data": None},
    "short data": {"raw_data": None, "float_data": [1.0]}, "type 99": {"data_type": 99}, "no type": {"data_type": 0},
    "text of bytes": {"data_type": TensorProto.STRING}, "int4 of too few bytes": {"data_type": TensorProto.INT4, "dims": [99]},
    "complex": {"data_type": TensorProto.COMPLEX128, "dims": [1]}, "elsewhere": {"data_location": 1},
}.items():
    add(f"tensor: {_name}", (lambda fields: lambda: _tensor(**fields))(_fields))


def _sparse(indices: Any, dims: Any) -> Any:
    m = model([node("Add", "x s")])
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(2, np.float32), "s"), numpy_helper.from_array(np.asarray(indices, np.int64)), dims))
    return m


add("sparse: beyond the end", lambda: _sparse([0, 9], [4]))
add("sparse: before the beginning", lambda: _sparse([-1, 1], [4]))
add("sparse: more than memory", lambda: _sparse([0, 1], [1 << 40]))
add("sparse: too many places", lambda: _sparse([0, 1, 2], [4]))

# ---------------------------------------------------------------- more than there is
HUGE = np.array([1 << 40], np.int64)
for _name, _nodes, _weights in (
    ("Expand", [node("Expand", "x s")], {"s": np.array([1 << 38, 4])}),
    ("Expand of a constant", [node("Expand", "o s", "z"), node("ReduceSum", "z", "r"), node("Add", "x r")],
     {"s": HUGE, "o": np.ones(1, np.float32)}),
    ("ConstantOfShape", [node("ConstantOfShape", "s", "z"), node("Add", "x z")], {"s": HUGE}),
    ("Tile", [node("Tile", "x s")], {"s": HUGE}),
    ("Range", [node("Range", "a b c", "r"), node("Cast", "r", "y", to=F)],
     {"a": np.int64(0), "b": np.int64(1 << 60), "c": np.int64(1)}),
    ("Range of halves", [node("Range", "a b c")],
     {"a": np.float64(0), "b": np.float64(1e300), "c": np.float64(1e-300)}),
    ("Pad", [node("Pad", "x s")], {"s": np.array([1 << 40, 0])}),
    ("Pad at the edge", [node("Pad", "x s", mode="edge")], {"s": np.array([1 << 40, 0])}),
    ("OneHot", [node("Cast", "x", "i", to=INT), node("OneHot", "i d v")], {"d": np.int64(1 << 40), "v": FEW[:2]}),
    ("Resize", [node("Reshape", "x s", "z"), node("Resize", "z   w".replace("  ", " e "))],
     {"s": np.array([1, 1, 4]), "w": np.array([1, 1, 1e12], np.float32), "e": np.zeros(0, np.float32)}),
    ("HannWindow", [node("HannWindow", "n", "h"), node("ReduceSum", "h", "r"), node("Add", "x r")], {"n": np.int64(1 << 40)}),
    ("RandomUniform", [node("RandomUniform", "", "r", shape=[1 << 40]), node("Add", "x r")], {}),
    ("doubling", [*[node("Concat", f"{'x' if k == 0 else f'a{k}'} {'x' if k == 0 else f'a{k}'}", f"a{k + 1}", axis=0)
                    for k in range(60)], node("Identity", "a60")], {}),
    ("doubling of a constant", [*[node("Concat", f"a{k} a{k}", f"a{k + 1}", axis=0) for k in range(60)],
                                node("ReduceSum", "a60", "r"), node("Add", "x r")], {"a0": FEW}),
    ("an outer product", [node("Unsqueeze", "x z", "c"), node("MatMul", "c d", "p"), node("Expand", "p s")],
     {"z": np.array([1]), "d": np.ones((1, 4), np.float32), "s": np.array([1 << 36, 4, 4])}),
    ("Upsample", [node("Expand", "x s", "a"), node("Tile", "a s")], {"s": np.array([1 << 20, 4])}),
    ("MelWeightMatrix", [node("MelWeightMatrix", "a a b c d", "m"), node("ReduceSum", "m", "r"), node("Add", "x r")],
     {"a": np.int64(1 << 30), "b": np.int64(16000), "c": np.float32(0), "d": np.float32(8000)}),
    ("EyeLike", [node("Expand", "x s", "a"), node("EyeLike", "a")], {"s": np.array([1 << 36, 4])}),
):
    add(f"size: {_name}", (lambda n, w: lambda: model(n, w))(_nodes, _weights))


def _functions(levels: int, calls: int) -> Any:
    domain, made = "bomb", []
    for k in range(levels):
        inner = f"f{k + 1}" if k + 1 < levels else None
        nodes = [helper.make_node(inner, [f"a{j}"], [f"a{j + 1}"], domain=domain) if inner
                 else helper.make_node("Relu", [f"a{j}"], [f"a{j + 1}"]) for j in range(calls)]
        made.append(helper.make_function(domain, f"f{k}", ["a0"], [f"a{calls}"], nodes,
                                         [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]))
    return model([helper.make_node("f0", ["x"], ["y"], domain=domain)], functions=made, domains=(domain,))


def _recursive(*names: str) -> Any:
    made = [helper.make_function("r", name, ["a"], ["b"], [helper.make_node(names[(k + 1) % len(names)], ["a"], ["b"],
                                                                            domain="r")],
                                 [helper.make_opsetid("r", 1)]) for k, name in enumerate(names)]
    return model([helper.make_node(names[0], ["x"], ["y"], domain="r")], functions=made, domains=("r",))


add("functions: ten to the twelfth", lambda: _functions(12, 10))
add("functions: a hundred deep", lambda: _functions(100, 1))
add("functions: itself", lambda: _recursive("f"))
add("functions: each other", lambda: _recursive("f", "g", "h"))


def _loop(m: Any, body: Any, carried: str = "x") -> Any:
    weights = {} if m is None else {"m": np.int64(m)}
    return model([node("Constant", "", "t", value=numpy_helper.from_array(np.array(True))),
                  helper.make_node("Loop", ["" if m is None else "m", "t", carried], ["y"], body=body)], weights)


def _body(nodes: Any, outputs: Any = ("d", "w"), inputs: Any = ("k", "c", "v")) -> Any:
    kinds = {"k": INT, "c": TensorProto.BOOL, "d": TensorProto.BOOL}
    return helper.make_graph(list(nodes), "b", [info(n, kinds.get(n, F), [] if n in kinds else None) for n in inputs],
                             [info(n, kinds.get(n, F), [] if n in kinds else None) for n in outputs])


SAME = node("Identity", "c", "d")
add("loop: endless", lambda: _loop(None, _body([SAME, node("Add", "v v", "w")])))
add("loop: nine quintillion turns", lambda: _loop((1 << 63) - 1, _body([SAME, node("Relu", "v", "w")])))
add("loop: a value that doubles", lambda: _loop(60, _body([SAME, node("Concat", "v v", "w", axis=0)])))
add("loop: too few results", lambda: _loop(3, _body([SAME], ("d",))))
add("loop: a body that reads nothing", lambda: _loop(3, _body([SAME, node("Relu", "q", "w")])))
add("loop: a condition of two", lambda: _loop(3, _body([node("Concat", "c1 c1", "d", axis=0),
                                                        node("Unsqueeze", "c z", "c1"), node("Relu", "v", "w")])))
add("if: no branches", model([node("ReduceSum", "x", "s"), node("Cast", "s", "c", to=9), node("If", "c")]))
add("scan: nothing to scan", model([node("Scan", "x", "y", num_scan_inputs=1)]))
add("scan: more inputs than there are", lambda: model([node("Scan", "x", "y", num_scan_inputs=7, body=_body(
    [node("Identity", "v", "w")], ("w",), ("v",)))]))


def _nested(depth: int) -> Any:
    graph = _body([node("Identity", "x", "w")], ("w",), ())
    for _ in range(depth):
        graph = _body([node("If", "true", "w", then_branch=graph, else_branch=graph)], ("w",), ())
    return model([node("If", "true", "y", then_branch=graph, else_branch=graph)], {"true": np.array(True)})


add("ifs: ten deep, two each", lambda: _nested(10))

# ---------------------------------------------------------------- numbers that cannot be
LEAST = np.array([-(1 << 63)] * 4, np.int64)
WHOLE = (("x", INT, [4]),)
for _op in ("Div", "Mod"):
    add(f"numbers: {_op} of the least by -1", model([node(_op, "x w")], {"w": np.full(4, -1)}, WHOLE), LEAST)
    add(f"numbers: {_op} by 0", model([node(_op, "x w")], {"w": np.zeros(4, np.int64)}, WHOLE), LEAST)
    add(f"numbers: {_op} of 32 bits by -1", model([node(_op, "x w")], {"w": np.full(4, -1, np.int32)},
                                                  (("x", TensorProto.INT32, [4]),)), np.full(4, -(1 << 31), np.int32))
add("numbers: Mod of the rest by -1", model([node("Mod", "x w", fmod=1)], {"w": np.full(4, -1)}, WHOLE), LEAST)
add("numbers: shifts by 200", model([node("BitShift", "x w", direction="LEFT")], {"w": np.full(4, 200, np.uint64)},
                                    (("x", TensorProto.UINT64, [4]),)), np.ones(4, np.uint64))
add("numbers: negative powers", model([node("Pow", "x w")], {"w": np.full(4, -3)}, WHOLE), np.zeros(4, np.int64))
add("numbers: NaN to integers", model([node("Cast", "x", "y", to=INT)]), np.array([np.nan, np.inf, -np.inf, 1e30], np.float32))

S = np.array
for _name, _node, _weights in (
    ("Reshape", node("Reshape", "x s"), {"s": S([3, -1])}), ("Reshape of two", node("Reshape", "x s"), {"s": S([-1, -1])}),
    ("Reshape below", node("Reshape", "x s"), {"s": S([-5])}), ("Gather", node("Gather", "x s"), {"s": S([1 << 40])}),
    ("Gather below", node("Gather", "x s"), {"s": S([-5])}), ("GatherND", node("GatherND", "x s"), {"s": S([[9]])}),
    ("GatherND of two", node("GatherND", "x s"), {"s": S([[0, 0]])}),
    ("GatherElements", node("GatherElements", "x s"), {"s": S([7])}),
    ("ScatterND", node("ScatterND", "x s u"), {"s": S([[99]]), "u": FEW[:1]}),
    ("ScatterElements", node("ScatterElements", "x s u"), {"s": S([-99]), "u": FEW[:1]}),
    ("ScatterElements of two", node("ScatterElements", "x s u"), {"s": S([0]), "u": FEW}),
    ("Slice by 0", node("Slice", "x a b c d"), {"a": S([0]), "b": S([4]), "c": S([0]), "d": S([0])}),
    ("Slice by least", node("Slice", "x a b c d"), {"a": S([0]), "b": S([4]), "c": S([0]), "d": S([-(1 << 63)])}),
    ("Slice of axis 9", node("Slice", "x a b c"), {"a": S([0]), "b": S([4]), "c": S([9])}),
    ("Slice of uneven", node("Slice", "x a b"), {"a": S([0, 1]), "b": S([4])}),
    ("Split", node("Split", "x s", "y z"), {"s": S([-1, 5])}), ("Split of more", node("Split", "x s", "y z"), {"s": S([9, 9])}),
    ("TopK of more", node("TopK", "x k", "y z"), {"k": S([1 << 40])}), ("TopK of less", node("TopK", "x k", "y z"), {"k": S([-1])}),
    ("Transpose twice", node("Transpose", "x", perm=[0, 0]), {}), ("Transpose of more", node("Transpose", "x", perm=[3]), {}),
    ("Concat of axis 5", node("Concat", "x x", axis=5), {}), ("Softmax of axis 7", node("Softmax", "x", axis=7), {}),
    ("Softmax of text", node("Softmax", "x", axis="one"), {}), ("CumSum of axis 3", node("CumSum", "x a"), {"a": np.int64(3)}),
    ("Squeeze", node("Squeeze", "x a"), {"a": S([0])}), ("Unsqueeze", node("Unsqueeze", "x a"), {"a": S([99])}),
    ("Unsqueeze twice", node("Unsqueeze", "x a"), {"a": S([0, 0])}), ("Flatten", node("Flatten", "x", axis=9), {}),
    ("Expand that does not fit", node("Expand", "x s"), {"s": S([3])}), ("Tile of less", node("Tile", "x s"), {"s": S([-1])}),
    ("Pad of less", node("Pad", "x s"), {"s": S([-9, 0])}), ("Pad of NaN", node("Pad", "x s", mode="what"), {"s": S([1, 1])}),
    ("Conv of one axis", node("Conv", "x w"), {"w": np.ones((1, 1, 3), np.float32)}),
    ("MatMul", node("MatMul", "x w"), {"w": np.ones((3, 3), np.float32)}),
    ("Add", node("Add", "x w"), {"w": np.ones(3, np.float32)}), ("Add of types", node("Add", "x w"), {"w": S([1])}),
    ("Add of one", node("Add", "x"), {}), ("Add of three", node("Add", "x x x"), {}), ("Relu of none", node("Relu", ""), {}),
    ("Einsum", node("Einsum", "x x", equation="(((i"), {}), ("Einsum of what is not there", node("Einsum", "x", equation="ij->k"), {}),
    ("Cast to 99", node("Cast", "x", to=99), {}), ("Cast to none", node("Cast", "x"), {}),
    ("LSTM", node("LSTM", "x x x", hidden_size=1 << 40), {}), ("DFT", node("DFT", "x n"), {"n": np.int64(1 << 50)}),
    ("Dropout of all", node("Dropout", "x r t"), {"r": np.float32(1), "t": np.array(True)}),
    ("Attention", node("Attention", "x x x", q_num_heads=3, kv_num_heads=0), {}),
    ("DequantizeLinear", node("DequantizeLinear", "w s", axis=9), {"w": np.ones(4, np.int8), "s": np.ones(3, np.float32)}),
    ("SequenceAt", node("SequenceAt", "x i"), {"i": np.int64(3)}),
    ("SplitToSequence", node("SplitToSequence", "x i"), {"i": np.int64(0)}),
    ("Compress", node("Compress", "x c"), {"c": np.ones(99, bool)}), ("OptionalGetElement", node("OptionalGetElement", ""), {}),
    ("ReverseSequence", node("ReverseSequence", "x l"), {"l": S([99])}), ("Unique", node("Unique", "x", axis=4), {}),
    ("GridSample", node("GridSample", "x x"), {}), ("RoiAlign", node("RoiAlign", "x x x"), {}),
    ("Resize by NaN", node("Resize", "x e w"), {"e": np.zeros(0, np.float32), "w": np.array([np.nan], np.float32)}),
    ("Resize by less", node("Resize", "x e w"), {"e": np.zeros(0, np.float32), "w": np.array([-1], np.float32)}),
    ("TfIdf", node("TfIdfVectorizer", "x", mode="TF", min_gram_length=5, max_gram_length=1, max_skip_count=0,
                   ngram_counts=[9], ngram_indexes=[-5]), {}),
):
    add(f"arguments: {_name}", (lambda n, w: lambda: model([n], w))(_node, _weights))

IMAGE = (("x", F, [1, 1, 4, 4]),)
PICTURE = np.ones((1, 1, 4, 4), np.float32)
for _name, _node in {
    "stride 0": node("MaxPool", "x", kernel_shape=[2, 2], strides=[0, 0]),
    "kernel 0": node("MaxPool", "x", kernel_shape=[0, 0]),
    "negative kernel": node("AveragePool", "x", kernel_shape=[-1, 2]),
    "kernel of one axis": node("MaxPool", "x", kernel_shape=[2]),
    "huge kernel": node("MaxPool", "x", kernel_shape=[1 << 40, 1]),
    "huge pads": node("AveragePool", "x", kernel_shape=[2, 2], pads=[1 << 40, 0, 0, 0]),
    "huge dilation": node("MaxPool", "x", kernel_shape=[2, 2], dilations=[1 << 60, 1]),
    "negative pads": node("MaxPool", "x", kernel_shape=[2, 2], pads=[-9, 0, 0, 0]),
    "blocks of 0": node("SpaceToDepth", "x", blocksize=0), "blocks of 3": node("SpaceToDepth", "x", blocksize=3),
    "depth in blocks of 0": node("DepthToSpace", "x", blocksize=0), "norm of size 0": node("LRN", "x", size=0),
    "norm of less": node("LRN", "x", size=-5),
}.items():
    add(f"windows: {_name}", model([_node], {}, IMAGE), PICTURE)
add("windows: groups of 0", model([node("Conv", "x w", group=0)], {"w": PICTURE}, IMAGE), PICTURE)
add("windows: negative groups", model([node("Conv", "x w", group=-1)], {"w": PICTURE}, IMAGE), PICTURE)
add("windows: Col2Im", model([node("Col2Im", "x a b")], {"a": S([1 << 30, 1 << 30]), "b": S([1, 1])},
                             (("x", F, [1, 1, 4]),)), np.ones((1, 1, 4), np.float32))
add("text: a pattern for ever", lambda: model([node("RegexFullMatch", "x", pattern="(a+)+b")], {},
                                              (("x", TensorProto.STRING, [1]),)), S(["a" * 60], object))
add("text: a pattern that is none", lambda: model([node("RegexFullMatch", "x", pattern="(((")], {},
                                                  (("x", TensorProto.STRING, [1]),)), S(["a"], object))
add("image: no image", model([node("ImageDecoder", "x")], {}, (("x", TensorProto.UINT8, [4]),)), np.zeros(4, np.uint8))
add("trees: a cycle", lambda: model([helper.make_node(
    "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
    nodes_featureids=[0, 0, 0], nodes_values=[0.0, 0.0, 0.0], nodes_modes=["BRANCH_LEQ"] * 3, nodes_truenodeids=[1, 2, 0],
    nodes_falsenodeids=[2, 0, 1], target_treeids=[0], target_nodeids=[0], target_ids=[0], target_weights=[1.0])],
    {}, (("x", F, [1, 4]),), domains=("ai.onnx.ml",)), FEW[None])

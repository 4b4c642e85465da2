"""An operator that the standard defines by others -> the plan of that definition, for the types of a call."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.graph_plan import GraphPlan, attribute_value, function_plan
from tenon.onnx.known_values import Known
from tenon.onnx.onnx_package import onnx
from tenon.onnx.operator_table import OperatorCall

_plans: dict[Any, GraphPlan] = {}


def body_of(call: OperatorCall, args: list[Any]) -> GraphPlan | None:
    """What the operator is made of, in the version that the model asks for; None where the standard says nothing."""
    step = call.step
    try:
        schema = onnx.defs.get_schema(step.op_type, call.opset, step.domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        key = step.domain, step.op_type, schema.since_version, call.opset
        if key not in _plans:
            _plans[key] = _with_opset(schema.function_body, schema, call)
        return _plans[key]
    if not schema.has_context_dependent_function:
        return None
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= call.opset]
    if not versions:
        return None
    types = [b"" if x is None else type_of(x).SerializeToString() for x in args]
    data = schema.get_context_dependent_function_with_opset_version(max(versions), _resolved(call), types)
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    return _with_opset(function, schema, call)


def is_defined(name: str, domain: str, opsets: Any) -> bool:
    """Whether the standard says what the operator is made of."""
    try:
        schema = onnx.defs.get_schema(name, opsets.get(domain, 1), domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _with_opset(function: Any, schema: Any, call: OperatorCall) -> GraphPlan:
    """The body's plan, with the operator's defaults and the opsets that it is written in."""
    opsets = {o.domain: o.version for o in function.opset_import} | {call.step.domain: call.opset}
    opsets.setdefault("", call.step.plan.opsets.get("", onnx.defs.onnx_opset_version()))
    del function.opset_import[:]
    function.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in opsets.items())
    plan = function_plan(function, {})
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            plan.defaults.setdefault(name, attribute_value(attribute.default_value, plan))
    return plan


def _resolved(call: OperatorCall) -> bytes:
    """The node, its attributes those of the call."""
    node = onnx.NodeProto()
    node.CopyFrom(call.step.node)
    kept = [a for a in node.attribute if not a.ref_attr_name]
    kept += [onnx.helper.make_attribute(a.name, call.attributes[a.ref_attr_name and a.name])
             for a in node.attribute if a.ref_attr_name and a.name in call.attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    data: bytes = node.SerializeToString()
    return data


def type_of(x: Any) -> Any:
    """The TypeProto of a value."""
    if isinstance(x, list):
        inner = type_of(x[0]) if x else onnx.helper.make_tensor_type_proto(1, None)
        return onnx.helper.make_sequence_type_proto(inner)
    shape = x.array.shape if isinstance(x, Known) else x.shape
    return onnx.helper.make_tensor_type_proto(element_type(x), [int(d) for d in shape])


def element_type(x: Any) -> int:
    """The number that ONNX gives the type of a value's elements."""
    dtype = x.array.dtype if isinstance(x, Known) else x.dtype.numpy if isinstance(x, tn.Tensor) else np.dtype(x)
    if dtype.kind in "OUS":
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype))

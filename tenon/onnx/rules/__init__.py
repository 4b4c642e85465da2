"""What Tenon's operators are in ONNX: one rule each, entered in the table when this is loaded."""

from tenon.onnx.rules import (
    complex_rules,
    control_rules,
    elementwise_rules,
    group_rules,
    layer_rules,
    linalg_rules,
    random_rules,
    reduction_rules,
    shape_rules,
)

"""ONNX files to compiled functions, and functions to ONNX files.

    model = tn.onnx.load("model.onnx")
    y = model(x)

The table of operators stands in `operators/`, one definition each; what reads a file is `model_file`, what runs it
`onnx_model`.  The package `onnx` is loaded when one of these is first used.
"""

from tenon.onnx.known_values import UnsupportedError
from tenon.onnx.model_file import ModelError
from tenon.onnx.onnx_backend import Backend
from tenon.onnx.onnx_export import export
from tenon.onnx.onnx_model import OnnxModel, import_graph, load

__all__ = ["Backend", "ModelError", "OnnxModel", "UnsupportedError", "export", "import_graph", "load"]

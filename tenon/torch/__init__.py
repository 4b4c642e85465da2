"""PyTorch's models run by Tenon: `torch.compile(model, backend="tenon")`, and what became of them.

Importing this makes the backend known to PyTorch; where Tenon is installed, PyTorch finds it by itself.
"""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("tenon.torch needs PyTorch, which is not installed: pip install 'tenon-graph[torch]'")

from torch._dynamo import list_backends, register_backend

from tenon.torch.dynamo import tenon as _backend
from tenon.torch.exported import from_module
from tenon.torch.report import Report, report, reset_report
from tenon.torch.torch_module import to_module

if "tenon" not in list_backends():      # where Tenon is installed, PyTorch registers it when it is asked for
    register_backend(_backend, name="tenon")

__all__ = ["Report", "from_module", "report", "reset_report", "to_module"]

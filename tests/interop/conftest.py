"""Other frameworks as judges. `make test-interop` installs them; a file is named after the one that it needs."""

from importlib.util import find_spec

JUDGES = ("torch", "onnx", "onnxruntime")

collect_ignore_glob = [f"test_{judge}_*.py" for judge in JUDGES if not find_spec(judge)]

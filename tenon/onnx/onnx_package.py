"""The package `onnx`, loaded at first use, so that Tenon needs it for nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tenon.errors import TenonError


class MissingPackage(TenonError, ImportError):
    """An optional package that is not installed."""


class OnnxPackage:
    """Stands for the module until somebody asks for one of its names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            module = import_module("onnx")
        except ImportError:
            raise MissingPackage("tn.onnx needs the package onnx, which is not installed",
                                 hint="pip install 'tenon-graph[onnx]'") from None
        value = getattr(module, name) if hasattr(module, name) else import_module(f"onnx.{name}")
        setattr(self, name, value)
        return value


onnx: Any = OnnxPackage()

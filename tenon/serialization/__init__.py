"""Tensors, models and runs <-> safetensors files: `save` and `load` are what users call."""

"""A captured step and the pipeline that it is to run as -> what its graph is told of that."""

from __future__ import annotations

from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.parameter_sources import Argument, Held
from tenon.errors import ArgumentError, CaptureError
from tenon.pipelining.pipelined import Pipeline, PipelineNote
from tenon.tensor import Tensor


def pipeline_note(captured: Captured, pipeline: Pipeline) -> PipelineNote:
    """The places of the arguments of a capture, and of the parameters that stages begin with.

    Raises CaptureError for a step whose result is recorded on the tape, and ArgumentError where stages are to begin
    with what the step does not read.
    """
    if captured.differentiable:
        raise CaptureError("jit: a pipeline runs whole training steps, and this one returns what carries a gradient",
                           hint="call loss.backward() and optimizer.step() inside of it, or run it under tn.no_grad()")
    holders = {id(source.holder): k for k, source in enumerate(captured.sources) if isinstance(source, Held)}
    begins = []
    for x in pipeline.begins:
        tensors = [x] if isinstance(x, Tensor) else list(parameters_of(x))
        found = next((holders[id(t)] for t in tensors if id(t) in holders), None)
        if found is None:
            raise ArgumentError(f"Pipeline: the step reads no parameter of {type(x).__name__}, which begins a stage",
                                hint="begins=[net.blocks[2]] names modules or parameters of the model")
        begins.append(found)
    arguments = tuple(k for k, source in enumerate(captured.sources) if isinstance(source, Argument))
    return PipelineNote(pipeline, arguments, tuple(begins))


def parameters_of(module: Any) -> list[Tensor]:
    """The parameters of a module, in order."""
    parameters = getattr(module, "parameters", None)
    return list(parameters()) if callable(parameters) else []

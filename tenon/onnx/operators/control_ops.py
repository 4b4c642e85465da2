"""If, Loop, Scan and SequenceMap.

A condition whose value is known chooses in Python; another one is a branch or loop of the graph that is captured.
Where the graph cannot hold it (results of two shapes, a loop that collects), the model runs with graph breaks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError, TenonError
from tenon.graph.op import current
from tenon.onnx.evaluate_plan import check_time, evaluate
from tenon.onnx.known_values import Known, as_tensor, host, ints, is_known
from tenon.onnx.operator_table import OperatorCall, operator

MAX_ITERATIONS = 1 << 62
WRITTEN_OUT = 32        # iterations of a loop that are a part of the graph each


def _truth(x: Any) -> bool:
    found = np.asarray(host(x))
    if found.size != 1:
        raise ShapeError(f"a condition of shape {found.shape}")
    return bool(found.reshape(-1)[0])


@operator("If", raw=True, late=True)
def branch(call: OperatorCall, condition: Any) -> Any:
    then, otherwise = call.need("then_branch"), call.need("else_branch")
    if isinstance(condition, tn.Tensor) and current() is not None:
        found = _captured_branch(call, condition)
        if found is not None:
            return found
    return tuple(evaluate(then if _truth(condition) else otherwise, [], call.scope))


def _captured_branch(call: OperatorCall, condition: Any) -> Any:
    """Both branches in the graph; None where they do not give tensors of the same types."""
    def taken(name: str) -> Any:
        def run() -> Any:
            return tuple(map(as_tensor, evaluate(call.need(name), [], call.scope)))
        return run
    try:
        return tn.cond(condition.reshape(()), taken("then_branch"), taken("else_branch"))
    except (TenonError, TypeError, AttributeError):
        return None


@operator("Loop", raw=True, late=True)
def loop(call: OperatorCall, most: Any, condition: Any = None, *carried: Any) -> Any:
    body = call.need("body")
    if current() is not None and not _is_settled(most, condition):
        found = _captured_loop(call, most, condition, carried)
        if found is not None:
            return found
    limit = MAX_ITERATIONS if most is None else ints(most)[0]
    goes_on = condition is None or _truth(condition)
    state, collected = list(carried), []
    iteration = 0
    while goes_on and iteration < limit:
        check_time(call.step.label)
        given = [Known(np.array(iteration, np.int64)), Known(np.array(True)), *state]
        results = evaluate(body, given[:len(body.inputs)], call.scope)
        goes_on, state = _truth(results[0]), results[1:1 + len(carried)]
        collected.append(results[1 + len(carried):])
        iteration += 1
    count = len(body.outputs) - 1 - len(carried)
    return (*state, *[_stacked([row[k] for row in collected], call, body, 1 + len(carried) + k)
                      for k in range(count)])


def _is_settled(most: Any, condition: Any) -> bool:
    known = (most is None or is_known(most)) and (condition is None or is_known(condition))
    return known and most is not None and ints(most)[0] <= WRITTEN_OUT


def _captured_loop(call: OperatorCall, most: Any, condition: Any, carried: Any) -> Any:
    """A loop of the graph; None where it collects, or carries what changes its type."""
    body = call.need("body")
    if len(body.outputs) != 1 + len(carried) or not all(isinstance(x, (Known, tn.Tensor)) for x in carried):
        return None
    limit = MAX_ITERATIONS if most is None else as_tensor(most).reshape(())
    first = tn.tensor(True) if condition is None else as_tensor(condition).reshape(())

    def iteration(state: Any) -> Any:
        k, goes_on, *values = state
        results = evaluate(body, [k, goes_on, *values][:len(body.inputs)], call.scope)
        return (k + 1, as_tensor(results[0]).reshape(()), *map(as_tensor, results[1:]))
    try:
        start = (tn.zeros((), dtype=tn.int64), first, *map(as_tensor, carried))
        return tuple(tn.while_loop(lambda s: (s[0] < limit) & s[1], iteration, start)[2:])
    except (TenonError, TypeError, AttributeError):
        return None


def _stacked(rows: list[Any], call: OperatorCall, body: Any, place: int) -> Any:
    """What the iterations of a loop leave, one after the other."""
    if not rows:
        type = body.types.get(body.outputs[place])
        sizes = [d.dim_value for d in type.tensor_type.shape.dim] if type is not None else []
        from tenon.onnx.operators.cast_ops import numpy_type
        number = type.tensor_type.elem_type if type is not None else 1
        return np.zeros((0, *sizes), numpy_type(number or 1, call))
    if all(isinstance(x, Known) for x in rows):
        return np.stack([x.array for x in rows])
    return tn.stack([as_tensor(x) for x in rows])


@operator("Scan", raw=True, late=True)
def scan(call: OperatorCall, *args: Any) -> Any:
    """Opset 8 has lengths, and a batch axis that comes first; each example of it is a scan of its own."""
    if call.opset >= 9:
        return _scan(call, list(args), call.get("scan_input_axes"), call.get("scan_output_axes"))
    lengths, inputs = args[0], args[1:]
    if lengths is not None:
        raise call.unsupported("sequence_lens of opset 8")
    batch = as_tensor(inputs[0]).shape[0]
    rows = [_scan(call, [as_tensor(x)[k] for x in inputs], None, None) for k in range(batch)]
    return tuple(tn.stack([as_tensor(row[k]) for row in rows]) for k in range(len(rows[0])))


def _scan(call: OperatorCall, args: list[Any], axes_in: Any, axes_out: Any) -> tuple[Any, ...]:
    body, count = call.need("body"), call.need("num_scan_inputs")
    kept = len(args) - count
    back_in = call.get("scan_input_directions", call.get("directions", [0] * count))
    axes_in = axes_in or [0] * count
    outs = len(body.outputs) - kept
    back_out, axes_out = call.get("scan_output_directions", [0] * outs), axes_out or [0] * outs
    xs = []
    for x, axis, back in zip(args[kept:], axes_in, back_in):
        x = tn.moveaxis(as_tensor(x), axis, 0)
        xs.append(tn.flip(x, 0) if back else x)
    state, ys = _iterations(call, body, [as_tensor(x) for x in args[:kept]], xs)
    results = []
    for y, axis, back in zip(ys, axes_out, back_out):
        y = tn.flip(y, 0) if back else y
        results.append(tn.moveaxis(y, 0, axis if axis >= 0 else axis + y.ndim))
    return (*state, *results)


def _iterations(call: OperatorCall, body: Any, state: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The last state, and what the iterations leave, stacked."""
    kept = len(state)

    def iteration(carry: Any, row: Any) -> Any:
        results = [as_tensor(y) for y in evaluate(body, [*carry, *row], call.scope)]
        return tuple(results[:kept]), tuple(results[kept:])
    if current() is not None:
        try:
            last, ys = tn.scan(iteration, tuple(state), tuple(xs))
            return list(last), list(ys)
        except (TenonError, TypeError):
            pass
    rows = []
    carry: Any = tuple(state)
    for k in range(xs[0].shape[0]):
        check_time(call.step.label)
        carry, row = iteration(carry, tuple(x[k] for x in xs))
        rows.append(row)
    if not rows:
        return list(carry), [_stacked([], call, body, kept + k) for k in range(len(body.outputs) - kept)]
    return list(carry), [tn.stack([row[k] for row in rows]) for k in range(len(rows[0]))]


@operator("SequenceMap", raw=True, late=True)
def sequence_map(call: OperatorCall, first: Any, *others: Any) -> Any:
    body = call.need("body")
    results = [evaluate(body, [x, *[o[k] if isinstance(o, list) else o for o in others]], call.scope)
               for k, x in enumerate(first)]
    return tuple([row[k] for row in results] for k in range(len(body.outputs)))

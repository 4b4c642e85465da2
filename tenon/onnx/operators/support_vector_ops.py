"""Support vector machines of the domain ai.onnx.ml: kernels, decisions between pairs of classes, probabilities.

Chang and Lin, "LIBSVM", 2011; probabilities of several classes are coupled as by Wu, Lin and Weng, 2004, algorithm 2.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.operator_table import ML, OperatorCall, operator
from tenon.onnx.operators.classical_ml_ops import class_labels, named_classes, transformed

LEAST_PROBABILITY = 1e-7
MAX_ITERATIONS = 100


def _floats(call: OperatorCall, name: str) -> Any:
    return np.array(call.get(name) or [], np.float32)


def _kernel(call: OperatorCall, x: Any, vectors: Any) -> Any:
    """The kernel of each row of x [N, F] with each vector [V, F]: [N, V]."""
    gamma, offset, degree = call.get("kernel_params") or (0.0, 0.0, 0.0)
    kind, other = call.get("kernel_type", "LINEAR"), tn.tensor(vectors)
    if kind == "RBF":
        return tn.exp(-gamma * tn.sum(tn.square(x[:, None] - other), axis=-1))
    product = tn.matmul(x, tn.transpose(other))
    if kind == "POLY":
        return tn.power(product * gamma + offset, int(degree))
    return tn.tanh(product * gamma + offset) if kind == "SIGMOID" else product


@operator("SVMRegressor", domain=ML)
def svm_regressor(call: OperatorCall, x: Any) -> Any:
    x, weights = tn.cast(x, tn.float32), _floats(call, "coefficients")
    supports = call.get("n_supports", 0)
    if supports:
        y = tn.matmul(_kernel(call, x, _floats(call, "support_vectors").reshape(supports, -1)), tn.tensor(weights))
    else:
        y = tn.matmul(x, tn.tensor(weights))
    y = y[:, None] + float(_floats(call, "rho")[0])
    return tn.where(y > 0, 1.0, -1.0) if call.get("one_class", 0) else transformed(call, y)


@operator("SVMClassifier", domain=ML)
def svm_classifier(call: OperatorCall, x: Any) -> Any:
    """Labels, by most votes of the pairs; and probabilities, or what each pair decides, or a score for each class."""
    x, labels = tn.cast(x, tn.float32), class_labels(call, "classlabels_ints")
    supported = call.get("vectors_per_class")
    if not supported:
        scores = tn.matmul(x, tn.tensor(_floats(call, "coefficients").reshape(len(labels), -1).T.copy()))
        scores = scores + float(_floats(call, "rho")[0])
        return named_classes(call, tn.argmax(scores, axis=-1), labels), transformed(call, scores)
    scores = _decisions(call, x, supported)
    chosen = tn.argmax(_votes(scores, len(supported)), axis=-1)
    if call.get("prob_a"):
        scores = _coupled(_of_pairs(call, scores, len(supported)))
    elif scores.shape[1] == 1:
        scores = tn.concat([-scores, scores], axis=1)
    return named_classes(call, chosen, labels), transformed(call, scores)


def _decisions(call: OperatorCall, x: Any, supported: Any) -> Any:
    """What each pair of classes decides, positive for the first: [N, pairs]."""
    ends = np.cumsum(supported)
    part = [slice(end - count, end) for end, count in zip(ends, supported, strict=True)]
    vectors = _floats(call, "support_vectors").reshape(ends[-1], -1)
    weights = _floats(call, "coefficients").reshape(len(supported) - 1, ends[-1])
    of_pairs = np.zeros((len(supported) * (len(supported) - 1) // 2, ends[-1]), np.float32)
    for row, (i, j) in zip(of_pairs, combinations(range(len(supported)), 2), strict=True):
        row[part[i]], row[part[j]] = weights[j - 1, part[i]], weights[i, part[j]]
    return tn.matmul(_kernel(call, x, vectors), tn.tensor(of_pairs.T.copy())) + tn.tensor(_floats(call, "rho"))


def _votes(decisions: Any, classes: int) -> Any:
    """How many pairs decide for each class: [N, classes]."""
    first, second = (np.eye(classes, dtype=np.float32)[list(k)] for k in zip(*combinations(range(classes), 2)))
    won = tn.cast(decisions > 0, tn.float32)
    return tn.matmul(won, tn.tensor(first)) + tn.matmul(1 - won, tn.tensor(second))


def _of_pairs(call: OperatorCall, decisions: Any, classes: int) -> Any:
    """The probability of class i where only i and j are possible: [N, i, j]."""
    first = 1 - tn.sigmoid(decisions * tn.tensor(_floats(call, "prob_a")) + tn.tensor(_floats(call, "prob_b")))
    first = tn.clip(first, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    nothing = tn.zeros_like(first[:, 0])
    place = {pair: k for k, pair in enumerate(combinations(range(classes), 2))}
    return tn.stack([tn.stack([first[:, place[i, j]] if i < j else 1 - first[:, place[j, i]] if j < i else nothing
                               for j in range(classes)], axis=-1) for i in range(classes)], axis=-2)


def _coupled(pairs: Any) -> Any:
    """The probabilities of the classes that agree best with those of pairs: [N, classes]."""
    classes = pairs.shape[-1]
    other = tn.transpose(pairs, (0, 2, 1))
    squares = tn.sum(tn.square(other), axis=-1)
    q = tn.tensor(np.eye(classes, dtype=np.float32)) * squares[..., None] - other * pairs

    def spread(p: Any) -> tuple[Any, Any, Any]:
        qp = tn.sum(q * p[:, None], axis=-1)
        total = tn.sum(p * qp, axis=-1)
        return qp, total, tn.max(tn.abs(qp - total[:, None]), axis=-1) >= 0.005 / classes

    def iteration(state: Any) -> Any:
        count, p = state
        qp, total, active = spread(p)
        old = p
        for k in range(classes):
            step = (total - qp[:, k]) / q[:, k, k]
            total = (total + step * (step * q[:, k, k] + 2 * qp[:, k])) / tn.square(1 + step)
            qp = (qp + step[:, None] * q[:, k]) / (1 + step)[:, None]
            p = (p + step[:, None] * tn.tensor(np.eye(classes, dtype=np.float32)[k])) / (1 + step)[:, None]
        return count + 1, tn.where(active[:, None], p, old)

    start = tn.full_like(squares, 1 / classes)
    limit = max(MAX_ITERATIONS, classes)
    return tn.while_loop(lambda s: (s[0] < limit) & tn.any(spread(s[1])[2]), iteration, (tn.tensor(0), start))[1]

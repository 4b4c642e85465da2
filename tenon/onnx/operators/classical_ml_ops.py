"""Classical machine learning, the domain ai.onnx.ml: trees, linear models, encoders."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import Known, as_tensor
from tenon.onnx.operator_table import ML, OperatorCall, operator


@operator("Binarizer", domain=ML)
def binarizer(call: OperatorCall, x: Any) -> Any:
    return tn.cast(x > call.get("threshold", 0.0), x.dtype)


def _listed(call: OperatorCall, prefix: str) -> Any:
    """An attribute that is a list of text, of integers, of floats, or a tensor."""
    for kind in ("strings", "int64s", "floats", "tensor"):
        found = call.get(f"{prefix}_{kind}")
        if found is not None:
            return found.array if isinstance(found, Known) else \
                np.array(found, {"strings": object, "int64s": np.int64, "floats": np.float32}[kind])
    return None


@operator("LabelEncoder", domain=ML, host=True)
def label_encoder(call: OperatorCall, x: Any) -> Any:
    """Keys to values; what is no key has the default."""
    if call.opset < 2:
        names = call.need("classes_strings")
        keys, values = (np.array(names, object), np.arange(len(names))) if x.dtype.kind in "OUS" \
            else (np.arange(len(names)), np.array(names, object))
    else:
        keys, values = _listed(call, "keys"), _listed(call, "values")
    default = call.get("default_tensor")
    if default is not None:
        default = default.array.reshape(-1)[0]
    else:
        default = {"O": call.get("default_string", "_Unused"), "i": call.get("default_int64", -1),
                   "f": call.get("default_float", -0.0)}[values.dtype.kind]
    table = {_key(k): v for k, v in zip(keys.tolist(), values.tolist())}
    found = np.empty(x.size, values.dtype)
    for k, key in enumerate(x.reshape(-1).tolist()):
        found[k] = table.get(_key(key), default)
    return found.reshape(x.shape)


def _key(x: Any) -> Any:
    return "nan" if isinstance(x, float) and x != x else x.decode() if isinstance(x, bytes) else x


@operator("Scaler", domain=ML)
def scaler(call: OperatorCall, x: Any) -> Any:
    offset, scale = (np.array(call.get(n, [d]), np.float32) for n, d in (("offset", 0.0), ("scale", 1.0)))
    return (tn.cast(x, tn.float32) - tn.tensor(offset)) * tn.tensor(scale)


@operator("Normalizer", domain=ML)
def normalizer(call: OperatorCall, x: Any) -> Any:
    x, kind = tn.cast(x, tn.float32), call.get("norm", "MAX")
    size = tn.abs(x)
    norm = tn.max(size, axis=-1, keepdims=True) if kind == "MAX" else tn.sum(size, axis=-1, keepdims=True) \
        if kind == "L1" else tn.sqrt(tn.sum(x * x, axis=-1, keepdims=True))
    return x / tn.where(norm == 0, 1.0, norm)


@operator("Imputer", domain=ML)
def imputer(call: OperatorCall, x: Any) -> Any:
    whole = not x.dtype.is_floating
    values = call.get("imputed_value_int64s" if whole else "imputed_value_floats")
    replaced = call.get("replaced_value_int64" if whole else "replaced_value_float", 0)
    missing = tn.isnan(x) if replaced != replaced else x == replaced
    return tn.where(missing, tn.tensor(np.array(values, x.dtype.numpy)), x)


@operator("OneHotEncoder", domain=ML, host=True)
def one_hot_encoder(call: OperatorCall, x: Any) -> Any:
    labels = call.get("cats_strings") if x.dtype.kind in "OUS" else call.get("cats_int64s")
    table = {label: k for k, label in enumerate(labels)}
    found = np.zeros((x.size, len(labels)), np.float32)
    for k, value in enumerate(x.reshape(-1).tolist()):
        place = table.get(value if isinstance(value, str) else int(value))
        if place is not None:
            found[k, place] = 1
        elif not call.get("zeros", 1):
            raise ShapeError(f"{call.step.label}: {value!r} is none of its categories")
    return found.reshape(*x.shape, len(labels))


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: OperatorCall, *xs: Any) -> Any:
    return tn.concat([tn.cast(x.reshape(1, -1) if x.ndim == 1 else x, tn.float32) for x in xs], axis=-1)


def transformed(call: OperatorCall, x: Any) -> Any:
    """Scores after the transformation that the node names."""
    kind = call.get("post_transform", "NONE")
    kind = kind if isinstance(kind, str) else ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[kind]
    if kind == "NONE":
        return x
    if kind == "SOFTMAX":
        return tn.softmax(x, axis=-1)
    if kind == "LOGISTIC":
        return tn.sigmoid(x)
    if kind == "SOFTMAX_ZERO":
        return tn.where(x == 0, 0.0, tn.softmax(tn.where(x == 0, -np.inf, x), axis=-1))
    return tn.ndtri(x)


@operator("LinearRegressor", domain=ML)
def linear_regressor(call: OperatorCall, x: Any) -> Any:
    targets = call.get("targets", 1)
    weights = np.array(call.need("coefficients"), np.float32).reshape(targets, -1)
    y = tn.matmul(tn.cast(x.reshape(-1, weights.shape[1]), tn.float32), tn.tensor(weights.T.copy()))
    bias = call.get("intercepts")
    return transformed(call, y if bias is None else y + tn.tensor(np.array(bias, np.float32)))


@operator("LinearClassifier", domain=ML)
def linear_classifier(call: OperatorCall, x: Any) -> Any:
    """Labels, and the scores of all classes; one row of coefficients decides between two."""
    labels, bias = class_labels(call, "classlabels_ints"), np.array(call.get("intercepts", [0.0]), np.float32)
    weights = np.array(call.need("coefficients"), np.float32).reshape(len(bias), -1)
    scores = tn.matmul(tn.cast(x.reshape(-1, weights.shape[1]), tn.float32), tn.tensor(weights.T.copy()))
    scores = scores + tn.tensor(bias)
    if len(bias) == 1 and len(labels) == 2:
        chosen = tn.cast(scores[:, 0] > 0, tn.int64)
        scores = tn.concat([-scores, scores], axis=1)
    else:
        chosen = tn.argmax(scores, axis=-1)
    return named_classes(call, chosen, labels), transformed(call, scores)


def class_labels(call: OperatorCall, name: str) -> Any:
    words = call.get("classlabels_strings")
    return np.array(words, object) if words else np.array(call.get(name, [0, 1]), np.int64)


def named_classes(call: OperatorCall, places: Any, labels: Any) -> Any:
    """Classes by their labels; text is looked up on the host."""
    if labels.dtype.kind == "O":
        return labels[places.numpy()]
    return tn.take(tn.tensor(labels), places, axis=0)


@operator("ZipMap", domain=ML, raw=True)
def zip_map(call: OperatorCall, x: Any) -> Any:
    """The scores of each class by its label; the model gives a dictionary for each row."""
    labels = call.get("classlabels_strings") or call.get("classlabels_int64s")
    scores = as_tensor(x)
    if not labels or scores.shape[-1] != len(labels):
        raise ShapeError(f"{call.step.label}: scores of shape {list(scores.shape)} for {len(labels or ())} labels")
    return {_key(label): scores.reshape(-1, len(labels))[:, k] for k, label in enumerate(labels)}


class Forest:
    """Trees as one table of nodes: leaves point to themselves, so that all rows may go down equally often."""

    def __init__(self, feature: Any, split: Any, mode: Any, yes: Any, no: Any, missing: Any, roots: Any):
        self.feature, self.split, self.mode, self.yes, self.no = feature, split, mode, yes, no
        self.missing, self.roots = missing, roots
        self.depth = self._depth()

    def _depth(self) -> int:
        level, depth = set(self.roots.tolist()), 0
        while any(self.yes[k] != k for k in level):
            level = {int(n) for k in level for n in (self.yes[k], self.no[k])}
            depth += 1
            if depth > len(self.yes):
                raise ShapeError("a tree's nodes form a cycle")
        return depth

    def leaves(self, x: Any) -> Any:
        """The leaf of each row [N, F] in each tree: [N, T]."""
        columns = {n: tn.tensor(np.asarray(v)) for n, v in vars(self).items() if n not in ("roots", "depth")}
        at = tn.broadcast_to(tn.tensor(self.roots), (x.shape[0], len(self.roots)))
        modes = sorted(set(self.mode.tolist()))
        for _ in range(self.depth):
            value = tn.take_along_axis(x, tn.take(columns["feature"], at, axis=0), axis=1)
            limit, mode = tn.take(columns["split"], at, axis=0), tn.take(columns["mode"], at, axis=0)
            goes = tn.zeros(at.shape, dtype=tn.bool)
            for m in modes:
                goes = tn.where(mode == m, COMPARISONS[m](value, limit), goes)
            goes = goes | (tn.isnan(value) & tn.take(columns["missing"], at, axis=0))
            at = tn.where(goes, tn.take(columns["yes"], at, axis=0), tn.take(columns["no"], at, axis=0))
        return at


COMPARISONS = [tn.less_equal, tn.less, tn.greater_equal, tn.greater, tn.equal, tn.not_equal]
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@operator("TreeEnsemble", domain=ML)
def tree_ensemble(call: OperatorCall, x: Any) -> Any:
    """The leaves that each row comes to, added up (or their mean, least, largest) target by target."""
    splits, weights = call.need("nodes_splits").array, call.need("leaf_weights").array
    modes = call.need("nodes_modes").array.astype(np.int64)
    if (modes > 5).any():
        raise call.unsupported("nodes that ask for membership of a set") if not call.get("membership_values") \
            else _members(call)
    n, leaves = len(splits), len(weights)
    own = np.arange(n, n + leaves)

    def to(ids: str, are_leaves: str) -> Any:
        places = np.array(call.need(ids), np.int64)
        return np.concatenate([places + n * np.array(call.need(are_leaves), np.int64), own])
    zeros = np.zeros(leaves, np.int64)
    missing = np.array(call.get("nodes_missing_value_tracks_true") or [0] * n, bool)
    forest = Forest(np.concatenate([np.array(call.need("nodes_featureids"), np.int64), zeros]),
                    np.concatenate([splits, zeros.astype(splits.dtype)]), np.concatenate([modes, zeros]),
                    to("nodes_truenodeids", "nodes_trueleafs"), to("nodes_falsenodeids", "nodes_falseleafs"),
                    np.concatenate([missing, zeros.astype(bool)]),
                    np.array(call.need("tree_roots"), np.int64) if n > 1 or leaves > 1 else own[:1])
    targets = np.array(call.need("leaf_targetids"), np.int64)
    table = np.full((n + leaves, call.get("n_targets", 1)), np.nan, weights.dtype)
    table[own, targets] = weights
    return transformed(call, _aggregated(call, forest.leaves(x), table, len(forest.roots)))


def _members(call: OperatorCall) -> Any:
    return call.unsupported("nodes that ask for membership of a set")


def _aggregated(call: OperatorCall, leaves: Any, table: Any, trees: int) -> Any:
    """Weights [places, targets] of the leaves [N, T] -> [N, targets]; NaN stands for none."""
    how = call.get("aggregate_function", 1)
    how = how if isinstance(how, str) else ("AVERAGE", "SUM", "MIN", "MAX")[how]
    found = tn.take(tn.tensor(table), leaves, axis=0)
    if how in ("SUM", "AVERAGE"):
        total = tn.sum(tn.where(tn.isnan(found), 0.0, found), axis=1)
        return total / trees if how == "AVERAGE" else total
    edge = np.inf if how == "MIN" else -np.inf
    found = tn.where(tn.isnan(found), edge, found)
    return tn.min(found, axis=1) if how == "MIN" else tn.max(found, axis=1)


def _old_forest(call: OperatorCall, prefix: str, targets: int) -> tuple[Forest, Any]:
    """Trees as versions before 5 say them, and the weights of the leaves."""
    trees, nodes = (np.array(call.need(n)) for n in ("nodes_treeids", "nodes_nodeids"))
    place = {pair: k for k, pair in enumerate(zip(trees.tolist(), nodes.tolist()))}
    names = call.need("nodes_modes")
    leaf = np.array([m == "LEAF" for m in names])
    own = np.arange(len(names))

    def to(name: str) -> Any:
        ids = call.need(name)
        return np.array([k if leaf[k] else place[trees[k].item(), ids[k]] for k in own], np.int64)
    yes, no = to("nodes_truenodeids"), to("nodes_falsenodeids")
    inner = {int(n) for k in own if not leaf[k] for n in (yes[k], no[k])}
    missing = np.array(call.get("nodes_missing_value_tracks_true") or [0] * len(own), bool)
    forest = Forest(np.array(call.need("nodes_featureids"), np.int64), np.array(call.need("nodes_values"), np.float32),
                    np.array([0 if m == "LEAF" else MODES.index(m) for m in names], np.int64), yes, no, missing,
                    np.array([k for k in own if int(k) not in inner], np.int64))
    table = np.full((len(own), targets), np.nan, np.float32)
    for tree, node, target, weight in zip(*(call.need(f"{prefix}_{n}") for n in ("treeids", "nodeids", "ids",
                                                                                 "weights"))):
        at = place[tree, node]
        table[at, target] = weight + (0 if np.isnan(table[at, target]) else table[at, target])
    return forest, table


@operator("TreeEnsembleRegressor", domain=ML)
def tree_regressor(call: OperatorCall, x: Any) -> Any:
    forest, table = _old_forest(call, "target", call.get("n_targets", 1))
    y = _aggregated(call, forest.leaves(tn.cast(x, tn.float32)), table, len(forest.roots))
    base = call.get("base_values")
    return transformed(call, y if base is None else y + tn.tensor(np.array(base, np.float32)))


@operator("TreeEnsembleClassifier", domain=ML)
def tree_classifier(call: OperatorCall, x: Any) -> Any:
    """Labels and scores; with weights for one class only, that is the second of two."""
    labels = class_labels(call, "classlabels_int64s")
    forest, table = _old_forest(call, "class", len(labels))
    scores = _aggregated(call, forest.leaves(tn.cast(x, tn.float32)), table, len(forest.roots))
    base = call.get("base_values")
    if base is not None and len(base) == len(labels):
        scores = scores + tn.tensor(np.array(base, np.float32))
    if len(labels) == 2 and len(set(call.need("class_ids"))) == 1:
        one = scores[:, call.need("class_ids")[0]] + (base[0] if base is not None and len(base) == 1 else 0.0)
        logistic = call.get("post_transform", "NONE") == "LOGISTIC"
        one = tn.sigmoid(one) if logistic else one
        scores = tn.stack([1 - one, one], axis=1)
        return named_classes(call, tn.cast(one > 0.5, tn.int64), labels), scores
    return named_classes(call, tn.argmax(scores, axis=-1), labels), transformed(call, scores)

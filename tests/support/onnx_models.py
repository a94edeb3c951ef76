"""Small ONNX models of images."""

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT
_OPSET = 17


def save(path: Path, shape: list[Any], nodes: list[Any], *, kind: int = FLOAT, **extra: Any) -> Path:
    """Save a model from ``x``, of this shape and type, to ``y``."""
    given = [helper.make_tensor_value_info("x", kind, shape)]
    names = extra.pop("outputs", ["y"])
    found = [helper.make_tensor_value_info(name, extra.pop("output_kind", FLOAT), None) for name in names]
    graph = helper.make_graph(nodes, "model", given, found, **extra)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)
    onnx.save(model, str(path))
    return path


def input_itself(path: Path, shape: list[Any], *, kind: int = FLOAT) -> Path:
    """A model whose values are its input's, flat: a vector."""
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("Cast", ["flat"], ["y"], to=FLOAT)]
    return save(path, shape, nodes, kind=kind)


def channel_means(path: Path, *, batch: Any = "N", size: int = 8) -> Path:
    """A model whose values are the means of the channels of (N, 3, size, size): a vector of three."""
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    return save(path, [batch, 3, size, size], nodes)


def mean(path: Path) -> Path:
    """A model whose value is the mean of an image of 8 x 8: one number."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1, 2, 3], keepdims=0)]
    return save(path, ["N", 3, 8, 8], nodes)


def with_weights_elsewhere(path: Path) -> Path:
    """A model whose weights are in another file, ``weights.bin``."""
    weights = helper.make_tensor("w", FLOAT, [192, 4], b"\0" * (192 * 4 * 4), raw=True)
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    save(path, ["N", 3, 8, 8], nodes, initializer=[weights])
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path

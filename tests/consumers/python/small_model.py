# SPDX-License-Identifier: Apache-2.0
"""The model that the tests of ONNX Runtime run."""
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN = 512


def model():
    """Two convolutions' worth of a small network, with a batch that varies; as bytes."""
    weights = {"kernel": (8, 4, 3, 3), "inner": (8 * 14 * 14, HIDDEN), "outer": (HIDDEN, 10)}
    nodes = [helper.make_node("Conv", ["x", "kernel"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Flatten", ["b"], ["c"]), helper.make_node("MatMul", ["c", "inner"], ["d"]),
             helper.make_node("Relu", ["d"], ["e"]), helper.make_node("MatMul", ["e", "outer"], ["y"])]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(numpy.ones(shape, "f"), name) for name, shape in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                             ir_version=8).SerializeToString()

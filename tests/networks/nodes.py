"""Nodes of a model in the making."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["CONTRIB", "QONNX", "Nodes"]

QONNX = "qonnx.custom_op.general"
CONTRIB = "com.microsoft"


class Nodes:
    """Nodes and initializers, with names made up where none are given."""

    def __init__(self, opset):
        self.opset = opset
        self.nodes = []
        self.initializers = []
        self._count = 0

    def name(self, stem):
        """A name that nothing else has."""
        self._count += 1
        return f"{stem}_{self._count}"

    def op(self, kind, *inputs, domain="", output=None, **attributes):
        """Append a node; returns its output."""
        output = output or self.name(kind)
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}/{output}", domain=domain,
                                           **attributes))
        return output

    def constant(self, array, *, stem="c", data_type=None):
        """Append an initializer; returns its name. ``data_type`` packs small integers."""
        name = self.name(stem)
        array = np.asarray(array)
        if data_type is None:
            tensor = numpy_helper.from_array(array, name)
        else:
            tensor = helper.make_tensor(name, data_type, array.shape, array.reshape(-1))
        self.initializers.append(tensor)
        return name

    def real(self, value):
        """A float32 constant."""
        return self.constant(np.asarray(value, np.float32))

    def integers(self, values):
        """An int64 constant: shapes, axes."""
        return self.constant(np.asarray(values, np.int64))

    def rename_output(self, old, new):
        """Give an output of the last node its final name."""
        outputs = list(self.nodes[-1].output)
        self.nodes[-1].output[:] = [new if name == old else name for name in outputs]
        assert new in self.nodes[-1].output
        return new

    def model(self, inputs, outputs):
        """The model; inputs and outputs are (name, data type, shape)."""
        graph = helper.make_graph(
            self.nodes, "network", [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(*value) for value in outputs], self.initializers)
        domains = {"": self.opset} | {node.domain: 1 for node in self.nodes if node.domain}
        return helper.make_model(graph, ir_version=13 if self.opset > 24 else 10, producer_name="almac tests",
                                 opset_imports=[onnx.helper.make_opsetid(*entry) for entry in domains.items()])

"""What a quantizer makes of a tensor that has been waiting for it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from almac.compiler.builder import Builder, bipolar_of, requantized
from almac.compiler.elementwise import add, multiply, sign_table, tables
from almac.compiler.graph import ChannelTable, Concat, Table, Value
from almac.compiler.linear import Linear
from almac.compiler.onnx_model import Model
from almac.compiler.states import Chain, Codes, Joined, Moved, Product, State, Sum

__all__ = ["close"]


def close(graph: Builder, model: Model, states: Mapping[str, State], state: State, value: Value, name: str,
          source: str, *, bipolar: bool = False) -> str:
    """Emit the ops that make ``state`` codes of ``value``, without its shape, called ``name``; their name.

    ``name`` is not needed where the codes exist already. With ``bipolar`` the codes are signs.
    """
    common: dict[str, Any] = {"output": name, "source": source}
    match state:
        case Linear():
            acc = graph.close(state)
            op = bipolar_of(state, acc, common) if bipolar else requantized(state, acc, value, common)
            graph.emit(op, replace(value, shape=state.shape))
        case Sum(a=a):
            graph.emit(add(state, value, common), replace(value, shape=graph.values[a.name].shape))
        case Product(a=a):
            graph.emit(multiply(state, value, common), replace(value, shape=graph.values[a.name].shape))
        case Codes() | Chain():
            codes = state if isinstance(state, Codes) else state.codes
            constants = {key: array for key, array in states.items() if isinstance(array, np.ndarray)}
            shape = graph.values[codes.name].shape
            results, steps = (sign_table if bipolar else tables)(state, value, model, constants, shape[0])
            table: Table | ChannelTable
            if results.ndim == 1:
                table = Table(inputs=(codes.name,), **common, table=tuple(int(code) for code in results),
                              steps=tuple(float(step) for step in steps))
            else:
                table = ChannelTable(inputs=(codes.name,), **common, tables=results, steps=steps)
            graph.emit(table, replace(value, shape=shape))
        case Joined(parts=parts, axis=axis):
            names = []
            for k, part in enumerate(parts):
                same = isinstance(part, Codes) and part.is_value(value)
                names.append(part.name if same else close(graph, model, states, part, value, f"{name}/{k}", source))
            shapes = [graph.values[part].shape for part in names]
            joined = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1:])
            graph.emit(Concat(inputs=tuple(names), output=name, source=source, axis=axis),
                       replace(value, shape=joined))
        case Moved(state=inner, motion=motion):
            before = close(graph, model, states, inner, value, f"{name}/before", source)
            move = motion.of_codes(value.scale, value.zero_point)
            graph.move(before, name, move, motion.node.name, motion.node.op)
    return name

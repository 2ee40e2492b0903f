"""What the host computes: nodes on real tensors, each a small ONNX model of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from almac.compiler.builder import Builder, dequantized
from almac.compiler.graph import CompileError, Host, Value
from almac.compiler.linear import Linear
from almac.compiler.messages import GENERIC, shape_text
from almac.compiler.onnx_model import Model, Node
from almac.compiler.onnx_run import MOST_ELEMENTS, check_model, node_model, run_model
from almac.compiler.states import Codes, Real, State, Weight

__all__ = ["HostWork"]

#: Nodes whose shapes inference does not know are asked, up to this size of their inputs.
_MOST_TRIED = 1 << 22

#: Opset of the operators that other spellings are rewritten to.
_NEW_OPSET = 21


class HostWork:
    """Makes real tensors of whatever the walk has, on demand.

    Parameters
    ----------
    model : Model
    states : dict[str, State]
        Of the tensors walked over so far; shared with the importer.
    graph : Builder
    """

    def __init__(self, model: Model, states: Mapping[str, State], graph: Builder) -> None:
        self._model = model
        self._states = states
        self._graph = graph
        self._producers = {name: node for node in model.nodes for name in node.outputs}
        self._values: dict[str, str] = {}

    def lower(self, node: Node, inputs: Sequence[State], reason: str) -> list[Real]:
        """Outputs of a node that the array does not compute, for ``reason``; empty if a later node is to blame.

        Raises
        ------
        CompileError
            If nobody can compute it.
        """
        try:
            return self._lower(node, inputs, reason)
        except CompileError as error:
            # An array's view of a node that is not valid is the clearer one.
            raise CompileError(reason if reason and reason != GENERIC else str(error)) from None

    def _lower(self, node: Node, inputs: Sequence[State], reason: str) -> list[Real]:
        if node.declined or "." in node.op:
            raise CompileError(node.declined or reason)
        known = self._model.opset
        if not onnx.defs.has(node.op, max_inclusive_version=known):
            if not onnx.defs.has(node.op, max_inclusive_version=_NEW_OPSET):
                raise CompileError(f"does not exist in opset {known}")
            known = _NEW_OPSET
        given: dict[str, str] = {}
        constants: dict[str, np.ndarray] = {}
        for name, state in zip(node.inputs, inputs, strict=True):
            match state:
                case np.ndarray():
                    constants[name] = state
                case Weight():
                    constants[name] = state.real()
                case None:
                    if name:
                        raise CompileError(f"reads {name!r}, which nothing makes")
                case _:
                    given[name] = self.real(name)
        if not given:
            raise CompileError(reason)
        return [self._emit(node, [node.proto], known, given, constants, name, reason) if name else Real(
            name="", dtype=np.dtype(np.float32), shape=()) for name in node.outputs]

    def real(self, name: str) -> str:
        """Value of the graph that holds the tensor ``name`` as the model has it."""
        waiting, opened = [name], set()
        # What it is made of comes first, by a stack of its own: a model may be deeper than Python's.
        while waiting:
            last = waiting[-1]
            before = [] if last in opened else [key for key in self._reads(last) if key not in self._values]
            opened.add(last)
            waiting += before
            if not before:
                waiting.pop()
                if last not in self._values:
                    self._values[last] = self._make(last, self._states[last])
        return self._values[name]

    def _reads(self, name: str) -> list[str]:
        """Tensors that must be real before the tensor ``name`` is."""
        match self._states[name]:
            case Real(moves=()) | Codes() | Linear(counts=None, rounding=""):
                return []
        return [key for key in self._producers[name].inputs
                if key and not isinstance(self._states.get(key), np.ndarray | Weight | None)]

    def copy(self, name: str) -> str:
        """Value that holds the tensor ``name`` once more."""
        node = self._producers[name]
        identity = helper.make_node("Identity", [name], [f"{name}/copy"])
        return self._emit(node, [identity], self._model.opset, {name: self.real(name)}, {}, f"{name}/copy",
                          "", self._graph.values[self.real(name)].shape).name

    def sign(self, node: Node, shape: tuple[int, ...], scale: float) -> Real:
        """``scale`` where the input is not below zero, else its negative."""
        below, name = f"{node.name}/below", f"{node.outputs[0]}/real"
        nodes = [helper.make_node("Less", [node.inputs[0], "zero"], [below]),
                 helper.make_node("Where", [below, "low", "high"], [name])]
        constants = {"zero": np.float32(0), "low": np.float32(-scale), "high": np.float32(scale)}
        return self._emit(node, nodes, max(self._model.opset, 9), {node.inputs[0]: self.real(node.inputs[0])},
                          {key: np.array(number) for key, number in constants.items()}, name, "", shape)

    def where(self, node: Node) -> str:
        """A node, as messages name it."""
        shapes = []
        for name in (*node.inputs[:1], *node.outputs[:1]):
            info = self._model.tensors.get(name)
            shapes.append("?" if info is None else shape_text(info.shape))
        return f"node {node.name!r} ({node.op}, opset {self._model.opset}, {' to '.join(shapes)})"

    def _make(self, name: str, state: State) -> str:
        match state:
            case Real(name=value, moves=()):
                return value
            case Codes():
                source, shape = state.name, self._graph.values[state.name].shape
            case Linear(counts=None, rounding=""):
                source, shape = self._graph.close(state), state.shape
            case _:
                maker = self._producers[name]
                inputs = [self._states.get(key) if key else None for key in maker.inputs]
                results = self.lower(maker, inputs, "")
                return results[maker.outputs.index(name)].name
        value = self._free(f"{name}/real")
        if isinstance(state, Codes) and not state.real:
            self._dtypes[value] = np.dtype(np.uint8 if state.unsigned else np.int8)
        node = self._producers.get(name)
        self._graph.emit(dequantized(source, value, state, node.name if node else ""),
                         Value(shape=shape, kind="real"))
        return value

    def _emit(self, node: Node, nodes: Sequence[onnx.NodeProto], opset: int, given: Mapping[str, str],
              constants: Mapping[str, np.ndarray], name: str, reason: str,
              shape: tuple[int, ...] | None = None) -> Real:
        args = [self._zeros(value) for value in given.values()]
        model = node_model(nodes, opset, {key: arg.dtype for key, arg in zip(given, args, strict=True)}, constants,
                           name)
        info = self._model.tensors.get(name)
        sizes: tuple[int | None, ...] = info.shape if info else (None,) if shape is None else (1, *shape)
        if any(arg.dtype != np.float32 for arg in args):
            # Shapes can be inferred of operators that do not take these types.
            check_model(model)
        if any(size is None for size in sizes):
            if sum(arg.size for arg in args) > _MOST_TRIED:
                raise CompileError("makes a tensor of unknown shape")
            # Zeros without memory of their own become real ones.
            got = run_model(model, [np.ascontiguousarray(arg) for arg in args])
            sizes, dtype = got.shape, got.dtype
        else:
            dtype = info.dtype if info else np.dtype(np.float32)
        full = tuple(int(size or 0) for size in sizes)
        if self._model.batch > 1 and full[:1] == (self._model.batch,):
            raise CompileError(f"holds the batch of {self._model.batch}, while the model computes one image at a "
                               "time; make the batch symbolic")
        if 0 in full[1:]:
            raise CompileError(f"makes an empty tensor, of the shape {list(full)}")
        if np.prod(full, dtype=object) > MOST_ELEMENTS:
            raise CompileError(f"makes a tensor of the shape {list(full)}; supported: {MOST_ELEMENTS} elements")
        value = name if name not in self._graph.values else self._free(f"{name}/real")
        self._graph.emit(Host(inputs=tuple(given.values()), output=value, source=node.name, model=model,
                              kind=node.op, reason=reason, opset=self._model.opset),
                         Value(shape=full[1:], kind="real", leading=full[0] if full else 0))
        self._dtypes[value] = dtype
        self._values[name] = value
        return Real(name=value, dtype=dtype, shape=full[1:])

    def _free(self, name: str) -> str:
        """A name that no value and no tensor of the model has."""
        while name in self._graph.values or name in self._producers:
            name = f"{name}/real"
        return name

    @property
    def _dtypes(self) -> dict[str, np.dtype[Any]]:
        return self._graph.dtypes

    def _zeros(self, value: str) -> np.ndarray:
        """Zeros of the type and shape that a value has, without memory."""
        known = self._graph.values[value]
        sizes = (known.leading, *known.shape) if known.leading else ()
        return np.broadcast_to(np.zeros((), self._dtypes.get(value, np.dtype(np.float32))), sizes)

"""Where the quantizers of a float model go.

Walks the nodes once. A tensor becomes codes when an operator of the array wants to read it; what the array
computes between two quantizers (a linear operator and its epilogue, a chain of functions of one tensor) is left in
one piece, and what stays on the host gets none.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from almac.compiler.float_model import FloatModel
from almac.compiler.float_nodes import AVERAGES, LINEAR, PASS, constant_width, has_weights, is_layout, is_spatial
from almac.compiler.onnx_model import Node
from almac.compiler.operators import FUNCTIONS

__all__ = ["Edge", "Placement", "place"]

#: Layout operators that keep every element: behind an exact result, a host may do them.
_VIEWS = {"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}

#: Operators that join two tensors with one rounding.
_PAIRS = {"Add", "Mul", "Sub"}

#: Operators that ask for the shape alone.
_ASKING = {"Shape", "Size"}

#: Position of a node, and of one of its inputs.
Edge: TypeAlias = tuple[int, int]


@dataclass(kw_only=True, eq=False)
class Placement:
    """Where quantizers go.

    Attributes
    ----------
    ranges : dict[str, str]
        Tensors that are quantized, and the one whose range each of them takes: itself, or what has been moved.
    edges : set[Edge]
        Inputs of nodes that read the dequantized tensor.
    linear : set[int]
        Nodes whose weights are quantized.
    """

    ranges: dict[str, str] = field(default_factory=dict)
    edges: set[Edge] = field(default_factory=set)
    linear: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Host:
    """An input of the model, or what the host computes."""


@dataclass(frozen=True)
class _Joined:
    """Concatenated tensors."""


@dataclass(frozen=True, kw_only=True)
class _Open:
    """Sums with more of their epilogue to come: of products, if ``linear``, or of two tensors.

    ``axis`` is that of the channels.
    """

    linear: bool = True
    limited: bool = False
    axis: int = 1


@dataclass(frozen=True)
class _Function:
    """A function of the quantized tensor ``root``."""

    root: str


@dataclass(frozen=True)
class _Layout:
    """The elements of ``source`` elsewhere, moved by the node at ``index``."""

    source: str
    index: int
    view: bool


_State: TypeAlias = _Host | _Joined | _Open | _Function | _Layout


def place(model: FloatModel) -> Placement:
    """Quantizers for everything that the array computes."""
    return _Walk(model).run()


class _Walk:
    """State of one walk over a model."""

    def __init__(self, model: FloatModel) -> None:
        self.model = model
        self.constants = model.constants
        # Who only asks for the shape of a tensor reads none of it.
        self.readers = Counter(name for node in model.nodes for name in node.inputs if node.op not in _ASKING)
        self.readers.update(info.name for info in model.model.outputs)
        self.states: dict[str, _State] = {info.name: _Host() for info in model.model.inputs}
        self.result = Placement()

    def run(self) -> Placement:
        for index, node in enumerate(self.model.nodes):
            data = [(index, k) for k, name in enumerate(node.inputs) if name and name not in self.constants]
            state = self._state(index, node, data)
            if state is None:
                for edge in data:
                    if node.op not in _ASKING and not self._is_exact(self._name(edge)):
                        self._read(edge)
                state = _Host()
            self.states.update(dict.fromkeys(filter(None, node.outputs), state))
        for info in self.model.model.outputs:
            if info.name in self.states and not self._is_exact(info.name):
                self._quantize(info.name)
        self.result.edges |= {(index, 0) for index, node in enumerate(self.model.nodes)
                              if node.op in _ASKING and node.inputs[0] in self.result.ranges}
        return self.result

    def _state(self, index: int, node: Node, data: list[Edge]) -> _State | None:
        """State of what the array makes of a node, or None if that is for the host."""
        # The array makes no masks, indices or statistics.
        if not data or (node.op != "Split" and any(self.readers[name] for name in node.outputs[1:] if name)):
            return None
        first = data[0] == (index, 0)
        match node.op:
            case op if op in LINEAR and first and has_weights(self.model, node):
                self.result.linear.add(index)
                self._read(data[0])
                return _Open(axis=max(self.model.rank(node.outputs[0]) - 1, 1) if op == "MatMul" else 1)
            case op if op in AVERAGES and first and is_spatial(self.model, node):
                self._read(data[0])
                return _Open()
            case op if first and is_layout(self.model, node):
                return self._moved(index, node)
            case "Concat" if len(data) == len(node.inputs) and not all(map(self._is_host, map(self._name, data))):
                for edge in data:
                    self._read(edge)
                return _Joined()
            case op if op in {*FUNCTIONS, "BatchNormalization"}:
                return self._elementwise(node, data)
        return None

    # What a node makes.

    def _continues(self, node: Node, state: _Open) -> _Open | None:
        """The open sum after one more node of its epilogue."""
        if node.op == "Relu" or (node.op == "Clip" and all(
                name in self.constants for name in node.inputs[1:] if name)):
            return replace(state, limited=True)
        if node.op in PASS:
            return state
        if not state.linear or state.limited:
            return None
        if node.op == "BatchNormalization":
            return state if state.axis == 1 else None
        affine = node.op in ("Add", "Mul") or (node.op in ("Div", "Sub") and node.inputs[0] not in self.constants)
        return state if affine and constant_width(self.model, node, state.axis) else None

    def _moved(self, index: int, node: Node) -> _State:
        name = node.inputs[0]
        state = self.states[name]
        goes_on = isinstance(state, _Function) or (isinstance(state, _Open) and self.readers[name] == 1)
        if node.op in PASS and goes_on:
            return state
        return _Layout(name, index, node.op in _VIEWS or node.op in PASS)

    def _elementwise(self, node: Node, data: list[Edge]) -> _State | None:
        names = [self._name(edge) for edge in data]
        if all(map(self._is_host, names)):
            return None
        state = self.states[names[0]]
        if len(data) == 1 and isinstance(state, _Open) and self.readers[names[0]] == 1:
            following = self._continues(node, state)
            if following is not None:
                return following
        roots = {self._root(name) for name in names}
        if len(roots) > 1:
            if node.op not in _PAIRS:
                return None
            for edge in data:
                self._read(edge)
            return _Open(linear=False)
        # Factors of channels are a linear operator of their own; in the middle of a chain they are a part of it.
        normalizes = node.op == "BatchNormalization"
        width = 2 if normalizes else constant_width(self.model, node, 1)
        following = self._continues(node, _Open()) if len(data) == 1 else None
        if width == 2 and following is not None and (normalizes or not isinstance(state, _Function)):
            self._read(data[0])
            return following
        if not width or normalizes:
            return None
        for edge in data:
            if self._name(edge) in roots:
                self._read(edge)
        return _Function(roots.pop())

    # What is known of tensors.

    def _name(self, edge: Edge) -> str:
        return self.model.nodes[edge[0]].inputs[edge[1]]

    def _root(self, name: str) -> str:
        state = self.states[name]
        return state.root if isinstance(state, _Function) else name

    def _is_host(self, name: str) -> bool:
        match self.states[name]:
            case _Layout(source=source):
                return self._is_host(source)
            case state:
                return isinstance(state, _Host)

    def _is_exact(self, name: str) -> bool:
        """Whether the host has a tensor, or can be given it without a quantizer."""
        match self.states[name]:
            case _Layout(source=source, view=view):
                return self._is_exact(source) if view else self._is_host(source)
            case _Open(linear=linear, limited=limited):
                return linear and not limited
            case state:
                return isinstance(state, _Host)

    # Quantizers.

    def _read(self, edge: Edge) -> None:
        """Let the array read an input of a node."""
        self.result.edges.add(edge)
        self._quantize(self._name(edge))

    def _quantize(self, name: str) -> str:
        """Quantize a tensor; the one whose range it takes."""
        if name not in self.result.ranges:
            state = self.states[name]
            if isinstance(state, _Layout):
                self.result.edges.add((state.index, 0))
                self.result.ranges[name] = self._quantize(state.source)
            else:
                self.result.ranges[name] = name
        return self.result.ranges[name]

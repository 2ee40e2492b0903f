"""Damage: to the bytes of a file, and to a model that protobuf still reads."""

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["damage_bytes", "damage_model"]

_EXTREMES = (0, 1, -1, 2, 3, 7, 255, 2**16, 10**6, 10**9, 2**31 - 1, 2**31, -2**31, 2**40, 10**12, 2**63 - 1,
             -2**63)
_REALS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e38, 3.4e38, -3.4e38, float("inf"), -float("inf"), float("nan"))
_TEXTS = ("", "x", "SAME_UPPER", "VALID", "linear", "reflect", "Ünïcode \N{SNOWMAN}", "a/b", "y", "\x00", "9" * 40)
_OPS = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
_DTYPES = range(len(onnx.TensorProto.DataType.keys()) + 2)


def damage_bytes(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """``data`` with one to four places damaged, some by pieces of ``other``."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(damaged) + 1)
        length = rng.choice((1, 2, 8, 100))
        match rng.randrange(7):
            case 0 if damaged:
                damaged[min(start, len(damaged) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[start:]
            case 2:
                del damaged[start:start + length]
            case 3:
                begin = rng.randrange(len(other))
                damaged[start:start + rng.choice((0, length))] = other[begin:begin + length]
            case 4:
                damaged[start:start] = damaged[start:start + length]
            case 5:
                damaged[start:start + length] = bytes(rng.randrange(256) for _ in range(length))
            case _:
                _swap_lengths(damaged, rng)
    return bytes(damaged)


def _swap_lengths(data: bytearray, rng: random.Random) -> None:
    """Exchange the lengths of two fields, or lie about one."""
    places = list(_lengths(data, 0, len(data), 0))
    if not places:
        return
    first, second = rng.choice(places), rng.choice(places)
    if rng.randrange(2):
        data[first], data[second] = data[second], data[first]
    else:
        data[first] = rng.choice((0, 1, 127, (data[first] + 1) % 128, (data[first] - 1) % 128))


def _lengths(data: bytearray, start: int, stop: int, depth: int):
    """Positions of the lengths of one byte, in messages within messages."""
    while start + 1 < stop:
        kind, start = data[start] & 7, start + 1
        if kind == 2:
            place, length, shift = start, 0, 0
            while start < stop:
                byte = data[start]
                length |= (byte & 127) << shift
                start, shift = start + 1, shift + 7
                if byte < 128:
                    break
            if start - place == 1:
                yield place
            if depth < 4:
                yield from _lengths(data, start, min(start + length, stop), depth + 1)
            start += length
        elif kind == 0:
            while start < stop and data[start] >= 128:
                start += 1
            start += 1
        elif kind in (1, 5):
            start += 8 if kind == 1 else 4
        else:
            return


def damage_model(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """A copy of ``model`` with one to three changes; what protobuf does not take is not done."""
    damaged = onnx.ModelProto()
    damaged.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        try:
            rng.choice(_CHANGES)(damaged, rng)
        except (LookupError, TypeError, ValueError, OverflowError, onnx.defs.SchemaError):
            # Nothing to change, or a number that the field does not hold.
            continue
    return damaged


def _names(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    return [item.name for item in (*graph.input, *graph.initializer)] + [
        name for node in graph.node for name in node.output] + [""]


def _drop_node(model: onnx.ModelProto, rng: random.Random) -> None:
    del model.graph.node[rng.randrange(len(model.graph.node))]


def _bypass_node(model: onnx.ModelProto, rng: random.Random) -> None:
    """Drop a node; its readers read what it read."""
    index = rng.randrange(len(model.graph.node))
    node = model.graph.node[index]
    for reader in model.graph.node:
        reader.input[:] = [node.input[0] if name == node.output[0] else name for name in reader.input]
    del model.graph.node[index]


def _repeat_node(model: onnx.ModelProto, rng: random.Random) -> None:
    node = model.graph.node.add()
    node.CopyFrom(rng.choice(model.graph.node[:-1]))
    if rng.randrange(2):
        node.output[:] = [f"{name}2" for name in node.output]
        rng.choice(model.graph.node).input[0] = node.output[0]


def _rewire(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))


def _more_or_fewer_inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if rng.randrange(2):
        node.input.append(rng.choice(_names(model)))
    else:
        del node.input[rng.randrange(len(node.input))]


def _more_or_fewer_outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if rng.randrange(3):
        node.output.append(rng.choice(("more", "", rng.choice(_names(model)))))
    else:
        del node.output[rng.randrange(len(node.output))]


def _insert_node(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put a random operator behind a tensor."""
    reader = rng.choice(model.graph.node)
    index = rng.randrange(len(reader.input))
    node = onnx.NodeProto(op_type=rng.choice(_OPS), name=f"inserted{rng.randrange(99)}",
                          input=[reader.input[index]], output=[f"new{rng.randrange(10**9)}"])
    node.input.extend(rng.choice(_names(model)) for _ in range(rng.choice((0, 0, 1, 2))))
    reader.input[index] = node.output[0]
    position = next(k for k, known in enumerate(model.graph.node) if known is reader or known == reader)
    model.graph.node.insert(position, node)
    for _ in range(rng.randrange(3)):
        _add_attribute(model.graph.node[position], rng)


def _op_type(model: onnx.ModelProto, rng: random.Random) -> None:
    rng.choice(model.graph.node).op_type = rng.choice((*_OPS, *_TEXTS))


def _domain(model: onnx.ModelProto, rng: random.Random) -> None:
    rng.choice(model.graph.node).domain = rng.choice(
        ("ai.onnx", "ai.onnx.ml", "com.microsoft", "qonnx.custom_op.general", "almac", *_TEXTS))


def _attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice([node for node in model.graph.node if node.attribute])
    item = rng.choice(node.attribute)
    match rng.randrange(6):
        case 0:
            node.attribute.remove(item)
        case 1:
            item.name = rng.choice(_TEXTS)
        case 2:
            item.type = rng.randrange(16)
        case _ if item.ints:
            item.ints[rng.randrange(len(item.ints))] = rng.choice(_EXTREMES)
        case 3:
            item.ints.append(rng.choice(_EXTREMES))
        case _:
            item.i, item.f, item.s = rng.choice(_EXTREMES), rng.choice(_REALS), rng.choice(_TEXTS).encode()


def _add_attribute(node: onnx.NodeProto, rng: random.Random) -> None:
    """An attribute that the operator knows, of the right type, with a value that it may not."""
    schema = onnx.defs.get_schema(node.op_type, 21, "")
    known = rng.choice([item for name, item in sorted(schema.attributes.items())])
    kinds = onnx.AttributeProto
    values = {kinds.INT: lambda: rng.choice(_EXTREMES), kinds.FLOAT: lambda: rng.choice(_REALS),
              kinds.STRING: lambda: rng.choice(_TEXTS),
              kinds.INTS: lambda: [rng.choice(_EXTREMES) for _ in range(rng.randrange(1, 9))],
              kinds.FLOATS: lambda: [rng.choice(_REALS) for _ in range(rng.randrange(1, 5))],
              kinds.TENSOR: lambda: _tensor(rng, "")}
    node.attribute.append(onnx.helper.make_attribute(known.name, values[int(known.type.value)]()))


def _new_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    _add_attribute(rng.choice(model.graph.node), rng)


def _shape(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = model.graph
    shape = rng.choice([*graph.input, *graph.output, *graph.value_info]).type.tensor_type.shape
    match rng.randrange(4):
        case 0:
            del shape.dim[rng.randrange(len(shape.dim))]
        case 1:
            shape.dim.add().dim_value = rng.choice(_EXTREMES)
        case 2:
            rng.choice(shape.dim).dim_param = rng.choice(_TEXTS)
        case _:
            rng.choice(shape.dim).dim_value = rng.choice(_EXTREMES)


def _type(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = model.graph
    info = rng.choice([*graph.input, *graph.output]).type
    match rng.randrange(8):
        case 0:
            info.sequence_type.elem_type.tensor_type.elem_type = 1
        case 1:
            info.optional_type.elem_type.tensor_type.elem_type = 1
        case 2:
            info.map_type.key_type = 7
        case 3:
            info.sparse_tensor_type.elem_type = 1
        case 4:
            info.Clear()
        case _:
            info.tensor_type.elem_type = rng.choice(_DTYPES)


def _tensor(rng: random.Random, name: str) -> onnx.TensorProto:
    """A small tensor of any type, rank and content."""
    shape = [rng.choice((0, 1, 2, 4)) for _ in range(rng.choice((0, 1, 1, 2, 4, 6)))]
    kind = rng.choice((np.float32, np.float32, np.int8, np.uint8, np.int64, np.int32, np.float16, np.float64, bool))
    values = _REALS if np.dtype(kind).kind == "f" else _EXTREMES
    array = np.array([rng.choice(values) for _ in range(int(np.prod(shape)))], object)
    with np.errstate(all="ignore"):
        array = array.astype(np.float64 if np.dtype(kind).kind == "f" else np.int64).astype(kind).reshape(shape)
    return numpy_helper.from_array(array, name)


def _replace_constant(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    tensor.CopyFrom(_tensor(rng, tensor.name))


def _numbers(model: onnx.ModelProto, rng: random.Random) -> None:
    """Extremes in the place of some elements of a constant."""
    # What another change has moved to another file has no numbers here.
    tensor = rng.choice([tensor for tensor in model.graph.initializer
                         if tensor.data_location != onnx.TensorProto.EXTERNAL])
    array = numpy_helper.to_array(tensor).copy()
    values = _REALS if array.dtype.kind == "f" else _EXTREMES
    with np.errstate(all="ignore"):
        for _ in range(rng.choice((1, 4))):
            array.reshape(-1)[rng.randrange(array.size)] = np.array(rng.choice(values)).astype(array.dtype)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _reshape_constant(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    match rng.randrange(5):
        case 0:
            tensor.dims.append(1)
        case 1:
            tensor.dims.reverse()
        case 2:
            tensor.dims[:] = [int(np.prod(tensor.dims))]
        case 3:
            del tensor.dims[rng.randrange(len(tensor.dims))]
        case _:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_EXTREMES)


def _constant_type(model: onnx.ModelProto, rng: random.Random) -> None:
    rng.choice(model.graph.initializer).data_type = rng.choice(_DTYPES)


def _constant_elsewhere(model: onnx.ModelProto, rng: random.Random) -> None:
    """External data that is not there, or none of the file's business."""
    tensor = rng.choice(model.graph.initializer)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key in ("location", "offset", "length"):
        if rng.randrange(3):
            tensor.external_data.add(key=key, value=rng.choice(
                ("/dev/zero", "../x", ".", "model.onnx", "-1", str(rng.choice(_EXTREMES)), *_TEXTS)))


def _drop_constant(model: onnx.ModelProto, rng: random.Random) -> None:
    """Leave a constant out, or make an input of it."""
    index = rng.randrange(len(model.graph.initializer))
    tensor = model.graph.initializer[index]
    if rng.randrange(2):
        model.graph.input.append(onnx.helper.make_tensor_value_info(
            tensor.name, tensor.data_type, list(tensor.dims)))
    if rng.randrange(3):
        del model.graph.initializer[index]


def _output(model: onnx.ModelProto, rng: random.Random) -> None:
    """One more output, or another one."""
    name = rng.choice(_names(model))
    if rng.randrange(2):
        model.graph.output.add().name = name
    else:
        model.graph.output[0].name = name


def _rename(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another name for a tensor, everywhere."""
    old, new = rng.choice(_names(model)), rng.choice((*_TEXTS, *_names(model)))
    graph = model.graph
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for item in (*graph.input, *graph.output, *graph.initializer):
        item.name = new if item.name == old else item.name


def _versions(model: onnx.ModelProto, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0:
            model.ir_version = rng.choice((0, 1, 2, 3, 4, 7, 11, 13, 14, *_EXTREMES))
        case 1:
            del model.opset_import[rng.randrange(len(model.opset_import))]
        case 2:
            model.opset_import.add(domain=rng.choice(_TEXTS), version=rng.choice(_EXTREMES))
        case _:
            rng.choice(model.opset_import).version = rng.choice((*range(27), *_EXTREMES))


def _function(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node becomes a call of a function of the model, which may call itself."""
    node = rng.choice(model.graph.node)
    function = model.functions.add(name="function", domain="local")
    function.input.extend(node.input)
    function.output.extend(node.output)
    function.opset_import.add(domain="", version=rng.choice((21, 21, 21, 1, 10**9)))
    function.node.add().CopyFrom(node)
    node.op_type, node.domain = "function", "local"
    del node.attribute[:]
    if not rng.randrange(3):
        function.node[0].CopyFrom(node)


def _subgraph(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    body = onnx.GraphProto()
    body.CopyFrom(model.graph)
    if rng.randrange(2):
        node.op_type = rng.choice(("If", "Loop", "Scan"))
    node.attribute.add(name=rng.choice(("body", "then_branch")), type=onnx.AttributeProto.GRAPH).g.CopyFrom(body)


def _rare(model: onnx.ModelProto, rng: random.Random) -> None:
    """Parts of the format that hardly any model has."""
    match rng.randrange(4):
        case 0:
            model.graph.sparse_initializer.add().values.CopyFrom(rng.choice(model.graph.initializer))
        case 1:
            model.training_info.add().algorithm.CopyFrom(model.graph)
        case 2:
            model.graph.quantization_annotation.add(tensor_name=rng.choice(_names(model)))
        case _:
            model.metadata_props.add(key=rng.choice(_TEXTS), value=rng.choice(_TEXTS))


_CHANGES: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    _attribute, _attribute, _bypass_node, _constant_elsewhere, _constant_type, _domain, _drop_constant, _drop_node,
    _function, _insert_node, _insert_node, _more_or_fewer_inputs, _more_or_fewer_outputs, _new_attribute,
    _new_attribute,
    _numbers, _numbers, _op_type, _op_type, _output, _rare, _rename, _repeat_node, _replace_constant,
    _replace_constant, _reshape_constant, _rewire, _rewire, _shape, _shape, _subgraph, _type, _versions,
)

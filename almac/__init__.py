"""ONNX networks on FPGAs: ternary weights, 8-bit activations, no DSP blocks in the dot products.

The whole of the public interface::

    program = almac.compile("model.onnx", target="sim-16x16x1")
    with almac.open_device("sim", program) as device:
        outputs = device.run(program, x)

"""

from importlib import import_module

#: Where each public name is; imported when first used, so that `import almac.hdl` pulls in nothing else.
_HOMES = {
    "CompileError": "almac.compiler.graph",
    "Device": "almac.host.device",
    "HostError": "almac.host.errors",
    "Program": "almac.compiler.program",
    "ProgramError": "almac.compiler.program",
    "TargetError": "almac.boards.targets",
    "compile": "almac.api",
    "golden": "almac.api",
    "open_device": "almac.api",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'almac' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

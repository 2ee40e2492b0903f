"""What the package offers to Python: composition only."""

from almac.boards.targets import DEFAULT, find
from almac.compiler.build import build
from almac.compiler.importer import import_model
from almac.host.device import Device
from almac.host.transport import open_transport
from almac.sim.device import SimulatedBoard
from almac.sim.golden import evaluate

__all__ = ["compile", "golden", "open_device"]


def compile(model, *, target=DEFAULT, calib=None):
    """Compile an ONNX model.

    Parameters
    ----------
    model : path or onnx.ModelProto
        Quantized, in any spelling, opset 7 to 25; or in float, with ``calib``.
    target : str
        Name of a target (``almac targets``).
    calib : mapping of ndarray[N, ...] by input name
        Samples with which a float model is quantized to INT8 first.

    Returns
    -------
    Program

    Raises
    ------
    CompileError, TargetError
    """
    return build(model, find(target).config, calibration=calib).program


def golden(model, x):
    """Outputs of the golden model, bit for bit those of the device.

    Parameters
    ----------
    model : path
        ONNX model.
    x : ndarray[N, ...] or mapping of them by input name
        Images, in the model's own layout and units.

    Returns
    -------
    dict[str, ndarray]
    """
    graph = import_model(model)
    inputs = x if isinstance(x, dict) else {graph.inputs[0]: x}
    values = evaluate(graph, inputs)
    return {name: values[name] for name in graph.outputs}


def open_device(where="sim", program=None, *, config=None, timeout=30.0, progress=lambda text: None):
    """Connect to a device.

    Parameters
    ----------
    where : str
        ``sim`` (the simulated board), ``serial:PORT`` or ``tcp:HOST:PORT``.
    program, config : Program, ArrayConfig
        Which array the simulated board has: that of the program, or the one given.
    timeout : float
        Seconds that any one operation may take in all.
    progress : callable
        Told what is built, if the simulated board has to be.

    Returns
    -------
    Device

    Raises
    ------
    HostError
    """
    if where == "sim":
        config = config or (program.config if program else find(DEFAULT).config)
        return Device(SimulatedBoard(config, progress=progress), timeout=timeout)
    return Device(open_transport(where), timeout=timeout)

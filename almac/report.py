"""What a program costs: cycles, utilisation, memory, and what the host does."""

from almac.compiler.program import Port, Program
from almac.hdl.command import Space, words_of

__all__ = ["report"]


def _input(port: Port):
    """What the host does with an input."""
    work = [] if port.exact else ["quantize it to 8-bit codes"]
    work += ["move its elements"] if port.move else []
    work += ["lay its kernel positions into the lanes"] if port.fold else []
    return f"input {port.name!r}: {', '.join(work)}"


def report(program: Program):
    """Everything that `almac report` shows, as plain data.

    Cycles are predicted, by the model that the RTL in simulation meets exactly (``almac verify``).
    Utilisation counts useful multiply-accumulates, once per plane of the weights, over the cycles of a run
    times the array's; ``utilisation_whole`` over the time from the first input byte to the last result byte on a
    link of one byte per cycle, nothing overlapped.
    """
    config = program.config
    macs_per_cycle = config.lanes * config.rows
    whole = program.cycles + program.input_bytes + program.output_bytes
    used = max((place.address + place.size * place.parts for place in program.placements.values()),
               default=0)
    memory = {Space.ACTIVATION.name.lower(): {"used": used, "available": config.act_depth}}
    for name, image in program.images.items():
        available = words_of(Space[name], config)[1]
        memory[name.lower()] = {"used": len(image), "available": available}
    return {
        "target": str(config),
        "program": program.digest,
        "macs": program.macs,
        "cycles": program.cycles,
        "utilisation": round(program.utilisation, 4),
        "utilisation_whole": round(program.macs / (whole * macs_per_cycle), 4),
        "images_per_run": config.columns,
        "link": {"input_bytes": program.input_bytes, "output_bytes": program.output_bytes,
                 "weights": "streamed in every run" if program.uploads else "loaded once"},
        "memory_words": memory,
        "weight_bytes": program.weight_bytes,
        "layers": [{
            "name": layer.name, "kind": layer.kind, "output": layer.output,
            "commands": layer.commands, "macs": layer.macs, "cycles": layer.cycles,
            "utilisation": round(layer.macs / (layer.cycles * macs_per_cycle), 4),
            "acc_bits": layer.acc_bits,
        } for layer in program.layers],
        "host": [
            *(f"compute {step.output!r} ({step.kind}) in float32, before the device runs"
              for step in program.before),
            *(_input(port) for port in program.inputs if not port.exact or port.move or port.fold),
            *(f"dequantize output {port.name!r} in float32"
              for port in program.outputs if not port.exact),
            *(f"compute {step.output!r} ({step.kind}) in float32, after the device has run"
              for step in program.after),
        ],
    }

"""Values to activation memory: every word is placed here, nothing is cached."""

from almac.compiler.graph import CompileError
from almac.compiler.schedule import Schedule

__all__ = ["allocate"]


def allocate(schedule: Schedule) -> dict[str, int]:
    """First word of every value, so that values that are needed at the same time do not overlap.

    A value lives from the layer that makes it (inputs: from before the first one) to the last one that
    reads it (outputs: to the end). Each takes the lowest gap that is large enough, in order of birth.

    Raises
    ------
    CompileError
        If the values alive at some layer do not fit; names the layer and what is missing.
    """
    depth = schedule.config.act_depth
    lives = _lives(schedule)
    placed: dict[str, tuple[int, int]] = {}
    for name, (birth, death) in sorted(lives.items(), key=lambda item: item[1][0]):
        layout = schedule.layouts[name]
        size = layout.size * layout.parts
        others = sorted(placed[other] for other, (born, died) in lives.items()
                        if other in placed and born <= death and birth <= died)
        start = 0
        for first, end in others:
            if start + size <= first:
                break
            start = max(start, end)
        if start + size > depth:
            layer = schedule.layers[max(birth, 0)] if schedule.layers else None
            where = f"layer {layer.name!r} ({layer.kind})" if layer else "the model"
            taken = sum(end - first for first, end in others)
            raise CompileError(
                f"{where}: {name!r} takes {size} words of activation memory, of {depth} there are {depth - taken} "
                f"free at that time; use a target with more lanes or an act_depth of at least {start + size}, or a "
                "smaller input")
        placed[name] = (start, start + size)
    return {name: start for name, (start, _) in placed.items()}


def _lives(schedule: Schedule) -> dict[str, tuple[int, int]]:
    """First and last layer, by index, at which each value is in memory."""
    lives = {op.output: (-1, -1) for op in schedule.inputs}
    end = len(schedule.layers)
    for index, layer in enumerate(schedule.layers):
        for name in {name for tile in layer.tiles for name in tile.inputs}:
            lives[name] = (lives[name][0], index)
        lives[layer.output] = (index, index)
    for op in schedule.outputs:
        name = schedule.aliases.get(op.inputs[0], op.inputs[0])
        lives[name] = (lives[name][0], end)
    return lives

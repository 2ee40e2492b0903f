"""Names of targets: what `almac compile --target` and `almac targets` know."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from almac.hdl.config import ArrayConfig

__all__ = ["DEFAULT", "Target", "TargetError", "find", "targets"]

#: Compiled for when no target is named.
DEFAULT = "sim-16x16x1"

#: Sizes that `almac targets` lists; any other one can be named.
_LISTED = ("8x8x1", "16x16x1", "16x16x4", "32x32x1", "64x32x1", "64x64x1-deep")

#: Memories of a large FPGA: what commands can address, and weights and commands for networks of ImageNet's size.
_DEEP = {"act_depth": 1 << 16, "weight_depth": 1 << 14, "scale_depth": 1 << 12, "param_depth": 1 << 13,
         "tables": 16, "command_depth": 1 << 16}


class TargetError(Exception):
    """There is no such target."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Something that runs programs."""

    name: str
    config: ArrayConfig
    description: str


def targets() -> Iterator[Target]:
    """Every target that has a fixed name."""
    for size in _LISTED:
        yield find(f"sim-{size}")


def find(name: str) -> Target:
    """Target of that name.

    Raises
    ------
    TargetError
        Naming the closest ones.
    """
    kind, _, size = name.partition("-")
    if kind == "sim" and size:
        deep = size.endswith("-deep")
        try:
            config = ArrayConfig.parse(size.removesuffix("-deep"), **(_DEEP if deep else {}))
        except ValueError as error:
            raise TargetError(f"target {name!r}: {error}") from None
        return Target(name=name, config=config, description="simulated board, "
                      f"{config.lanes} lanes x {config.rows} rows x {config.columns} columns"
                      + (", deep memories" if deep else ""))
    known = [f"sim-{listed}" for listed in _LISTED]
    close = difflib.get_close_matches(name, known, n=3) or known
    raise TargetError(f"there is no target {name!r}; close ones: {', '.join(close)}; "
                      "sim-LxRxC stands for any lanes x rows x columns, sim-LxRxC-deep for one with deep memories")

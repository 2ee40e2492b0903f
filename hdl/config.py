"""The one description of an array: compiler, RTL, interpreter and host all derive from it."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from math import gcd

__all__ = ["ArrayConfig"]

#: Changes whenever the meaning of a command, a memory word or a frame changes.
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ArrayConfig:
    """Size of an array and of its memories.

    Attributes
    ----------
    lanes : int
        Reduction positions of a dot product; codes in an activation word.
    rows : int
        Output channels computed at once.
    columns : int
        Images computed at once; each column has its own activations and shares the weights.
    post_lanes : int
        Codes that a column requantizes per cycle; divides ``lanes`` and ``rows``. 0 chooses the
        largest divisor with which ``rows`` results leave in no fewer than four cycles.
    act_depth : int
        Words of activation memory per column.
    weight_depth, scale_depth, param_depth : int
        Words of weight, group scale and requantization parameter memory.
    tables : int
        Tables of 256 codes.
    command_depth : int
        32-bit words of command memory.

    Raises
    ------
    TypeError, ValueError
        If a field is not an integer or lies outside its range.
    """

    lanes: int = 16
    rows: int = 16
    columns: int = 1
    post_lanes: int = 0
    act_depth: int = 4096
    weight_depth: int = 2048
    scale_depth: int = 256
    param_depth: int = 512
    tables: int = 2
    command_depth: int = 2048

    def __post_init__(self):
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an integer, not {value!r}")
            if not low <= value <= high:
                raise ValueError(f"{name} must be within {low}..{high}, not {value!r}")
        if self.post_lanes == 0:
            object.__setattr__(self, "post_lanes", _default_post_lanes(self.lanes, self.rows))
        if gcd(self.lanes, self.rows) % self.post_lanes:
            raise ValueError(
                f"post_lanes must divide lanes and rows ({self.lanes} and {self.rows}), "
                f"not {self.post_lanes!r}")

    @classmethod
    def parse(cls, text, **fields):
        """Configuration of a size written ``LxRxC`` (lanes x rows x columns)."""
        match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)
        if match is None:
            raise ValueError(f"Size must be written lanes x rows x columns (16x16x1), not {text!r}")
        lanes, rows, columns = map(int, match.groups())
        return cls(lanes=lanes, rows=rows, columns=columns, **fields)

    def __str__(self):
        return f"{self.lanes}x{self.rows}x{self.columns}"

    @property
    def macs(self):
        """Multiply-accumulates per cycle."""
        return self.lanes * self.rows * self.columns

    @property
    def digest(self):
        """Identity of this configuration: 8 bytes that a program and a device compare."""
        text = json.dumps({"version": FORMAT_VERSION, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).digest()[:8]


_RANGES = {
    "lanes": (1, 64),
    "rows": (1, 64),
    "columns": (1, 64),
    "post_lanes": (0, 64),
    "act_depth": (2, 1 << 16),
    "weight_depth": (2, 1 << 16),
    "scale_depth": (2, 1 << 16),
    "param_depth": (2, 1 << 16),
    "tables": (1, 16),
    "command_depth": (32, 1 << 16),
}


def _default_post_lanes(lanes, rows):
    common = gcd(lanes, rows)
    return max(n for n in range(1, common + 1)
               if common % n == 0 and (n == 1 or 4 * n <= rows))

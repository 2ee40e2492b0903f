"""The design as Verilog."""

import warnings

from amaranth.back import verilog

from almac.hdl.top import Top

__all__ = ["board_verilog"]


def board_verilog(config):
    """Verilog of :class:`almac.hdl.top.Top` with the module name ``board``; the same text every time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verilog.convert(Top(config), name="board", emit_src=False, strip_internal_attrs=True)

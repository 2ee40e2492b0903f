"""One column of the array: an image's activations, and all that computes on them."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from almac.hdl.command import ADDRESS, COMMAND, PARAM, Opcode, Space, scale_layout, weight_bits
from almac.hdl.drain import CHUNK, Drain
from almac.hdl.memory import HostMemory, WordLayout
from almac.hdl.pe import Pe
from almac.hdl.requantize import Requantize
from almac.hdl.shapes import INT8
from almac.hdl.vector import VectorUnit

__all__ = ["Column"]


class Column(wiring.Component):
    """Activation memory, processing elements, vector unit, drain, requantizers, tables.

    Moves in step with all other columns, as :class:`almac.hdl.control.Control` says; nothing stalls.

    Parameters
    ----------
    config : ArrayConfig
    index : int
        Which column this is to the host.

    Members
    -------
    command : In(COMMAND)
        The running command.
    address, word : In(ADDRESS), Out(8 * lanes)
        Read port of the activations.
    inside : In(1)
        With ``word``: it is inside the image; else the operands are padding.
    code : In(2 * lanes * rows)
        With ``word``: controls of the weights.
    vector_enable, vector_first : In(1)
        The operands are for the vector unit; they are the first ones of an output.
    alpha, array_enable, array_first : In(scale_layout(config)), In(1), In(1)
        Group scales, and the same for the array, when the processing elements want them.
    load : In(1)
        The results of an output are complete.
    param : In(ArrayLayout(PARAM, post_lanes))
        With the accumulators of a chunk, in the cycle after it leaves the drain.
    chunk : In(CHUNK)
        The chunk whose codes are written in this cycle.
    write : In(stream.Signature(WordLayout(config), always_ready=True))
        Words from the host; not for the activations while ``chunk`` is valid.
    """

    def __init__(self, config, *, index):
        self.config = config
        self.index = index
        super().__init__({
            "command": In(COMMAND),
            "address": In(ADDRESS),
            "word": Out(8 * config.lanes),
            "inside": In(1),
            "code": In(weight_bits(config)),
            "vector_enable": In(1),
            "vector_first": In(1),
            "alpha": In(scale_layout(config)),
            "array_enable": In(1),
            "array_first": In(1),
            "load": In(1),
            "param": In(data.ArrayLayout(PARAM, config.post_lanes)),
            "chunk": In(CHUNK),
            "write": In(stream.Signature(WordLayout(config), always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        config, command = self.config, self.command
        lanes, rows, post_lanes = config.lanes, config.rows, config.post_lanes
        chunk_bits = 8 * post_lanes

        # Activations: read by the loops, written by the drain and, when it does not, by the host.
        m.submodules.activations = activations = memory.Memory(
            shape=8 * lanes, depth=config.act_depth, init=())
        w_port = activations.write_port(granularity=chunk_bits)
        r_port = activations.read_port()
        m.d.comb += [
            r_port.addr.eq(self.address),
            r_port.en.eq(1),
            self.word.eq(r_port.data),
        ]

        operands = Signal(data.ArrayLayout(INT8, lanes))
        code = Signal.like(self.code)
        m.d.sync += [
            operands.eq(Mux(self.inside, r_port.data, Cat(command.pad for _ in range(lanes)))),
            code.eq(self.code),
        ]

        size = max(lanes, rows)
        m.submodules.drain = drain = Drain(size=size, post_lanes=post_lanes)
        m.d.comb += drain.load.eq(self.load)

        m.submodules.vector = vector = VectorUnit(lanes=lanes)
        m.d.comb += [
            vector.opcode.eq(command.opcode),
            vector.word.eq(operands),
            vector.first.eq(self.vector_first),
            vector.enable.eq(self.vector_enable),
            Cat(drain.side[:lanes]).eq(vector.side.as_value()),
        ]

        for row in range(rows):
            m.submodules[f"pe{row}"] = pe = Pe(lanes=lanes)
            m.d.comb += [
                pe.act.eq(operands),
                pe.code.eq(code.word_select(row, 2 * lanes)),
                pe.alpha.eq(self.alpha[row]),
                pe.first.eq(self.array_first),
                pe.enable.eq(self.array_enable),
                drain.acc[row].eq(pe.acc),
            ]
        with m.If(command.opcode != Opcode.CONV):
            m.d.comb += [drain.acc[lane].eq(vector.acc[lane]) for lane in range(lanes)]
        with m.If(command.opcode == Opcode.ADD):
            m.d.comb += [drain.acc[lane].eq(vector.acc[lane] << command.left)
                         for lane in range(lanes)]

        codes = Signal(chunk_bits)
        for k in range(post_lanes):
            m.submodules[f"requantize{k}"] = requantize = Requantize()
            acc = Signal.like(drain.chunk_acc[k])
            side = Signal.like(drain.chunk_side[k])
            m.d.sync += [acc.eq(drain.chunk_acc[k]), side.eq(drain.chunk_side[k])]
            m.d.comb += [
                requantize.acc.eq(acc),
                requantize.side.eq(side),
                requantize.param.eq(self.param[k]),
                requantize.settings.side_multiplier.eq(
                    Mux(command.opcode == Opcode.ADD, command.side_multiplier, 0)),
                requantize.settings.raw.eq(command.raw),
                requantize.settings.zero_point.eq(command.zero_point),
                requantize.settings.low.eq(command.low),
                requantize.settings.high.eq(command.high),
            ]
            m.d.comb += codes.word_select(k, 8).eq(self._through_table(m, k, requantize.o))

        m.d.comb += [
            w_port.addr.eq(Mux(self.chunk.valid, self.chunk.out, self.write.p.address)),
            w_port.data.eq(Mux(self.chunk.valid,
                               codes.replicate(lanes // post_lanes), self.write.p.data)),
        ]
        with m.If(self.chunk.valid):
            m.d.comb += w_port.en.eq(1 << self.chunk.part)
        with m.Elif(self.write.valid & (self.write.p.space == Space.ACTIVATION)
                    & (self.write.p.column == self.index)):
            m.d.comb += w_port.en.eq(-1)

        return m

    def _through_table(self, m, k, code):
        """Code after the table, or as it was, one cycle later."""
        m.submodules[f"table{k}"] = table = HostMemory(Space.TABLE, self.config)
        connect(m, flipped(self.write), table.write)
        kept = Signal(8)
        m.d.sync += kept.eq(code)
        # Entry 0 is that of the least code.
        m.d.comb += table.addr.eq(Cat(code.as_unsigned() ^ 0x80, self.command.table))
        return Mux(self.command.use_table, table.data, kept)

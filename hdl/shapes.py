"""Number formats, and what they hold."""

from amaranth import signed, unsigned

__all__ = ["ACC", "ALPHA", "INT8", "MULTIPLIER", "OFFSET", "SHIFT"]

#: An activation code.
INT8 = signed(8)

#: An accumulator: exact sums; the compiler proves that they fit.
ACC = signed(32)

#: A group scale: 8 bits and a sign, -256 excluded so that its negation fits.
ALPHA = signed(9)

#: The mantissa of a requantization scale.
MULTIPLIER = unsigned(24)

#: Bits that the requantizer shifts out.
SHIFT = unsigned(6)

#: The bias, in units of ``2**-shift`` output steps; a product of accumulator and multiplier plus
#: this still fits in it.
OFFSET = signed(64)

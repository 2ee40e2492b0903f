"""Comparisons of the benches, counted: a bench that compares nothing fails."""

__all__ = ["Checker"]


class Checker:
    """Context of a cocotb test; fails at its end if nothing was compared.

    Attributes
    ----------
    count : int
        Values compared so far.
    """

    def __init__(self):
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None and self.count == 0:
            raise AssertionError("The bench compared nothing")

    def equal(self, actual, expected, what):
        """Compare two values."""
        self.count += 1
        assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"

    def equal_lists(self, actual, expected, what):
        """Compare two lists, item by item and in length."""
        for index, (one, other) in enumerate(zip(actual, expected, strict=False)):
            self.equal(one, other, f"{what}[{index}]")
        assert len(actual) == len(expected), f"{what}: {len(actual)} items, not {len(expected)}"

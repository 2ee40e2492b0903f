"""A limit on the time that an operation takes, however many parts it has."""

import time

from almac.host.errors import TransportError

__all__ = ["Deadline"]


class Deadline:
    """Seconds that one operation may take in all."""

    def __init__(self, phase: str, seconds: float) -> None:
        self.phase = phase
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left; negative when over."""
        return self._end - time.monotonic()

    def check(self, state: str, *, expected: int = 0, received: int = 0) -> None:
        """Raise TransportError when it is over."""
        if self.left <= 0:
            raise TransportError(
                f"the device did not answer within {self.seconds:g} s ({self.phase}: {state}); check that "
                "it is connected, has its bitstream and is not reset", phase=self.phase,
                expected=expected, received=received)

"""What can go wrong between host and device; every message says what to do."""

__all__ = ["DeviceError", "HostError", "IdentityError", "InputError", "TransportError"]


class HostError(Exception):
    """Something between the user and a result failed."""


class InputError(HostError):
    """The user's input is not what the model takes."""


class IdentityError(HostError):
    """The device is not the one that the program is for."""


class DeviceError(HostError):
    """The device refused a request."""


class TransportError(HostError):
    """The line failed.

    Attributes
    ----------
    phase : str
        What was under way: "identity", "weights", "activations", "run", "result", ….
    expected, received : int
        Bytes of the answer.
    """

    def __init__(self, message: str, *, phase: str = "", expected: int = 0, received: int = 0) -> None:
        super().__init__(message)
        self.phase = phase
        self.expected = expected
        self.received = received

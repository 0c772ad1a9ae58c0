"""The number of outputs that a server takes at a time."""

from __future__ import annotations

import math

from constrain.serve.errors import APIError

#: Weight of the last request in the average time of a request.
_WEIGHT = 0.1


class Admission:
    """Counts outputs that run or wait, and refuses what would be too many.

    Attributes:
        active: outputs that run or wait.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: most outputs at a time."""
        self._limit = limit
        self._seconds = 1.0
        self.active = 0

    def enter(self, count: int, param: str = "/n") -> None:
        """Take the outputs of a request; ``param`` is the JSON pointer to the field with their number.

        Raises:
            APIError: they are too many, now or always.
        """
        if count > self._limit:
            message = f"{param}: this server takes {self._limit} outputs at a time, not {count}"
            raise APIError(message, param=param, code="invalid_value")
        if self.active + count > self._limit:
            message = f"this server takes {self._limit} outputs at a time, and has {self.active}: try again later"
            raise APIError(
                message, status=429, code="server_busy", headers={"Retry-After": str(math.ceil(self._seconds))}
            )
        self.active += count

    def leave(self, count: int, seconds: float) -> None:
        """Count the outputs of a request as ended; ``seconds``: the time that it took."""
        self.active -= count
        self._seconds += _WEIGHT * (seconds - self._seconds)

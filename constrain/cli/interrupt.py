"""Ctrl-C in two steps: the first ends a command in order, the second at once."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_STDERR = 2


class Interrupt:
    """While it is entered, the first Ctrl-C is noted, and a second one raises ``KeyboardInterrupt``.

    Attributes:
        requested: whether there was a Ctrl-C.
    """

    def __init__(self, notice: str) -> None:
        """``notice``: what to say at the first Ctrl-C."""
        self.requested = False
        self._notice = notice

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError):  # past sys.stderr, which the program may be writing just now
            os.write(_STDERR, f"\n{self._notice}\n".encode())

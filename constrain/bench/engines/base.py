"""What is asked of every engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Tokens:
    """The tokens that an engine works on.

    Attributes:
        folder: where their tokenizer is.
        texts: bytes by id; empty for those that are no text.
        ends: ids that end a text.
    """

    folder: Path
    texts: list[bytes]
    ends: list[int]


class Engine(ABC):
    """An engine, made ready for a tokenizer by its constructor. It follows one text at a time."""

    #: What ``compile`` raises where a schema has no valid documents.
    unsatisfiable: type[Exception] | tuple[type[Exception], ...] = ()

    @abstractmethod
    def __init__(self, tokens: Tokens) -> None: ...

    @abstractmethod
    def compile(self, schema: Any) -> None:
        """Make the constraint of a schema the current one; raises where that cannot be done."""

    @abstractmethod
    def start(self) -> None:
        """Start a text."""

    @abstractmethod
    def mask(self) -> None:
        """Compute which tokens may come next."""

    @abstractmethod
    def allowed(self, token: int) -> bool:
        """Whether the last mask allows a token."""

    @abstractmethod
    def commit(self, token: int) -> bool:
        """Go on by a token that the last mask allows; false where it is refused after all."""

    @abstractmethod
    def may_end(self) -> bool:
        """Whether the text may end here."""

    def counters(self) -> dict[str, int]:
        """What the engine counted since the last ``compile``."""
        return {}


class BitmaskEngine(Engine):
    """An engine that fills packed bitmasks.

    Attributes:
        words: int32, the last mask; bit ``t % 32`` of word ``t // 32`` stands for token ``t``.
    """

    words: npt.NDArray[np.int32]

    def allowed(self, token: int) -> bool:
        return bool(int(self.words[token >> 5]) >> (token & 31) & 1)

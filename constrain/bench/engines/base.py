"""The interface of benchmarked engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Tokens:
    """The vocabulary of a tokenizer.

    Attributes:
        folder: folder of the tokenizer.
        texts: bytes by token id; empty for tokens without text.
        ends: ids of the end-of-sequence tokens.
    """

    folder: Path
    texts: list[bytes]
    ends: list[int]


class Engine(ABC):
    """An engine, set up for a tokenizer by its constructor. It matches one text at a time."""

    #: Exceptions that ``compile`` raises for a schema without valid documents.
    unsatisfiable: type[Exception] | tuple[type[Exception], ...] = ()

    @abstractmethod
    def __init__(self, tokens: Tokens) -> None: ...

    @abstractmethod
    def compile(self, schema: Any) -> None:
        """Compile a schema and make it the current constraint; raises an exception if it is refused."""

    @abstractmethod
    def start(self) -> None:
        """Start a new text."""

    @abstractmethod
    def mask(self) -> None:
        """Compute the mask of the next token."""

    @abstractmethod
    def allowed(self, token: int) -> bool:
        """Return whether the last mask allows a token."""

    @abstractmethod
    def commit(self, token: int) -> bool:
        """Accept a token that the last mask allows; return false if it is rejected nevertheless."""

    @abstractmethod
    def may_end(self) -> bool:
        """Return whether the text may end here."""

    def counters(self) -> dict[str, int]:
        """Return the engine's counters since the last ``compile``."""
        return {}


class BitmaskEngine(Engine):
    """An engine that fills packed bitmasks.

    Attributes:
        words: int32, the last mask; bit ``t % 32`` of word ``t // 32`` is set if token ``t`` is allowed.
    """

    words: npt.NDArray[np.int32]

    def allowed(self, token: int) -> bool:
        return bool(int(self.words[token >> 5]) >> (token & 31) & 1)

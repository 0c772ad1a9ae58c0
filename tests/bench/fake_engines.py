"""Engines that go wrong in every way."""

from __future__ import annotations

import os
import time
from typing import Any

from constrain.bench.engines import Engine, Tokens


class Unsatisfiable(Exception):
    pass


class Fake(Engine):
    """Takes every document of up to three tokens, unless the schema says what is to happen instead."""

    unsatisfiable = Unsatisfiable

    def __init__(self, tokens: Tokens) -> None:
        assert tokens.texts and tokens.ends

    def compile(self, schema: Any) -> None:
        if schema == "refuse":
            raise ValueError("no such thing")
        if schema == "nothing":
            raise Unsatisfiable("nothing is valid")
        if schema == "die":
            os._exit(7)
        if schema == "sleep":
            time.sleep(60)
        if schema == "eat":
            raise MemoryError("too much")
        if schema == "eat really":
            bytearray(1 << 40)
        self.schema = schema

    def start(self) -> None:
        self.taken = 0

    def mask(self) -> None:
        if self.schema == "stumble":
            raise RuntimeError("stumbled")

    def allowed(self, token: int) -> bool:
        return self.schema != "nothing allowed"

    def commit(self, token: int) -> bool:
        self.taken += 1
        return self.taken <= 3

    def may_end(self) -> bool:
        return self.schema != "no end"

    def counters(self) -> dict[str, int]:
        return {"steps": self.taken}


class Missing(Engine):
    """One whose package is not there."""

    def __init__(self, tokens: Tokens) -> None:
        raise ImportError("no module named nonsense")

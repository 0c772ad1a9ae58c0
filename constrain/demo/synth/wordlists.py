"""The word lists of the folder ``words``."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def words(name: str) -> tuple[str, ...]:
    """Read the entries of ``words/<name>.txt``, one a line."""
    text = (Path(__file__).parent / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.split("\n") if line)

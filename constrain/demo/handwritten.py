"""Documents written by hand, each with a schema and its record, unlike those that the generator makes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Handwritten:
    """A document with its schema and the record that is right.

    Attributes:
        kind: what kind of document it is: the folder that it is in.
        name: name of its files, without suffix.
    """

    kind: str
    name: str
    text: str
    schema: dict[str, Any]
    record: Any


def read_handwritten(folder: Path) -> list[Handwritten]:
    """Read documents: ``KIND/NAME.txt`` with the text, and beside it ``KIND/NAME.json`` with schema and record."""
    return [_read(path) for path in sorted(folder.glob("*/*.txt"))]


def _read(path: Path) -> Handwritten:
    data = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    return Handwritten(path.parent.name, path.stem, text, data["schema"], data["record"])

"""The built-in model: a small model that extracts records, with its data generator, training and evaluation.

The weights are in :func:`model_dir`; :func:`demo_documents` returns documents to try it on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class DemoDocument:
    """A bundled document, and the JSON Schema of the record to extract from it."""

    path: Path
    text: str
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the file, without its suffix."""
        return self.path.stem


def model_dir() -> Path:
    """Return the folder of the built-in model."""
    return _HERE / "model"


def demo_documents() -> list[DemoDocument]:
    """Return the bundled documents, sorted by name."""
    return [
        DemoDocument(path, path.read_text(encoding="utf-8"), _schema(path.with_suffix(".schema.json")))
        for path in sorted((_HERE / "documents").glob("*.txt"))
    ]


def _schema(path: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema

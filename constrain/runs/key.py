"""Keys of work: the same document, schema, model and settings have the same key, in every process and on every machine.

A key is 48 hexadecimal digits. The first 16 stand for the settings, the others for the document, so the lines of a file
that were made with the same settings begin alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from constrain.errors import ArgumentError

#: Part of every key; changes when a line gets another meaning.
VERSION = 1

_SETTINGS_BYTES, _DOCUMENT_BYTES = 8, 16
#: Number of the first digits of a key, which stand for the settings.
SETTINGS_DIGITS = 2 * _SETTINGS_BYTES

#: Files of a model folder that decide what the model writes.
_MODEL_FILES = ("*.json", "*.jinja", "*.safetensors")
#: A longer file is compared by this many evenly spaced blocks, so that no model takes longer than a moment.
_NUM_BLOCKS, _BLOCK = 64, 1 << 14


def settings_key(schema: Mapping[str, Any], model: str, prompt: Any, options: Mapping[str, Any]) -> str:
    """Return the beginning of the keys of all work with the same settings.

    Args:
        schema: the JSON Schema of the records.
        model: the identity of the model, see :func:`model_identity`.
        prompt: the prompt for some fixed text, which stands for the prompts of all documents.
        options: options of the extraction that are not the default.

    Raises:
        ArgumentError: an option has no JSON form, so that later runs could not tell whether it is the same.
    """
    named = {name: _jsonable(name, value) for name, value in sorted(options.items())}
    return _digest([VERSION, schema, model, prompt, named], _SETTINGS_BYTES)


def _jsonable(name: str, value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError as error:
        raise ArgumentError(f"{name} cannot be an option of a run that later runs continue: {error}") from error


def work_key(settings: str, source: str | None, part: Mapping[str, Any], identity: str | None) -> str:
    """Return the key of a document, or of a part of one.

    Args:
        settings: see :func:`settings_key`.
        source: where the document comes from.
        part: which part of the source it is; empty for all of it.
        identity: its text, or what stands for it; ``None`` if it cannot be read.
    """
    return settings + _digest([source, dict(sorted(part.items())), identity], _DOCUMENT_BYTES)


def model_identity(folder: str | Path) -> str:
    """Return a digest of a model folder that does not depend on its path: its settings, tokenizer and weights."""
    found = blake2b(digest_size=_DOCUMENT_BYTES)
    for path in sorted(path for pattern in _MODEL_FILES for path in Path(folder).glob(pattern)):
        size = path.stat().st_size
        found.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for offset in range(0, size, max(_BLOCK, size // _NUM_BLOCKS)):
                file.seek(offset)
                found.update(file.read(_BLOCK))
    return found.hexdigest()


def _digest(value: Any, size: int) -> str:
    return blake2b(json.dumps(value, separators=(",", ":")).encode(), digest_size=size).hexdigest()

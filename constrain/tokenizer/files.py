"""Reading of JSON files of a model folder, which are untrusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from constrain.errors import ConfigError, ModelError

MAX_JSON_BYTES = 64 * 1024 * 1024
_POINTER = b"version https://git-lfs"


def read_json_object(path: Path, error: type[ModelError] = ConfigError) -> dict[str, Any]:
    """Read the JSON object in ``path``.

    Raises:
        ModelError: (as ``error``) the file is missing, larger than ``MAX_JSON_BYTES``, not UTF-8, not standard JSON
            (NaN and Infinity are not), nested too deeply, or not an object.
    """
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise error(f"{path}: larger than {MAX_JSON_BYTES} bytes, so not a file that a model folder should hold")
        value = json.loads(path.read_bytes().decode("utf-8-sig"), parse_constant=_no_constant)
    except OSError as cause:
        raise error(f"{path}: cannot be read ({cause.strerror or cause})") from cause
    except RecursionError as cause:
        raise error(f"{path}: JSON nested too deeply") from cause
    except ModelError:
        raise
    except ValueError as cause:
        raise error(f"{path}: not valid JSON ({cause})") from cause
    if not isinstance(value, dict):
        raise error(f"{path}: must hold a JSON object, found {type(value).__name__}")
    return value


def check_content(path: Path, error: type[ModelError]) -> None:
    """Raise if a file that could not be read is one of the pointers that Git LFS leaves in place of large files.

    Raises:
        ModelError: (as ``error``) it is.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(len(_POINTER))
    except OSError:  # the error of the caller says so too
        return
    if begin == _POINTER:
        raise error(f"{path}: a pointer of Git LFS in place of the file; run `git lfs pull` in this folder")


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")

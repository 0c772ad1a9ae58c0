"""Values that are kept in files, from one run of a program to the next."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from constrain._core import __version__

#: To be raised with every change of what the files hold.
FORMAT = 1

#: No value is as large; a larger file is damage.
MAX_FILE_BYTES = 64 << 20


class Store:
    """JSON values by key, a file each in one folder. Nothing is unpickled or executed.

    A file that is damaged, of another version of constrain, or not what it should be in any other way, counts as
    missing. Several processes may use one folder. Whoever may write there decides what the values are.

    Args:
        directory: the folder; made when the first value is kept.
        max_bytes: size of the folder; beyond it the files that were written first are removed.
    """

    def __init__(self, directory: str | Path, max_bytes: int = 64 << 20) -> None:
        self.directory = Path(directory).expanduser()
        self.max_bytes = max_bytes

    def get(self, key: list[str]) -> Any:
        """The value of a key, or ``None``."""
        path = self._path(key)
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                return None
            content = json.loads(path.read_bytes())
            value = content.pop("value")
        except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
            return None
        return value if content == _header(key, value) else None

    def put(self, key: list[str], value: Any) -> None:
        """Keep a value of JSON types. Where the folder cannot be written to, this is a warning and nothing else."""
        text = json.dumps({**_header(key, value), "value": value})
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(self._path(key), text)
            self._shrink()
        except OSError as error:
            warnings.warn(f"nothing is kept in {self.directory}: {error}", stacklevel=2)

    def _path(self, key: list[str]) -> Path:
        return self.directory / f"{_digest([FORMAT, __version__, *key])}.json"

    def _write(self, path: Path, text: str) -> None:
        """Write a file at once, so that nobody reads a part of it."""
        handle, name = tempfile.mkstemp(dir=self.directory, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _shrink(self) -> None:
        found = []
        for path in self.directory.glob("*.json"):
            with suppress(OSError):  # another process may have removed it
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size


def _header(key: list[str], value: Any) -> dict[str, Any]:
    """What a file says beside its value."""
    return {"format": FORMAT, "version": __version__, "key": key, "digest": _digest(value)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()

"""A key-value store in files, which outlives the process."""

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

#: The environment variable that names the folder of caches.
DIRECTORY_VARIABLE = "CONSTRAIN_CACHE_DIR"

#: Version of the file format; to be incremented with every change of it.
FORMAT = 1

#: Larger files are taken for damaged.
MAX_FILE_BYTES = 64 << 20


class Store:
    """JSON values by key, one file each in one folder.

    A file that is damaged or from another version of constrain counts as missing. Several processes may share a
    folder. Values are trusted as far as write access to the folder is, but nothing is unpickled or executed.

    Args:
        directory: the folder; created with the first value.
        max_bytes: maximum size of the folder; beyond it the oldest files are removed.
    """

    def __init__(self, directory: str | Path, max_bytes: int = 64 << 20) -> None:
        self.directory = Path(directory).expanduser()
        self.max_bytes = max_bytes

    def get(self, key: list[str]) -> Any:
        """Return the value of a key, or ``None``."""
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
        """Store a value of JSON types; warns if the folder cannot be written to."""
        text = json.dumps({**_header(key, value), "value": value})
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(self._path(key), text)
            self._shrink()
        except OSError as error:
            warnings.warn(f"cannot write to the cache {self.directory}: {error}", stacklevel=2)

    def _path(self, key: list[str]) -> Path:
        return self.directory / f"{_digest([FORMAT, __version__, *key])}.json"

    def _write(self, path: Path, text: str) -> None:
        """Write a file atomically, so that no other process reads a part of it."""
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
    """Return the entries of a file other than its value."""
    return {"format": FORMAT, "version": __version__, "key": key, "digest": _digest(value)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()

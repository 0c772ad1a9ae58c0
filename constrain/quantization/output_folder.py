"""The folder of a conversion: files that are complete or not there, and a record of them by which it can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load_file, save_file

from constrain.errors import ArgumentError
from constrain.tokenizer.files import read_json_object

RECORD_FILE = "quantization.json"
_PARTIAL = ".partial"
_READ_BYTES = 1 << 20


class OutputFolder:
    """The files of a conversion with some settings.

    A file is written under another name, synced, and renamed, and entered into the record with its digest only then.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Create the folder, or go on with the conversion in it.

        Raises:
            ArgumentError: it has a conversion with other settings, or other files.
        """
        self.path = path
        self._settings = json.loads(json.dumps(settings))
        self._files: dict[str, dict[str, Any]] = {}
        record = path / RECORD_FILE
        if record.exists():
            found = read_json_object(record)
            self._check_settings(found.get("settings"))
            self._files = found.get("files", {})
        elif path.exists() and any(file.name != f"{RECORD_FILE}{_PARTIAL}" for file in path.iterdir()):
            raise ArgumentError(f"{path}: not an empty folder, and not one of an interrupted conversion")
        path.mkdir(parents=True, exist_ok=True)
        for left in path.glob(f"*{_PARTIAL}"):
            left.unlink()
        self._write_record()

    def tensors(self, name: str) -> dict[str, torch.Tensor] | None:
        """Return the tensors of a file; ``None`` if it is not there as it was written."""
        return load_file(self.path / name) if self.has(name) else None

    def has(self, name: str) -> bool:
        """Whether a file is there as it was written, which is checked by its digest."""
        entry = self._files.get(name)
        return entry is not None and (self.path / name).is_file() and entry["sha256"] == digest(self.path / name)

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """The files of tensors, by name: ``tensors`` (their names), ``bytes`` and ``errors``, see :meth:`save`."""
        return self._files

    def save(self, name: str, tensors: dict[str, torch.Tensor], errors: Mapping[str, float]) -> None:
        """Write a file of tensors, and note the errors of its weights, by the names of layers."""
        with self.replaced(name) as partial:
            save_file(tensors, str(partial), metadata={"format": "pt"})
            # Else it could be read by its owner only.
            shutil.copymode(self.path / RECORD_FILE, partial)
        self._files[name] = {
            "sha256": digest(self.path / name),
            "tensors": [*tensors],
            "bytes": sum(tensor.nbytes for tensor in tensors.values()),
            "errors": {**errors},
        }
        self._write_record()

    def save_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a file of JSON, which is not in the record."""
        with self.replaced(name) as partial:
            partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @contextmanager
    def replaced(self, name: str) -> Iterator[Path]:
        """Give a name to write to; the file gets its own name when it is complete and on the disk."""
        partial = self.path / f"{name}{_PARTIAL}"
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(self.path / name)

    def _write_record(self) -> None:
        self.save_json(RECORD_FILE, {"settings": self._settings, "files": self._files})

    def _check_settings(self, found: Any) -> None:
        if found == self._settings:
            return
        other = found if isinstance(found, dict) else {}
        names = [name for name in self._settings if other.get(name) != self._settings[name]]
        raise ArgumentError(
            f"{self.path}: has a conversion with other settings ({', '.join(names) or 'unknown ones'}); repeat those, "
            "remove the folder, or choose another one"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder.

    Raises:
        ArgumentError: one is just doing so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise ArgumentError(f"{path}: another process is writing to this folder; wait until it has ended") from None
    try:
        yield
    finally:
        lock.release()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            found.update(part)
    return found.hexdigest()


def sampled_digest(path: Path, samples: int = 64) -> str:
    """Return a SHA-256 of the size of a file and of samples of its content, for files that take long to read."""
    size = path.stat().st_size
    found = hashlib.sha256(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        for number in range(samples):
            file.seek(size * number // samples)
            found.update(file.read(_READ_BYTES // samples))
    return found.hexdigest()

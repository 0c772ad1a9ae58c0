"""The journal of a run: a file of JSON Lines that a run appends to, and that a later run continues.

When :meth:`Journal.append` returns, the operating system has the whole line, so that it survives the process. If that
ends during the write, the last line is torn, and the next run cuts it off. Lines change their place only by
:meth:`Journal.finish`, which writes another file and renames it to this one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from constrain.errors import RunError
from constrain.runs.key import SETTINGS_DIGITS
from constrain.runs.lines import Line, encode_line
from constrain.runs.lock import OutputLock

if TYPE_CHECKING:
    from typing_extensions import Self

#: How every line of a run begins.
_BEGIN = b'{"key": "'


class Journal:
    """Reads the lines of earlier runs, and appends those of this one. Only one journal at a time can have a file.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        """
        Args:
            path: the file; created if it is missing. A torn last line is cut off.

        Raises:
            OutputInUse: another run writes the file.
            RunError: the file cannot be read or written, or is not the output of a run.
        """
        given, self.path = Path(path), Path(path).resolve()
        self._new = self.path.with_name(f".{self.path.name}.new")
        with io_errors(self.path):
            if given.exists() and not given.is_file():  # what /dev/stdout leads to may have no path
                raise RunError(f"{path} is no regular file, so that no run can continue it: give another one, or none")
            self._lock = OutputLock(self.path)
            try:
                self._new.unlink(missing_ok=True)
                self._open()
            except BaseException:
                self._lock.release()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has_record(self, key: str) -> bool:
        """Return whether there is a record for a key."""
        return key in self._records

    def has_failure(self, key: str) -> bool:
        """Return whether there is a failure for a key, and no record."""
        return key in self._failures

    def num_others(self, settings: str) -> int:
        """Return the number of records and failures whose keys do not begin with these settings."""
        return sum(not key.startswith(settings) for key in self._records | self._failures)

    def append(self, line: Line, position: int = 0) -> None:
        """Append a line. It replaces an earlier failure of the same source and part, or of the whole source.

        Args:
            line: a record or a failure.
            position: not used: lines are appended as they come, and put in order by :meth:`finish`.

        Raises:
            RunError: the file cannot be written. It has all earlier lines, and no part of this one.
        """
        data = encode_line(line)
        with io_errors(self.path):
            try:
                _write(self._file, data)
            except OSError:
                with suppress(OSError):  # the next run cuts it off
                    os.ftruncate(self._file, self._end)
                raise
        self._note(line, self._end)
        self._end += len(data)

    def finish(self, keys: Iterable[str]) -> None:
        """Remove failures that were replaced, and put the lines in order: those of ``keys`` last, as these are ordered.

        The file is replaced in one step; if that is not needed, it is left alone. Records are never removed.

        Raises:
            RunError: the file cannot be replaced; it is as before.
        """
        offsets = self._failures | self._records
        last = [offsets.pop(key) for key in keys if key in offsets]
        order = [*sorted([*self._foreign, *offsets.values()]), *last]
        if len(order) < self._num_lines or any(one > other for one, other in pairwise(order)):
            with io_errors(self.path):
                self._rewrite(order)

    def close(self) -> None:
        """Release the file for other writers."""
        os.close(self._file)
        self._lock.release()

    def _open(self) -> None:
        """Open the file, index its lines, and cut off a torn one at its end."""
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        #: Offsets of records and of failures by key, and of lines without a key.
        self._records: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._foreign: list[int] = []
        #: Keys of failures by what failed, see :func:`_place`.
        self._failed: dict[str, str] = {}
        self._num_lines = self._end = 0
        raw = b"\n"
        with self.path.open("rb") as file:
            for raw in file:
                if not raw.endswith(b"\n") and _is_torn(raw):
                    os.ftruncate(self._file, self._end)
                    return
                self._note(self._parsed(raw), self._end)
                self._end += len(raw)
        if not raw.endswith(b"\n"):
            self._end += _write(self._file, b"\n")

    def _parsed(self, raw: bytes) -> Line:
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise self._unusable(f"is not JSON ({error})") from error
        if not isinstance(line, dict):
            raise self._unusable("is no JSON object")
        if not ({"key", "source"} & line.keys() and {"record", "error"} & line.keys()):
            raise self._unusable("is neither a record nor a failure")
        return line

    def _unusable(self, reason: str) -> RunError:
        return RunError(
            f"line {self._num_lines + 1} of {self.path} {reason}: it is damaged, or not the output of a run; "
            "repair it, or choose another file"
        )

    def _note(self, line: Line, offset: int) -> None:
        """Enter a line into the index."""
        self._num_lines += 1
        key = line.get("key")
        if not isinstance(key, str):
            self._foreign.append(offset)
            return
        place = _place(key, line, line.get("part"))
        for each in {place, _place(key, line, None)}:
            if (replaced := self._failed.pop(each, None)) is not None:
                del self._failures[replaced]
        if "error" not in line:
            self._records[key] = offset
        elif key not in self._records:
            self._failures[key] = offset
            self._failed[place] = key

    def _rewrite(self, order: Iterable[int]) -> None:
        """Replace the file by one with the lines at these offsets."""
        try:
            with self.path.open("rb") as source, self._new.open("wb") as target:
                for offset in order:
                    source.seek(offset)
                    target.write(source.readline())
                target.flush()
                os.fsync(target.fileno())
            shutil.copymode(self.path, self._new)
            self._new.replace(self.path)
        except BaseException:
            self._new.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._open()


def _place(key: str, line: Line, part: Mapping[str, Any] | None) -> str:
    """Return settings, source and part of a line. If the document changes, these stay, and the key does not."""
    source, named = line.get("source"), {name: value for name, value in (part or {}).items() if name != "span"}
    return key if source is None else json.dumps([key[:SETTINGS_DIGITS], source, named])


def _is_torn(raw: bytes) -> bool:
    """Return whether a last line without a line break is the beginning of a line of a run."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return raw.startswith(_BEGIN) or _BEGIN.startswith(raw)
    return False


def _write(file: int, data: bytes) -> int:
    """Write all of the data, and return its length."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
    return len(data)


@contextmanager
def io_errors(path: Path) -> Iterator[None]:
    """Raise errors of the file system as a :class:`RunError`."""
    try:
        yield
    except OSError as error:
        kept = "; what was in it is still there" if _has_content(path) else ""
        raise RunError(f"cannot write {path}: {error.strerror or error}{kept}") from error


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False

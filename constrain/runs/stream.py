"""The output of a run as a stream, such as standard output, that no later run can continue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

from constrain.errors import RunError
from constrain.runs.lines import Line, encode_line

if TYPE_CHECKING:
    from typing_extensions import Self


class Stream:
    """Writes lines to a binary file in the order of the documents, each as soon as the earlier ones are written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._next = 0
        self._early: dict[int, Line] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def has_record(self, key: str) -> bool:
        """Return false: earlier lines cannot be read."""
        return False

    def has_failure(self, key: str) -> bool:
        """Return false, as :meth:`has_record`."""
        return False

    def num_others(self, settings: str) -> int:
        """Return 0, as :meth:`has_record`."""
        return 0

    def append(self, line: Line, position: int = 0) -> None:
        """Write a line, unless that of an earlier position is missing; then it is written after that.

        Raises:
            RunError: nobody reads the stream any more, or it cannot be written.
        """
        self._early[position] = line
        while self._next in self._early:
            self._write(self._early.pop(self._next))
            self._next += 1

    def finish(self, keys: Iterable[str]) -> None:
        """Write the lines that wait for those of documents that were not finished."""
        for position in sorted(self._early):
            self._write(self._early.pop(position))

    def _write(self, line: Line) -> None:
        try:
            self._file.write(encode_line(line))
            self._file.flush()
        except BrokenPipeError as error:
            raise RunError("nobody reads the output any more") from error
        except OSError as error:
            raise RunError(f"cannot write the output: {error.strerror or error}") from error

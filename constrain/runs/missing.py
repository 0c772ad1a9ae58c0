"""The documents that are missing in the output of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from constrain.documents import Document
from constrain.runs.read_ahead import ReadAhead
from constrain.runs.work import Work


class Missing(Iterator[Document]):
    """Documents to extract from, chosen among those that are read ahead: :class:`~constrain.completion.Inputs`.

    Attributes:
        was_stopped: whether it was stopped before its end.
    """

    def __init__(
        self, works: ReadAhead[Work], document_of: Callable[[Work], Document | None], stop: Callable[[], bool]
    ) -> None:
        """
        Args:
            works: what may be missing.
            document_of: returns the document to extract from, or ``None`` if there is nothing to do for a work.
            stop: called before each work; nothing is missing any more once it returns true.
        """
        self._works, self._document_of, self._stop = works, document_of, stop
        self._next: Document | None = None
        self.was_stopped = self._is_ended = False
        self._error: Exception | None = None

    def __next__(self) -> Document:
        if not self.is_any():
            self.raise_error()
        document, self._next = self._next, None
        if document is None:
            raise StopIteration
        return document

    def is_any(self) -> bool:
        """Wait for the next document, and return whether there is one."""
        while self._next is None and not self._is_ended:
            self._advance()
        return self._next is not None

    def raise_error(self) -> None:
        """Raise the error that ended the documents, if one did."""
        if self._error is not None:
            raise self._error

    def is_ready(self) -> bool:
        """Return whether the next document, or the end, is there."""
        while self._next is None and not self._is_ended and self._works.is_ready():
            self._advance()
        return self._next is not None or self._is_ended

    def is_stopped(self) -> bool:
        """Return whether to end with the documents that have started."""
        is_stopped = self._stop()
        self.was_stopped |= is_stopped and not self._is_ended
        return is_stopped

    def _advance(self) -> None:
        """Take notice of the next work; an error waits until the next document is asked for."""
        if self._stop():
            self.was_stopped = self._is_ended = True
            return
        try:
            work = next(self._works, None)
            self._is_ended = work is None
            self._next = None if work is None else self._document_of(work)
        except Exception as error:
            self._is_ended, self._error = True, error

"""A run: extracts a record from each of many documents, except for those that an earlier run has finished."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from constrain.documents import Document
from constrain.errors import ConstrainError, ExtractionError, RunError
from constrain.extract.restated import restated
from constrain.runs.lines import Line, failure_line, record_line
from constrain.runs.missing import Missing
from constrain.runs.read_ahead import ReadAhead
from constrain.runs.work import Input, Work, read_works

if TYPE_CHECKING:
    from constrain.completion import Failure
    from constrain.documents import PartKind
    from constrain.extract import Extraction, Target, Usage

#: Number of unexpected errors in a row that end a run: then no document is to blame.
MAX_UNEXPECTED = 10

#: Documents that are read before there is a place for them.
_READ_AHEAD = 16

#: Extracts records from documents, several at a time, and yields the results as they come, with their positions.
#: It is called only if a document is missing.
Extract: TypeAlias = "Callable[[Missing], Generator[Extraction[Any] | Failure, None, None]]"


class Output(Protocol):
    """Destination of the lines of a run: a :class:`~constrain.runs.Journal` or a :class:`~constrain.runs.Stream`."""

    def has_record(self, key: str) -> bool:
        """Return whether there is a record for a key."""

    def has_failure(self, key: str) -> bool:
        """Return whether there is a failure for a key, and no record."""

    def num_others(self, settings: str) -> int:
        """Return the number of lines that were made with other settings."""

    def append(self, line: Line, position: int = 0) -> None:
        """Write the line of the document at a position."""

    def finish(self, keys: Iterable[str]) -> None:
        """Put the lines in order."""


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        records: documents whose records this run has written.
        failures: documents that failed in this run.
        present: documents whose records were there before.
        failed_before: documents that failed in an earlier run and were not tried again.
        of_other_settings: lines in the output of another schema, model or setting, which the run leaves there.
        is_stopped: whether the run ended before the documents did.
        prompt_tokens, cached_tokens, output_tokens: sums over the records of this run.
        started: time of the monotonic clock at which the run started.
    """

    records: int = 0
    failures: int = 0
    present: int = 0
    failed_before: int = 0
    of_other_settings: int = 0
    is_stopped: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    started: float = field(default_factory=monotonic)

    def add(self, usage: Usage) -> None:
        """Count a record and its tokens."""
        self.records += 1
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.output_tokens += usage.output_tokens

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return monotonic() - self.started

    @property
    def all_failures(self) -> int:
        """Documents without a record, that failed in this run or before."""
        return self.failures + self.failed_before

    @property
    def documents(self) -> int:
        """Documents that are finished, in this run or before."""
        return self.records + self.failures + self.present + self.failed_before


class Run:
    """Extracts a record from each of many documents, and writes a line for each as soon as it is there.

    Attributes:
        progress: how far the run is.
        keys: the keys of the documents so far, in order.
    """

    def __init__(
        self,
        extract: Extract,
        target: Target[Any],
        settings: str,
        output: Output,
        *,
        each: PartKind | None = None,
        retry_failed: bool = False,
        stop: Callable[[], bool] = lambda: False,
        on_line: Callable[[Progress, Line | None], None] = lambda progress, line: None,
    ) -> None:
        """
        Args:
            extract: extracts the records; it is given the documents that are missing, and called only if there are any.
            target: schema and type of the records.
            settings: the beginning of the keys, see :func:`~constrain.runs.settings_key`.
            output: where the lines go.
            each: extract a record from each part of this kind instead of each document.
            retry_failed: try documents again that failed in an earlier run.
            stop: asked before each document; once it returns true, only those in progress are finished.
            on_line: called after each document with the progress, and its line if it was not skipped.
        """
        self._extract, self._target, self._settings, self._output = extract, target, settings, output
        self._each, self._retry_failed, self._stop, self._on_line = each, retry_failed, stop, on_line
        self._in_flight: dict[int, tuple[int, Work]] = {}
        self._num_new = self._num_started = self._unexpected = 0
        self.progress = Progress()
        self.keys: dict[str, None] = {}

    def extract(self, inputs: Iterable[Input]) -> Progress:
        """Extract the records that are missing, and put the lines of the output in order.

        The inputs are read on a thread of their own, a few documents ahead of those in progress.

        A document that fails is a line like the others.

        Raises:
            RunError: the output cannot be written, or too many documents in a row failed unexpectedly. The output has
                what was done until then.
            Exception: what the inputs raise.
        """
        with closing(ReadAhead(read_works(self._settings, inputs, self._each), _READ_AHEAD)) as works:
            missing = Missing(works, self._document_of, self._stop)
            if missing.is_any():
                self._extract_from(missing)
            else:
                missing.raise_error()
        self.progress.is_stopped = missing.was_stopped or bool(self._in_flight)
        self._output.finish(self.keys)
        self.progress.of_other_settings = self._output.num_others(self._settings)
        return self.progress

    def _extract_from(self, missing: Missing) -> None:
        with closing(self._extract(missing)) as results:
            for result in results:
                self._finish(result)

    def _document_of(self, work: Work) -> Document | None:
        """Return what to extract from; ``None`` if this or an earlier run has seen the work, or if it fails at once."""
        if work.key in self.keys:
            return None
        self.keys[work.key] = None
        if self._is_done(work.key):
            self._on_line(self.progress, None)
            return None
        position, self._num_new = self._num_new, self._num_new + 1
        if not isinstance(work.document, Document):
            self._fail(position, work, work.document)
            return None
        self._in_flight[self._num_started] = position, work
        self._num_started += 1
        return work.document

    def _is_done(self, key: str) -> bool:
        """Return whether an earlier run has done a work, and count it then."""
        if self._output.has_record(key):
            self.progress.present += 1
            return True
        if self._output.has_failure(key) and not self._retry_failed:
            self.progress.failed_before += 1
            return True
        return False

    def _finish(self, result: Extraction[Any] | Failure) -> None:
        """Write the line of a document that was given to be extracted from."""
        position, work = self._in_flight.pop(result.index)
        if result.error is not None:
            self._fail(position, work, result.error)
            return
        try:
            found = restated(result, self._target)
        except ExtractionError as error:
            self._fail(position, work, error)
            return
        line = record_line(work.key, found, found.json, work.part)
        self._output.append(line, position)
        self._unexpected = 0
        self.progress.add(result.usage)
        self._on_line(self.progress, line)

    def _fail(self, position: int, work: Work, error: Exception) -> None:
        line = failure_line(work.key, work.source, work.part, error)
        self._output.append(line, position)
        self._unexpected = 0 if isinstance(error, ConstrainError) else self._unexpected + 1
        self.progress.failures += 1
        self._on_line(self.progress, line)
        if self._unexpected == MAX_UNEXPECTED:
            last = f"{type(error).__name__}: {error}"
            raise RunError(f"{MAX_UNEXPECTED} documents in a row failed unexpectedly, the last by {last}") from error

"""The work of a run: documents that are read when their turn comes, each with its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from constrain.documents import Document, Part, PartKind, Source, parts
from constrain.errors import ExtractionError
from constrain.runs.key import work_key

#: A document of a run, or where to read it.
Input: TypeAlias = "str | Document | Source"


@dataclass(frozen=True)
class Work:
    """A document to extract a record from.

    Attributes:
        key: see :func:`~constrain.runs.work_key`.
        source: where the document comes from.
        document: the document, or why there is nothing to extract from: it is empty, or the error of its reader.
        part: which part of the source it is, such as ``{"page": 3, "span": [2011, 2950]}``; empty for all of it.
    """

    key: str
    source: str | None
    document: Document | Exception
    part: Mapping[str, Any] = field(default_factory=dict)


def read_works(settings: str, inputs: Iterable[Input], each: PartKind | None = None) -> Iterator[Work]:
    """Read documents one at a time.

    Args:
        settings: the beginning of their keys, see :func:`~constrain.runs.settings_key`.
        inputs: the documents.
        each: divide them into parts of this kind.

    Raises:
        ArgumentError: an input is neither a text nor a document nor a source, or ``each`` is no kind of part.
    """
    for one in inputs:
        try:
            document = one.read() if isinstance(one, Source) else Document.of(one)
        except Exception as error:  # the libraries of the readers may raise anything
            if not isinstance(one, (Source, str)):
                raise
            yield _failed(settings, one, error)
            continue
        yield from (each and _divided(settings, document, each)) or [_work(settings, document, {})]


def _divided(settings: str, document: Document, each: PartKind) -> list[Work]:
    """Return the parts of a document, if any, in order; among them its pages without text, which are failures."""
    divided = [(part.start, _work(settings, part, {each: part.number})) for part in parts(document, each)]
    starts = {page.number: page.start for page in document.pages}
    unread = [
        (starts.get(number, 0), _without_text(settings, document, number)) for number in document.pages_without_text
    ]
    return [work for _, work in sorted([*divided, *unread], key=lambda placed: placed[0])] if divided else []


def _work(settings: str, document: Document, part: dict[str, Any]) -> Work:
    if isinstance(document, Part):
        part["span"] = [document.start, document.end]
    key = work_key(settings, document.source, part, document.identity)
    empty = ExtractionError("the document is empty") if document.is_empty else None
    return Work(key, document.source, empty or document, part)


def _without_text(settings: str, document: Document, page: int) -> Work:
    part = {"page": page}
    error = ExtractionError("the page has no text, only images, as a scan: run OCR over it first, such as ocrmypdf")
    return Work(work_key(settings, document.source, part, document.identity), document.source, error, part)


def _failed(settings: str, one: Source | str, error: Exception) -> Work:
    source, identity = (one.name, None) if isinstance(one, Source) else (None, one)
    return Work(work_key(settings, source, {}, identity), source, error)

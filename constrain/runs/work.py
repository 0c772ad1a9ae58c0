"""The work of a run: documents that are read when their turn comes, each with its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from constrain.documents import Document, Source
from constrain.runs.key import work_key

#: A document of a run, or where to read it.
Input: TypeAlias = "str | Document | Source"


@dataclass(frozen=True)
class Work:
    """A document to extract a record from.

    Attributes:
        key: see :func:`~constrain.runs.work_key`.
        source: where the document comes from.
        document: the document, or the error that reading it raised.
        part: which part of the source it is; empty for all of it.
    """

    key: str
    source: str | None
    document: Document | Exception
    part: Mapping[str, Any] = field(default_factory=dict)


def read_works(settings: str, inputs: Iterable[Input]) -> Iterator[Work]:
    """Read documents one at a time.

    Args:
        settings: the beginning of their keys, see :func:`~constrain.runs.settings_key`.
        inputs: the documents.

    Raises:
        ArgumentError: an input is neither a text nor a document nor a source.
    """
    for each in inputs:
        yield _read(settings, each) if isinstance(each, Source) else _work(settings, Document.of(each))


def _work(settings: str, document: Document) -> Work:
    return Work(work_key(settings, document.source, {}, document.text), document.source, document)


def _read(settings: str, source: Source) -> Work:
    try:
        return _work(settings, source.read())
    except Exception as error:  # the libraries of the readers may raise anything
        return Work(work_key(settings, source.name, {}, None), source.name, error)

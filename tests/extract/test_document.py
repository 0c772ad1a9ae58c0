"""Documents: pages, and the boxes of their characters."""

from __future__ import annotations

import pytest

from constrain.documents import Box, Document, Page
from constrain.errors import ArgumentError


def two_pages() -> Document:
    first = Page(1, 0, 4, 100, 100, ((0, 0, 5, 10), (5, 0, 10, 10), None, (0, 20, 5, 30)))
    second = Page(2, 4, 6, 100, 100, ((0, 0, 5, 10), (5, 1, 10, 9)))
    return Document("ab\ncde", pages=(first, second))


def test_a_string_is_a_document_without_source_and_pages() -> None:
    document = Document.of("text")
    assert (document.text, document.source, document.pages) == ("text", None, ())
    assert document.page_at(0) is None
    assert document.boxes(0, 4) == []
    assert Document.of(document) is document


def test_a_text_must_be_a_string() -> None:
    with pytest.raises(ArgumentError, match="the text of a document"):
        Document.of(3)  # type: ignore[arg-type]


def test_an_offset_has_a_page() -> None:
    document = two_pages()
    assert [page.number for page in map(document.page_at, range(6)) if page] == [1, 1, 1, 1, 2, 2]


def test_boxes_are_joined_by_lines_and_pages() -> None:
    assert two_pages().boxes(0, 6) == [Box(1, 0, 0, 10, 10), Box(1, 0, 20, 5, 30), Box(2, 0, 0, 10, 10)]
    assert two_pages().boxes(5, 6) == [Box(2, 5, 1, 10, 9)]
    assert two_pages().boxes(2, 3) == []

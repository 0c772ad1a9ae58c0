"""Parts: pages, paragraphs and rows, which know where they stand in the whole document."""

from __future__ import annotations

import pytest

from constrain.documents import Document, Page, Part, PartKind, part_of, parts
from constrain.errors import ArgumentError

TEXT = "First paragraph\nof two lines.\n\n  \nSecond: Grüße 😀\n\nThird"
SECOND_PAGE = TEXT.index("Second")


def document() -> Document:
    """A document of two pages, with boxes of the second."""
    boxes = tuple((float(index), 0.0, index + 1.0, 10.0) for index in range(len(TEXT) - SECOND_PAGE))
    pages = (Page(1, 0, SECOND_PAGE - 5), Page(2, SECOND_PAGE, len(TEXT), 100, 200, boxes))
    return Document(TEXT, "a.pdf", {"title": "A title"}, pages)


@pytest.mark.parametrize(
    ("each", "texts"),
    [
        ("page", ["First paragraph\nof two lines.", "Second: Grüße 😀\n\nThird"]),
        ("paragraph", ["First paragraph\nof two lines.", "Second: Grüße 😀", "Third"]),
        ("row", ["First paragraph", "of two lines.", "Second: Grüße 😀", "Third"]),
    ],
)
def test_parts_are_pieces_of_the_text_and_know_where(each: PartKind, texts: list[str]) -> None:
    whole = document()
    found = list(parts(whole, each))
    assert [part.text for part in found] == texts
    assert [whole.text[part.start : part.end] for part in found] == texts
    assert [part.number for part in found] == list(range(1, len(texts) + 1))
    assert all(part.whole is whole and (part.source, part.metadata) == ("a.pdf", whole.metadata) for part in found)


def test_boxes_of_a_part_are_those_of_the_whole() -> None:
    whole = document()
    part = list(parts(whole, "paragraph"))[1]
    start = part.text.index("Grüße")
    assert part.boxes(start, start + 5) == whole.boxes(part.start + start, part.start + start + 5) != []
    assert part.pages[0].number == 2 and part.page_at(0) == part.pages[0]


def test_a_part_of_a_part_is_one_of_the_whole() -> None:
    whole = document()
    inner = part_of(list(parts(whole, "page"))[1], 8, 13)
    assert isinstance(inner, Part) and inner.whole is whole
    assert whole.text[inner.start : inner.end] == inner.text == "Grüße"
    assert inner.boxes(0, 5) == whole.boxes(inner.start, inner.end)


def test_a_document_without_pages_is_one_page() -> None:
    assert [part.text for part in parts(Document("some text"), "page")] == ["some text"]


def test_empty_parts_are_left_out() -> None:
    for text in ("", " \n\n \n"):
        for each in ("page", "paragraph", "row"):
            assert not list(parts(Document(text), each))


def test_another_kind_of_part_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="each must be 'page', 'paragraph' or 'row', not 'line'"):
        parts(document(), "line")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="document must be a Document, not 'text'"):
        parts("text", "row")  # type: ignore[arg-type]

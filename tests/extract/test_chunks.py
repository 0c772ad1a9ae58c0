"""Chunks: never too long, complete, overlapping, and cut at the best borders."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrain.documents import Document, Page, Part
from constrain.errors import ArgumentError
from constrain.extract.chunks import chunks


def words(text: str) -> int:
    """Count words and punctuation marks, as a tokenizer roughly does."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def starts(found: list[Part]) -> list[int]:
    return [chunk.start for chunk in found]


SENTENCES = ["One. ", "Two words! ", "a sentence of some words more. ", "第一句。", "مرحبا؟ "]
PROSE = st.lists(st.sampled_from([*SENTENCES, "line\n", "\n\n", "x" * 30, " "]), max_size=60).map("".join)


@settings(deadline=None, derandomize=True)
@given(text=PROSE | st.text(), limit=st.integers(4, 40), share=st.floats(0, 0.5), data=st.data())
def test_chunks_are_complete_and_within_their_limit(text: str, limit: int, share: float, data: st.DataObject) -> None:
    borders = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=3)) | {0, len(text)})
    pages = tuple(Page(number, *border) for number, border in enumerate(pairwise(borders), 1))
    document = Document(text, pages=pages)
    overlap = int(share * limit)
    found = chunks(document, limit, overlap, len)
    assert all(len(chunk.text) <= limit for chunk in found)
    assert all(chunk.text == text[chunk.start : chunk.end] and chunk.whole is document for chunk in found)
    assert found[0].start == 0 and found[-1].end == len(text)
    for chunk, after in pairwise(found):
        assert chunk.start < after.start <= chunk.end < after.end
        assert chunk.end - after.start <= overlap


def test_a_short_document_is_one_chunk() -> None:
    for text in ("", "Short."):
        (chunk,) = chunks(Document(text), 10, 2, words)
        assert (chunk.text, chunk.start) == (text, 0)


def test_borders_of_pages_come_before_those_of_paragraphs_sentences_and_lines() -> None:
    page, paragraph, sentence = "page one ends ", "paragraph\n\n", "Sentence. "
    for better, worse in ((page, paragraph), (paragraph, sentence), (sentence, "Line\n"), ("Line\n", "word ")):
        text = f"{'start ' * 20}{better}{worse * 4}{'end ' * 20}"
        border = text.index(better) + len(better)
        pages = (Page(1, 0, border), Page(2, border, len(text))) if better == page else ()
        first, *_ = chunks(Document(text, pages=pages), 32, 0, words)
        assert first.end == border, better


def test_abbreviations_do_not_end_sentences() -> None:
    text = "The list. " * 5 + "It was on the 3. May in approx. five places, at No. 5 there, as the list says"
    first, _ = chunks(Document(text), 32, 0, words)
    assert first.text == "The list. " * 5


def test_only_sentences_longer_than_a_chunk_are_cut_at_words() -> None:
    text = f"Short one. {'Long ' * 27}end. Short two. {'Longer ' * 50}end."
    found = chunks(Document(text), 30, 0, words)
    assert all(words(chunk.text) <= 30 for chunk in found)
    assert f"{'Long ' * 27}end. " in [chunk.text for chunk in found]
    assert all(text[chunk.end - 1] == " " for chunk in found[:-1])


def test_neither_combining_marks_nor_joined_emoji_are_cut_off() -> None:
    for character in ("e\u0301", "👩\u200d👩\u200d👧", "☎\ufe0f"):
        for chunk in chunks(Document(character * 40), 9, 0, len):
            assert chunk.text == character * (len(chunk.text) // len(character))


def test_the_overlap_begins_at_the_best_border_that_it_has() -> None:
    paragraph = "Some words are here. And some there. \n\n"
    first, second, *_ = chunks(Document(paragraph * 10), 44, 22, words)
    assert (first.text, second.start) == (paragraph * 4, len(paragraph) * 2)


def test_limits_are_checked() -> None:
    for limit, overlap in ((0, 0), (10, 6), (10, -1)):
        with pytest.raises(ArgumentError):
            chunks(Document("text"), limit, overlap, len)


def test_a_hundred_pages_are_divided_with_few_counts() -> None:
    text = "\n\n".join("The quick brown fox jumps over the lazy dog. " * 60 for _ in range(100))
    counted = 0

    def count(piece: str) -> int:
        nonlocal counted
        counted += len(piece)
        return words(piece)

    assert len(chunks(Document(text), 1000, 100, count)) > 60
    assert counted < 4 * len(text)

"""Spans of quotes in a text: all occurrences, and the choice among them."""

from __future__ import annotations

import itertools
import random

import pytest

from constrain.extract.evidence import Path, Quotation
from constrain.extract.extraction import Span
from constrain.extract.spans import STEP_BACK, locate


def quotation(text: str, *path: str | int, whole_words: bool = False) -> Quotation:
    return Quotation(path, text, whole_words)


def test_a_quote_that_occurs_once_has_a_span_and_no_occurrences() -> None:
    spans, occurrences = locate([quotation("Ada", "name")], "By Ada.")
    assert spans == {"/name": Span(3, 6)}
    assert occurrences == {}


def test_spans_are_in_characters() -> None:
    text = "👩🏽\u200d🚀 e\u0301 𝔘\r\nAda"
    spans, _ = locate([quotation("𝔘\r\nAda", "a/b", 0)], text)
    assert spans == {"/a~1b/0": Span(len(text) - 6, len(text))}


def test_a_quote_alone_is_placed_at_its_first_occurrence() -> None:
    spans, occurrences = locate([quotation("aa", "x")], "baaab")
    assert spans == {"/x": Span(1, 3)}
    assert occurrences == {"/x": [Span(1, 3), Span(2, 4)]}


def test_occurrences_of_whole_words_are_whole_words() -> None:
    text = "Annabel and Ann and Ann-Marie"
    spans, occurrences = locate([quotation("Ann", "x", whole_words=True)], text)
    assert spans == {"/x": Span(12, 15)}
    assert occurrences == {"/x": [Span(12, 15), Span(20, 23)]}


def test_quotes_that_are_empty_or_do_not_occur_have_no_span() -> None:
    assert locate([quotation("", "x"), quotation("z", "y"), quotation("nn", "z", whole_words=True)], "Ann") == ({}, {})
    assert locate([], "Ann") == ({}, {})


def test_a_quote_is_placed_near_its_neighbours() -> None:
    text = "Apples 2 kg\nPears 3 kg\nPlums 2 kg"
    rows = [("Apples", "2 kg"), ("Pears", "3 kg"), ("Plums", "2 kg")]
    quotes = [
        quotation(value, index, name)
        for index, row in enumerate(rows)
        for name, value in zip(("fruit", "weight"), row, strict=True)
    ]
    spans, occurrences = locate(quotes, text)
    assert [spans[f"/{index}/weight"].start for index in range(3)] == [7, 18, 29]
    assert spans["/1/fruit"] == Span(12, 17)
    assert sorted(occurrences) == ["/0/weight", "/2/weight"]


def test_a_quote_is_placed_inside_its_sentence_rather_than_close_to_it() -> None:
    text = "Ada. The survey was late, but in the end it was Ada, who found it, and nobody else, of all people."
    sentence = text[5:]
    spans, _ = locate([quotation(sentence, "sentence"), quotation("Ada", "who")], text)
    assert spans["/who"].start == text.rindex("Ada")


def test_equal_items_of_a_list_are_placed_in_turn() -> None:
    text = "Oslo, Bergen, Oslo, Oslo"
    names = ["Oslo", "Bergen", "Oslo", "Oslo"]
    spans, _ = locate([quotation(name, "towns", index) for index, name in enumerate(names)], text)
    assert [span.start for span in spans.values()] == [0, 6, 14, 20]


def test_fields_of_an_object_may_share_a_place() -> None:
    spans, _ = locate([quotation("Oslo", "from"), quotation("Oslo", "to")], "Oslo" + " " * 100 + "Oslo")
    assert spans["/from"] == spans["/to"]


def test_a_distant_occurrence_is_no_better_than_the_same_place_again() -> None:
    text = "Oslo" + " " * 2 * STEP_BACK + "Oslo"
    spans, _ = locate([quotation("Oslo", 0), quotation("Oslo", 1)], text)
    assert spans["/0"] == spans["/1"]


def total_distance(paths: list[Path], spans: tuple[Span, ...]) -> float:
    total = 0.0
    for (one, a), (other, b) in itertools.pairwise(zip(paths, spans, strict=True)):
        here, there = (a.start + a.end) / 2, (b.start + b.end) / 2
        total += abs(here - there) + (STEP_BACK if one[0] != other[0] and here >= there else 0)
    return total


@pytest.mark.seeds(40)
def test_the_total_distance_is_least(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices("abc ", k=60)).ljust(700) + "abc"
    quotes = [
        quotation("".join(rng.choices("abc", k=rng.choice([1, 2, 2]))), index // 2, "ab"[index % 2])
        for index in range(5)
    ]
    spans, occurrences = locate(quotes, text)
    placed = [each for each in quotes if "/{}/{}".format(*each.path) in spans]
    paths, pointers = [each.path for each in placed], ["/{}/{}".format(*each.path) for each in placed]
    candidates = [[*occurrences.get(where, [])[:8], spans[where]] for where in pointers]
    best = min(total_distance(paths, choice) for choice in itertools.product(*candidates))
    assert total_distance(paths, tuple(spans[where] for where in pointers)) == best
    for each, where in zip(placed, pointers, strict=True):
        found = occurrences.get(where, [spans[where]])
        assert found == [Span(i, i + len(each.text)) for i in range(len(text)) if text.startswith(each.text, i)]

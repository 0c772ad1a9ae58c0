"""The measure of a model on documents written by hand, counted by hand."""

from __future__ import annotations

from typing import Any

from constrain.demo.handwritten import Handwritten
from constrain.demo.measure import Share, measure

TEXT = "Hive 4, kept by\nOla. Two frames; Ben saw 3 mites."
PROPERTIES = {
    "keeper": {"type": "string"},
    "place": {"anyOf": [{"type": "string", "x-verbatim": {"source": "text"}}, {"type": "null"}]},
    "mood": {"enum": ["calm", "cross"]},
    "seen": {"type": "array", "items": {"$ref": "#/$defs/Seen"}},
}
SEEN = {"type": "object", "properties": {"who": {"type": "string"}, "mites": {"type": ["integer", "null"]}}}
SCHEMA: dict[str, Any] = {"type": "object", "properties": PROPERTIES, "$defs": {"Seen": SEEN}}
GOLD = {
    "keeper": "Ola",
    "place": None,
    "mood": "calm",
    "seen": [{"who": "Ben", "mites": 3}, {"who": "Ola", "mites": None}],
}
DOCUMENT = Handwritten("hives", "four", TEXT, SCHEMA, GOLD)


def test_a_perfect_answer() -> None:
    result = measure([(DOCUMENT, GOLD)])
    assert result.values == Share(7, 7)
    assert result.in_lists == Share(4, 4)
    assert result.absent == Share(2, 2)
    assert result.free_outside == Share(0, 3)
    assert str(result.values) == "100.0% of 7"


def test_wrong_values_and_those_that_only_the_answer_has() -> None:
    seen = [{"who": "Ola", "mites": None}, {"who": "Dr Ben", "mites": 3}, {"who": "Queen", "mites": None}]
    result = measure([(DOCUMENT, {"keeper": "by Ola", "place": "Hive 4", "mood": "cross", "seen": seen})])
    assert result.values == Share(3, 8)  # three of seven, and the third item with a name that gold does not have
    assert result.in_lists == Share(3, 5)
    assert result.absent == Share(1, 2)
    assert result.free_outside == Share(2, 4)  # "by Ola" is in the text but for a line break
    assert result.quotes_outside == Share(0, 1)


def test_a_document_without_a_record() -> None:
    result = measure([(DOCUMENT, None)])
    assert (result.records, result.values, result.absent) == (Share(0, 1), Share(0, 7), Share(0, 2))
    assert str(result.free_outside) == "none"

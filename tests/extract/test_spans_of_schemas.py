"""Spans of random records: what is quoted stands in the text, for many schemas and in many scripts.

The schemas are 300 of MaskBench (https://github.com/guidance-ai/jsonschemabench, MIT licence), in which strings became
quotes, and strings, integers, booleans and enums values with evidence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from constrain.engine import Vocabulary, compile_json_schema
from constrain.engine.pointers import pointer
from constrain.engine.words import word_borders
from constrain.extract import Target
from constrain.extract.bounds import bounded
from constrain.extract.evidence import quote_schema
from constrain.extract.spans import locate
from constrain.extract.subschemas import Place, with_subschemas
from constrain.testing import byte_vocabulary, sample

CORPUS = Path(__file__).parent.parent / "data" / "maskbench.jsonl"
CASES = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]

TEXTS = {
    "English": "Invoice 7 - 'due' \"today\"\nfor Ada\\Bob: a naïve café, 1/2 off, due today.\x01",
    "German": "Größe: 3,5 m² in München\r\nStraße 12, Größe 40. Grüße aus Köln!",
    "Greek": "Ο Γιώργος πληρώνει\tτώρα 12 €, και ο Νίκος\nπληρώνει 12 €.",
    "Chinese": "我们在2024年3月5日付款。\n谢谢，付款人：王小明；付款人：李华。",
    "Arabic": "السلامُ عليكم\nدفعَ عليٌّ ١٢ دينارًا، ودفعَ عمرُ ١٢ دينارًا.",
    "emoji and marks": "e\u0301te\u0301 👩🏽\u200d🚀 🇩🇪🇫🇷 𝔘𝔫𝔦 \u2028end e\u0301 ❤\ufe0f हिन्दी a\u0308\u0323\r\n",
}
CONDITIONS = {"not", "if", "contains", "propertyNames"}
NARROWER = {"enum", "const", "pattern", "format", "minLength", "maxLength"}


def traced(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with quotes and evidence, and all properties required."""
    kinds = cycle(["quote", "evidence", "whole words"])

    def visit(node: Mapping[str, Any]) -> dict[str, Any]:
        def change(place: Place, child: Mapping[str, Any]) -> Any:
            return child if place[0] in CONDITIONS else visit(child)

        changed = with_subschemas(node, change)
        if isinstance(changed.get("properties"), dict) and changed.get("type") == "object":
            changed["required"] = list(changed["properties"])
        is_plain = changed.get("type") == "string" and NARROWER.isdisjoint(changed)
        if not is_plain and changed.get("type") not in ("integer", "boolean") and "enum" not in changed:
            return changed
        kind = next(kinds)
        if kind == "evidence":
            return {**changed, "x-evidence": True}
        return {**changed, **quote_schema(40, kind == "whole words")} if is_plain else changed

    return visit(schema)


def leaves(record: Any, *path: str | int) -> Iterator[tuple[str, Any]]:
    if isinstance(record, (dict, list)):
        for step, child in record.items() if isinstance(record, dict) else enumerate(record):
            yield from leaves(child, *path, step)
    else:
        yield pointer(path), record


def check(target: Target[Any], text: str, written: str) -> int:
    """Check the spans of the quotes in what was written; return their number."""
    reading = target.read(written)
    spans, occurrences = locate(reading.quotations, text)
    # A string that may be a quote or a word of an enum is not in the text where it is the latter.
    quotations = [each for each in reading.quotations if each.text in text]
    assert spans.keys() == {pointer(each.path) for each in quotations}
    values, borders = dict(leaves(reading.json)), word_borders(text)
    evidence = [value for where, value in leaves(json.loads(written)) if where.endswith("/quote")]
    for each in quotations:
        where = pointer(each.path)
        start, end = spans[where]
        assert text[start:end] == each.text
        assert text[start:end] == values.get(where) or text[start:end] in evidence
        assert not each.whole_words or (borders[start] and borders[end])
        places = occurrences.get(where, [spans[where]])
        assert spans[where] in places and {text[slice(*place)] for place in places} == {each.text}
    return len(spans)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return byte_vocabulary()


@pytest.mark.parametrize("language", TEXTS)
def test_spans_of_random_records(language: str, vocabulary: Vocabulary, tally: Counter[str]) -> None:
    text, share = TEXTS[language], list(TEXTS).index(language)
    for seed, case in enumerate(CASES[share :: len(TEXTS)]):
        target = Target.of(traced(case["schema"]))
        schema = bounded(target.output_schema, 40)
        grammar = compile_json_schema(
            schema, vocabulary, whitespace="single", property_order="schema", sources={"text": text}
        )
        tally["spans compared with their texts"] += check(target, text, sample(grammar, seed, max_tokens=100))

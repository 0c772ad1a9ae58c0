"""The documents written by hand: their records match their schemas and their texts."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import jsonschema_rs
import pytest

from constrain.demo import synth
from constrain.demo.handwritten import Handwritten, leaves, read_handwritten
from constrain.engine import compile_json_schema
from constrain.extract import Target
from constrain.testing import small_vocabulary

DOCUMENTS = read_handwritten(Path(__file__).parents[1] / "data" / "documents")
FAMILIES = Path(synth.__file__).parent / "families"
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: f"{each.kind}/{each.name}")


def unspaced(text: str) -> str:
    return " ".join(text.split())


@each_document
def test_the_record_matches_the_schema(document: Handwritten) -> None:
    validator = jsonschema_rs.Draft202012Validator(document.schema, validate_formats=True)
    assert not [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(document.record)]
    assert list(document.record) == list(document.schema["properties"])


@each_document
def test_strings_are_in_the_text(document: Handwritten) -> None:
    for value, schema in leaves(document.record, document.schema, document.schema):
        if isinstance(value, str) and not {"enum", "format", "pattern"} & schema.keys():
            is_quote = "x-verbatim" in schema
            text, wanted = (document.text, value) if is_quote else (unspaced(document.text), unspaced(value))
            assert re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text), value


@each_document
def test_the_schema_compiles(document: Handwritten) -> None:
    target = Target.of(document.schema)
    grammar = compile_json_schema(target.output_schema, small_vocabulary(), sources={"text": document.text})
    if target.output_schema == document.schema:  # without evidence
        assert grammar.accepts(json.dumps(document.record, ensure_ascii=False))


def test_there_are_enough_of_them_of_many_kinds() -> None:
    assert len(DOCUMENTS) >= 64
    assert len({each.kind for each in DOCUMENTS}) >= 16
    values = [value for each in DOCUMENTS for value, _ in leaves(each.record, each.schema, each.schema)]
    assert 1 / 8 < values.count(None) / len(values) < 1 / 5


def test_everyday_documents_are_short_with_schemas_of_ordinary_size() -> None:
    everyday = [each for each in DOCUMENTS if each.kind.startswith("everyday_")]
    assert everyday
    assert {9} == set(Counter(each.kind for each in everyday).values())
    for document in everyday:
        assert 60 <= len(document.text.split()) <= 300, document.name
        assert 7 <= len(document.schema["properties"]) <= 15, document.name


def test_the_generator_has_no_family_of_these_kinds() -> None:
    headings = re.findall(r"^== (.*)", "\n".join(each.read_text() for each in FAMILIES.rglob("*.txt")), re.MULTILINE)
    assert headings
    assert not {each.kind.replace("_", " ") for each in DOCUMENTS} & set(headings)

"""Keywords that look misspelled give a warning where a schema is used."""

from __future__ import annotations

import warnings

import pytest

import constrain
from constrain.extract import SchemaWarning


@pytest.fixture(scope="module")
def llm() -> constrain.LLM:
    return constrain.load()


def test_a_misspelled_keyword_gives_a_warning(llm: constrain.LLM) -> None:
    schema = {"type": "object", "propertis": {}, "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    with pytest.warns(SchemaWarning, match="#.*propertis.*did you mean"):
        llm.extract(schema, "Yes.", max_new_tokens=60)


def test_fields_without_properties_give_a_warning(llm: constrain.LLM) -> None:
    with pytest.warns(SchemaWarning, match='no keyword of the schema has an effect; fields are named in "properties"'):
        llm.extract({"name": "string"}, "Yes.", max_new_tokens=60)


def test_other_schemas_give_none(llm: constrain.LLM) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        llm.extract({"type": "boolean", "x-other": 1}, "Yes.", max_new_tokens=20)
        llm.extract({}, "Yes.", max_new_tokens=60)

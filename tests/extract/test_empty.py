"""An empty document is an error at once, at every door."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import constrain
from constrain.documents import Document
from constrain.errors import ExtractionError

SCHEMA = {"type": "object"}


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> constrain.LLM:
    return constrain.load(tiny_dir)


@pytest.mark.parametrize("document", ["", " \n\t", Document("\u00a0")])
def test_an_empty_document_is_an_error(llm: constrain.LLM, document: str | Document) -> None:
    with pytest.raises(ExtractionError, match="the document is empty"):
        llm.extract(SCHEMA, document)
    with pytest.raises(ExtractionError, match="the document is empty"):
        asyncio.run(llm.aextract(SCHEMA, document))


def test_an_empty_document_among_many_is_a_failure(llm: constrain.LLM) -> None:
    first, second = llm.extract_many({"enum": [1]}, ["", "text"])
    assert isinstance(first.error, ExtractionError) and second.error is None

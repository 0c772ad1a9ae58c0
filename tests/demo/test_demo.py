"""The built-in model and the documents that come with it."""

from __future__ import annotations

import jsonschema
import pytest

import constrain
from constrain.demo import DemoDocument, demo_documents, model_dir
from constrain.demo.evaluate import evaluate
from constrain.demo.synth import Split
from constrain.extract import Calibration


@pytest.fixture(scope="module")
def llm() -> constrain.LLM:
    return constrain.load()


def test_the_weights_are_small() -> None:
    assert (model_dir() / "model.safetensors").stat().st_size <= 32_000_000


def test_there_are_a_dozen_documents() -> None:
    documents = demo_documents()
    assert len(documents) >= 12
    assert [document.name for document in documents] == sorted(document.name for document in documents)
    for document in documents:
        jsonschema.Draft202012Validator.check_schema(document.schema)


@pytest.mark.parametrize("document", demo_documents(), ids=lambda document: document.name)
def test_records_of_the_documents_are_valid(llm: constrain.LLM, document: DemoDocument) -> None:
    record = llm.extract(document.schema, document.text).json
    jsonschema.validate(record, document.schema, jsonschema.Draft202012Validator)


def test_evaluation_of_held_out_documents() -> None:
    llm = constrain.load(calibration=Calibration(null_margin=0, end_margin=0))  # the constraint is the only difference
    bound, free = evaluate(llm, Split.WORDINGS, count=6, seed=2)
    assert bound.valid == 1.0
    assert bound.fields >= free.fields > 0.4

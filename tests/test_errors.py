"""Errors can be sent to other processes."""

from __future__ import annotations

import pickle

import pytest

from constrain.errors import (
    BudgetError,
    ConstrainError,
    DocumentError,
    ExtractionError,
    GenerationTimeout,
    OutputInUse,
    ResourceLimit,
    SchemaError,
    TokenizerNotFound,
)

ERRORS = [
    ConstrainError("it is so"),
    SchemaError("it is so", "/type", "type"),
    ResourceLimit("max_bytes", 10, "in the pattern"),
    BudgetError(1, 2),
    GenerationTimeout(1.5, "text"),
    DocumentError("a.pdf", "it is broken"),
    ExtractionError("it is so", "text", "length"),
    TokenizerNotFound("there is none"),
    OutputInUse("out.jsonl", "process 1"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_elsewhere(error: ConstrainError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))

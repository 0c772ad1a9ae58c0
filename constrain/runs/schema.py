"""The check of a schema before a run, so that a schema that does not compile is one error and not one a document."""

from __future__ import annotations

import json
from typing import Any

from constrain.engine import Report, Vocabulary, compile_json_schema
from constrain.errors import UnsatisfiableSchema

#: Stands for the document from which ``x-verbatim`` copies.
_SOURCES = {"text": "text"}


def check_schema(schema: dict[str, Any], vocabulary: Vocabulary) -> Report | None:
    """Compile a schema for the vocabulary of a model.

    Returns:
        What is enforced; ``None`` if that depends on the document.

    Raises:
        GrammarError: the schema does not compile.
    """
    try:
        return compile_json_schema(schema, vocabulary, property_order="schema", sources=_SOURCES).report
    except UnsatisfiableSchema:
        if "x-verbatim" in json.dumps(schema):
            return None
        raise

"""The check of a schema before a run, so that a schema that does not compile is one error and not one a document."""

from __future__ import annotations

from typing import Any

from constrain.engine import Report, Vocabulary, compile_json_schema
from constrain.errors import UnsatisfiableSchema
from constrain.extract.evidence import SOURCE, without_verbatim


def check_schema(schema: dict[str, Any], vocabulary: Vocabulary) -> Report:
    """Compile a schema for the vocabulary of a model, and return what is enforced.

    Raises:
        GrammarError: the schema does not compile, whatever the document.
    """
    try:
        return compile_json_schema(schema, vocabulary, property_order="schema", sources={SOURCE: "text"}).report
    except UnsatisfiableSchema:
        # The text that stands for the document may lack what the schema asks of quotes.
        return compile_json_schema(without_verbatim(schema), vocabulary, property_order="schema").report

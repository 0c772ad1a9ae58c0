"""The prompt of the built-in model: the compact schema, the text, and a mark after which the record starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrain.arguments import check_text
from constrain.extract.prompts.compact import describe

SCHEMA_MARK, TEXT_MARK, RECORD_MARK = "<|schema|>", "<|text|>", "<|record|>"


def build_prompt(schema: Mapping[str, Any] | bool, text: str) -> str:
    """Build the prompt for extracting a record that matches ``schema`` from ``text``.

    The marks are special tokens of the model's tokenizer (encode them as such); ``schema`` and ``text`` cannot inject
    them. Every schema can be rendered: parts that the compact form cannot express are omitted, and recursion is cut.

    Raises:
        ArgumentError: ``text`` is not a string.
    """
    check_text("text", text)
    return f"{SCHEMA_MARK}{unmarked(describe(schema))}{TEXT_MARK}{unmarked(text.strip())}{RECORD_MARK}"


def unmarked(text: str) -> str:
    """Return a text without the marks of the prompt."""
    return text.replace("<|", "< |")

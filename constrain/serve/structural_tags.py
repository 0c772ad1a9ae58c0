"""Structural tags, regular expressions and grammars of requests, with their mistakes as errors of the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from constrain.engine import DUMPS_LAYOUT, JsonLayout, Vocabulary, lark_of_structural_tag
from constrain.engine.lark import as_lark
from constrain.errors import LarkError, StructuralTagError
from constrain.serve.errors import APIError, in_grammar
from constrain.serve.formats import OutputFormat


def structural_tag(
    value: Mapping[str, Any], at: str, vocabulary: Vocabulary, layout: JsonLayout = DUMPS_LAYOUT
) -> OutputFormat:
    """Return the output format of a structural tag.

    Args:
        value: the structural tag.
        at: JSON pointer to it.
        vocabulary: of the model, whose special tokens may be part of tags.
        layout: how its JSON documents are written.

    Raises:
        APIError: it is malformed, or has a format that this server does not know.
    """
    try:
        tag = lark_of_structural_tag(value, vocabulary, layout=layout)
    except StructuralTagError as error:
        raise in_grammar(error, at) from error
    return OutputFormat(tag.text, tag.grammars, at, located=tag.located)


def compiled_pattern(pattern: str, at: str) -> re.Pattern[str]:
    """Return a compiled regular expression.

    Raises:
        APIError: it is malformed.
    """
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise APIError(f"{at}: not a regular expression: {error}", param=at, code="invalid_regex") from error


def lark_text(grammar: str, at: str) -> str:
    """Return a grammar in Lark's notation, which is translated if it is written in GBNF.

    Raises:
        APIError: it is malformed.
    """
    try:
        return as_lark(grammar)
    except LarkError as error:
        raise in_grammar(error, at) from error

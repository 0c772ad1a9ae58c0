"""Examples of a task: documents with their records, which are checked when they are given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from constrain.arguments import refused
from constrain.documents import Document
from constrain.engine.pointers import pointer
from constrain.errors import ArgumentError, ExtractionError
from constrain.extract.prompts.form import Example
from constrain.extract.spans import locate
from constrain.extract.target import Target


def checked_examples(target: Target[Any], examples: Any) -> tuple[Example, ...]:
    """Check examples, and write their records as the model would.

    Args:
        target: schema and type of the records.
        examples: pairs of a document, or its text, and its record: a value of the target's type, or JSON. A value with
            evidence is written as ``{"quote": ..., "value": ...}``.

    Raises:
        ArgumentError: an example is no such pair, its record does not match the schema, or a quote of it does not stand
            in its document; names the example, and the place in the record.
    """
    if isinstance(examples, (str, bytes)) or not isinstance(examples, Sequence):
        raise refused("examples", examples, "a list of pairs of a document and its record")
    return tuple(_checked(target, f"examples[{number}]", each) for number, each in enumerate(examples))


def _checked(target: Target[Any], name: str, example: Any) -> Example:
    if not isinstance(example, (tuple, list)) or len(example) != 2:
        raise refused(name, example, "a pair of a document and its record")
    document, record = example
    try:
        text, written = Document.of(document).text, target.write(record)
        quotations = target.read(written).quotations
    except (ArgumentError, ExtractionError) as error:
        has_evidence = target.output_schema != target.exact_schema
        hint = '; a value with evidence is {"quote": ..., "value": ...}' if has_evidence else ""
        raise ArgumentError(f"{name}: {error}{hint}") from error
    spans, _ = locate(quotations, text)
    for each in quotations:
        if (where := pointer(each.path)) not in spans:
            raise ArgumentError(f"{name}: the quote at #{where}, {each.text!r}, does not stand in the document")
    return Example(text, written)


def read_examples(path: Path) -> list[tuple[str, Any]]:
    """Read examples from JSON Lines, each ``{"document": TEXT, "record": RECORD}``.

    Raises:
        ArgumentError: the file cannot be read, or a line is something else; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # strings may have other line breaks
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: {error}") from error
    numbered = enumerate(lines, 1)
    return [_parsed(f"{path}, line {number}", line) for number, line in numbered if line.strip()]


def _parsed(place: str, line: str) -> tuple[str, Any]:
    try:
        example = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{place}: not JSON: {error}") from error
    if not isinstance(example, dict) or set(example) != {"document", "record"}:
        raise ArgumentError(f'{place}: must be {{"document": TEXT, "record": RECORD}}')
    return example["document"], example["record"]

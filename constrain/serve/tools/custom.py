"""Custom tools: the text that they take, which models write as the only argument of a function."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from constrain.engine import Vocabulary
from constrain.serve.formats import GrammarText, OutputFormat
from constrain.serve.protocol.custom import Definition
from constrain.serve.structural_tags import compiled_pattern, lark_text

#: Name of the argument.
INPUT = "input"

_BEFORE = re.compile(rf'\{{\s*"{INPUT}"\s*:\s*"')
#: Characters of a JSON string; of a pair of surrogates, both.
_CHARACTERS = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)


@dataclass(frozen=True)
class CustomText:
    """The text that a custom tool takes.

    Attributes:
        format: its form; ``None``: any text.
        vocabulary: of the model.
    """

    format: OutputFormat | None
    vocabulary: Vocabulary

    @classmethod
    def of(cls, given: Definition | None, at: str, vocabulary: Vocabulary) -> CustomText:
        """Return the text by a definition, or any.

        Args:
            given: the definition.
            at: JSON pointer to its text.
            vocabulary: of the model.

        Raises:
            APIError: it is malformed.
        """
        if given is None:
            return cls(None, vocabulary)
        reader: Any = lark_text if given.syntax == "lark" else compiled_pattern
        return cls(OutputFormat(reader(given.definition, at), pointer=at), vocabulary)

    def accepts(self, text: str) -> bool:
        """Return whether a text has the form."""
        return self.format is None or self.format.compile(self.vocabulary).accepts(text, special_tokens=True)


def schema_of(given: Definition | None) -> dict[str, Any]:
    """Return the JSON Schema of the arguments of the function that represents a custom tool in the prompt."""
    text = {"type": "string"}
    if given is not None:
        notation = "this Lark grammar" if given.syntax == "lark" else "this regular expression"
        text["description"] = f"A text by {notation}: {given.definition}"
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}


def json_of(text: str) -> str:
    """Return the arguments of a call with a text."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def json_expression(format: OutputFormat, text: GrammarText) -> str:
    """Return the expression of the arguments with a text of a form."""
    return f'"{{\\"{INPUT}\\":" " "? "\\"" {text.quote(format)} "\\"}}"'


class TextReader:
    """Reads the text from the arguments, piece by piece."""

    def __init__(self) -> None:
        self._json = ""
        self._place: int | None = None
        self._length = 0

    def feed(self, piece: str, is_whole: bool) -> str:
        """Return what a piece of the arguments adds to the text; ``is_whole``: it is the last one."""
        self._json += piece
        if is_whole:
            return str(json.loads(self._json)[INPUT])[self._length :]
        if self._place is None:
            before = _BEFORE.match(self._json)
            self._place = before.end() if before else None
        return "" if self._place is None else self._characters(self._place)

    def _characters(self, start: int) -> str:
        found = _CHARACTERS.match(self._json, start)
        assert found is not None  # it matches the empty text
        self._place = found.end()
        text = str(json.loads(f'"{found[0]}"', strict=False))
        self._length += len(text)
        return text

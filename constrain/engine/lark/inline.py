"""Extensions of Lark's notation: ``%json {...}``, ``%regex {...}``, other grammars ``@name``, tokens ``<x>``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise, product
from string import ascii_uppercase
from typing import Any, TypeAlias

from lark.load_grammar import TERMINALS

from constrain import _core
from constrain.errors import LarkError

_SKIPPED = "|".join(TERMINALS[name] for name in ("STRING", "REGEXP", "COMMENT"))
_INSERT = re.compile(rf"{_SKIPPED}|(?<!\w)(?:(?P<kind>%(?:json|regex)\b)\s*|@(?P<name>\w+)|(?P<special><[^<>\s]+>))")


@dataclass(frozen=True)
class InlineSchema:
    """A JSON Schema in a grammar, and the position of its ``%json``."""

    schema: Any
    line: int
    column: int

    @property
    def shown(self) -> str:
        """Its name in messages and reports."""
        return f"%json at line {self.line}, column {self.column}"


@dataclass(frozen=True)
class Substring:
    """Successive chunks of a text, and the position of their ``%regex``."""

    chunks: list[str]
    line: int
    column: int

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return f"%regex at line {self.line}, column {self.column}"


@dataclass(frozen=True)
class Reference:
    """A reference to another grammar, and the position of the first one."""

    name: str
    line: int
    column: int

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return f"@{self.name}"


@dataclass(frozen=True)
class SpecialToken:
    """A special token, and its first position; ``shown`` is its notation, and its name in messages."""

    shown: str
    line: int
    column: int

    @property
    def name(self) -> str:
        """Its name in the vocabulary: ``<[INST]>`` is the token ``[INST]``."""
        inner = self.shown[1:-1]
        return inner if inner[0] + inner[-1] == "[]" else self.shown


Insert: TypeAlias = InlineSchema | Substring | Reference | SpecialToken


@dataclass(frozen=True)
class PlainGrammar:
    """A grammar that lark can read, with every position as in the original.

    Attributes:
        text: the grammar, with a terminal in place of each extension, whose pattern is ``marker`` of its name.
        inserts: the extensions, by the names of these terminals.
    """

    text: str
    inserts: dict[str, Insert]


def take_inserts(text: str) -> PlainGrammar:
    """Replace the extensions of a grammar by terminals.

    Raises:
        LarkError: ``%json`` or ``%regex`` is not followed by JSON, or by JSON that it does not know.
    """
    names = _unused_names(text)
    pieces: list[str] = []
    inserts: dict[str, Insert] = {}
    names_by_text: dict[str, str] = {}
    end_of_last = 0
    while match := _next_insert(text, end_of_last):
        name = names_by_text.get(match[0]) or next(names)
        begin, end = match.span()
        if kind := match["kind"]:
            value, end = _json(text, end, kind)
            line, column = position(text, begin)
            inserts[name] = InlineSchema(value, line, column) if kind == "%json" else _substring(value, line, column)
        elif match[0] not in names_by_text:
            names_by_text[match[0]] = name
            kind, shown = (Reference, match["name"]) if match["name"] else (SpecialToken, match["special"])
            inserts[name] = kind(shown, *position(text, begin))
        pieces += [text[end_of_last:begin], _stand_in(name, text[begin:end])]
        end_of_last = end
    pieces += [text[end_of_last:], *(f'\n{name}: "{marker(name)}"' for name in inserts)]
    return PlainGrammar("".join(pieces), inserts)


def marker(name: str) -> str:
    """Return the pattern of a terminal that replaces an extension; it occurs nowhere else in the grammar."""
    return "@" + name


def position(text: str, offset: int) -> tuple[int, int]:
    """Convert an offset to line and column, counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _unused_names(text: str) -> Iterator[str]:
    """Yield names of terminals that do not occur in a text, short ones first, so that they fit in place of inserts."""
    names = ("".join(letters) for length in count(2) for letters in product(ascii_uppercase, repeat=length))
    return (name for name in names if name not in text)


def _next_insert(text: str, begin: int) -> re.Match[str] | None:
    return next((match for match in _INSERT.finditer(text, begin) if any(match.groupdict().values())), None)


def _json(text: str, begin: int, kind: str) -> tuple[Any, int]:
    """Parse the JSON value at an offset, and return it with the offset of its end."""
    what = "JSON Schema" if kind == "%json" else "JSON object"
    try:
        return json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise LarkError(f"no {what} after {kind}: {error.msg}", error.lineno, error.colno) from error
    except ValueError as error:
        raise LarkError(f"no {what} after {kind}: {error}", *position(text, begin)) from error
    except RecursionError as error:
        raise LarkError(f"the {what} after {kind} is nested too deeply", *position(text, begin)) from error


def _substring(value: Any, line: int, column: int) -> Substring:
    """Read the object after ``%regex``."""
    known = ("substring_chunks", "substring_words", "substring_chars")
    if not isinstance(value, dict) or len(value) != 1 or not set(value) <= set(known):
        raise LarkError(f"%regex needs an object with one of the keys {', '.join(known)}", line, column)
    ((key, content),) = value.items()
    listed = key == "substring_chunks"
    texts = content if isinstance(content, list) and listed else [content]
    if not all(isinstance(each, str) for each in texts) or (listed and not isinstance(content, list)):
        raise LarkError(f"{key} must be {'a list of texts' if listed else 'a text'}", line, column)
    if any("\ud800" <= char <= "\udfff" for each in texts for char in each):
        raise LarkError(f"{key} has half of a surrogate pair, which is no character", line, column)
    chunks = texts if listed else list(content) if key == "substring_chars" else _words(content)
    return Substring(chunks, line, column)


def _words(text: str) -> list[str]:
    """Split a text at the borders of words."""
    borders = [place for place, is_border in enumerate(_core.word_borders(text)) if is_border]
    return [text[begin:end] for begin, end in pairwise(borders)]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _stand_in(name: str, original: str) -> str:
    """Pad a name to the size of the original, so that later positions stay; ``\\`` continues a line of lark's."""
    *lines, last = original.split("\n")
    return name + "\\\n" * len(lines) + " " * (len(last) - (0 if lines else len(name)))

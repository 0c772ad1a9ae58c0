"""JSON Schemas inside a grammar: ``%json {...}``, which Lark itself does not have."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from lark.load_grammar import TERMINALS

from constrain.errors import LarkError

_SKIPPED = "|".join(TERMINALS[name] for name in ("STRING", "REGEXP", "COMMENT"))
_SCHEMA = re.compile(rf"{_SKIPPED}|(?P<json>%json\b\s*)")


@dataclass(frozen=True)
class InlineSchema:
    """A schema of a grammar, and where its ``%json`` stands."""

    schema: Any
    line: int
    column: int


@dataclass(frozen=True)
class PlainGrammar:
    """A grammar as lark can read it: every place is where it is in the original.

    Attributes:
        text: with a terminal instead of each schema. Its pattern is its own name, which occurs nowhere else.
        schemas: by the names of these terminals.
    """

    text: str
    schemas: dict[str, InlineSchema]


def take_schemas(text: str) -> PlainGrammar:
    """Puts a terminal in the place of each schema of a grammar.

    Raises:
        LarkError: what follows ``%json`` is not JSON.
    """
    stem = "JSON_"
    while stem in text:
        stem += "_"
    pieces: list[str] = []
    schemas: dict[str, InlineSchema] = {}
    done = 0
    while match := _next_schema(text, done):
        name = f"{stem}{len(schemas)}"
        schema, end = _schema(text, match.end())
        schemas[name] = InlineSchema(schema, *position(text, match.start()))
        pieces += [text[done : match.start()], _stand_in(name, text[match.start() : end])]
        done = end
    pieces += [text[done:], *(f'\n{name}: "{name}"' for name in schemas)]
    return PlainGrammar("".join(pieces), schemas)


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _next_schema(text: str, begin: int) -> re.Match[str] | None:
    return next((match for match in _SCHEMA.finditer(text, begin) if match["json"]), None)


def _schema(text: str, begin: int) -> tuple[Any, int]:
    """The JSON value that begins at an offset, and the offset of its end."""
    try:
        return json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise LarkError(f"no JSON Schema after %json: {error.msg}", error.lineno, error.colno) from error
    except ValueError as error:
        raise LarkError(f"no JSON Schema after %json: {error}", *position(text, begin)) from error
    except RecursionError as error:
        raise LarkError("the schema after %json is nested too deeply", *position(text, begin)) from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _stand_in(name: str, original: str) -> str:
    """A name with white space after it, so that what follows stands where it stood; lark's lines go on after ``\\``."""
    *lines, last = original.split("\n")
    return name + "\\\n" * len(lines) + " " * (len(last) - (0 if lines else len(name)))

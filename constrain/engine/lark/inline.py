"""What a grammar may contain beside what Lark has.

These are JSON Schemas, ``%json {...}``, names of other grammars, ``@name``, and special tokens, ``<name>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product
from string import ascii_uppercase
from typing import Any, TypeAlias

from lark.load_grammar import TERMINALS

from constrain.errors import LarkError

_SKIPPED = "|".join(TERMINALS[name] for name in ("STRING", "REGEXP", "COMMENT"))
_INSERT = re.compile(rf"{_SKIPPED}|(?<!\w)(?:(?P<json>%json\b\s*)|@(?P<name>\w+)|(?P<special><[^<>\s]+>))")


@dataclass(frozen=True)
class InlineSchema:
    """A schema of a grammar, and where its ``%json`` stands."""

    schema: Any
    line: int
    column: int

    @property
    def shown(self) -> str:
        """What messages and reports call it."""
        return f"%json at line {self.line}, column {self.column}"


@dataclass(frozen=True)
class Reference:
    """The name of another grammar, and where it stands first."""

    name: str
    line: int
    column: int

    @property
    def shown(self) -> str:
        """What messages call it."""
        return f"@{self.name}"


@dataclass(frozen=True)
class SpecialToken:
    """A special token, and where it stands first; ``shown`` is how it is written and what messages call it."""

    shown: str
    line: int
    column: int

    @property
    def name(self) -> str:
        """What the vocabulary calls it: ``<[INST]>`` is the token ``[INST]``."""
        inner = self.shown[1:-1]
        return inner if inner[0] + inner[-1] == "[]" else self.shown


Insert: TypeAlias = InlineSchema | Reference | SpecialToken


@dataclass(frozen=True)
class PlainGrammar:
    """A grammar as lark can read it: every place is where it is in the original.

    Attributes:
        text: with a terminal instead of each schema, name of another grammar, and special token. Its pattern is
            ``marker`` of its own name.
        inserts: by the names of these terminals.
    """

    text: str
    inserts: dict[str, Insert]


def take_inserts(text: str) -> PlainGrammar:
    """Puts terminals in the place of what lark cannot read.

    Raises:
        LarkError: what follows ``%json`` is not JSON.
    """
    names = _unused_names(text)
    pieces: list[str] = []
    inserts: dict[str, Insert] = {}
    known: dict[str, str] = {}
    done = 0
    while match := _next_insert(text, done):
        name = known.get(match[0]) or next(names)
        begin, end = match.span()
        if match["json"]:
            schema, end = _schema(text, end)
            inserts[name] = InlineSchema(schema, *position(text, begin))
        elif match[0] not in known:
            known[match[0]] = name
            kind, shown = (Reference, match["name"]) if match["name"] else (SpecialToken, match["special"])
            inserts[name] = kind(shown, *position(text, begin))
        pieces += [text[done:begin], _stand_in(name, text[begin:end])]
        done = end
    pieces += [text[done:], *(f'\n{name}: "{marker(name)}"' for name in inserts)]
    return PlainGrammar("".join(pieces), inserts)


def marker(name: str) -> str:
    """The pattern of a terminal that stands for something else; it occurs nowhere in the text."""
    return "@" + name


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _unused_names(text: str) -> Iterator[str]:
    """Names of terminals that occur nowhere; the short ones, which fit where an insert stood, come first."""
    names = ("".join(letters) for length in count(2) for letters in product(ascii_uppercase, repeat=length))
    return (name for name in names if name not in text)


def _next_insert(text: str, begin: int) -> re.Match[str] | None:
    return next((match for match in _INSERT.finditer(text, begin) if any(match.groupdict().values())), None)


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

"""Custom tools, which take a text where functions take arguments: of any form, or by a grammar."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Tag

from constrain.serve.protocol.fields import Strict, ToolName, by, tag


class AnyText(Strict):
    """The format of any text."""

    type: Literal["text"]


class Definition(Strict):
    """A grammar in Lark's notation, or a regular expression for whole texts."""

    syntax: Literal["lark", "regex"]
    definition: str


class GrammarFormat(Strict):
    """A grammar as chats have it."""

    type: Literal["grammar"]
    grammar: Definition


class FlatGrammarFormat(Definition):
    """A grammar as responses have it."""

    type: Literal["grammar"]


class CustomFields(Strict):
    """A tool of a chat."""

    name: ToolName
    description: str | None = None
    format: (
        Annotated[
            Annotated[AnyText, Tag(tag("text"))] | Annotated[GrammarFormat, Tag(tag("grammar"))],
            by("type", "text", "grammar"),
        ]
        | None
    ) = None


class CustomTool(Strict):
    """A tool of a chat, with its type."""

    type: Literal["custom"]
    custom: CustomFields


class FlatCustomTool(Strict):
    """A tool of a request for a response."""

    type: Literal["custom"]
    name: ToolName
    description: str | None = None
    format: (
        Annotated[
            Annotated[AnyText, Tag(tag("text"))] | Annotated[FlatGrammarFormat, Tag(tag("grammar"))],
            by("type", "text", "grammar"),
        ]
        | None
    ) = None


class _Name(Strict):
    name: str


class NamedCustomTool(Strict):
    """A tool of a chat that has to be called."""

    type: Literal["custom"]
    custom: _Name


class FlatNamedCustomTool(_Name):
    """A tool of a request for a response that has to be called."""

    type: Literal["custom"]


class CustomInput(_Name):
    """What a tool was called with."""

    input: str


class CustomCall(Strict):
    """A call in an earlier message of a chat."""

    id: str
    type: Literal["custom"]
    custom: CustomInput
    index: int | None = None

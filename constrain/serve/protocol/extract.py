"""``POST /v1/extract``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from constrain.serve.protocol.fields import JSONObject, JSONValue, Strict


class Example(Strict):
    """A document with its record."""

    document: str
    record: JSONValue


class ExtractRequest(Strict):
    """The body of the request: a document, as a text or an image, and the JSON Schema of its record."""

    model: str
    document: str = ""
    image: str | None = None
    schema_: JSONObject | bool = Field(alias="schema")
    instructions: str = ""
    examples: list[Example] = Field([])
    thinking: Annotated[int, Field(ge=0)] = 0
    max_tokens: Annotated[int, Field(ge=1)] = 1024
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: int | None = None

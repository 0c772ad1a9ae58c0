"""Structural tags of vLLM, SGLang and XGrammar: text in which tags enclose parts of a given form.

There are two notations: ``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``, and a tree of formats,
``{"format": {"type": ...}}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from constrain.engine import Vocabulary
from constrain.errors import LarkError
from constrain.serve.errors import APIError, in_grammar, invalid, pointer
from constrain.serve.formats import GrammarText, OutputFormat, any_of
from constrain.serve.gbnf import lark_of_gbnf
from constrain.serve.protocol.fields import Strict

_Schema = dict[str, Any] | bool


class _Structure(Strict):
    begin: Annotated[str, Field(min_length=1)]
    schema_: _Schema = Field(alias="schema")
    end: str


class _Structures(Strict):
    type: Literal["structural_tag"] = "structural_tag"
    structures: Annotated[list[_Structure], Field(min_length=1)]
    triggers: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


class _Formatted(Strict):
    type: Literal["structural_tag"] = "structural_tag"
    format: dict[str, Any]


class _ConstString(Strict):
    type: Literal["const_string"]
    value: str


class _JSONSchema(Strict):
    type: Literal["json_schema"]
    json_schema: _Schema


class _AnyText(Strict):
    type: Literal["any_text"]


class _Regex(Strict):
    type: Literal["regex"]
    pattern: str


class _Grammar(Strict):
    type: Literal["grammar"]
    grammar: str


class _Several(Strict):
    type: Literal["sequence", "or"]
    elements: Annotated[list[dict[str, Any]], Field(min_length=1)]


class _Tag(Strict):
    type: Literal["tag"] = "tag"
    begin: Annotated[str, Field(min_length=1)]
    content: dict[str, Any]
    end: str


class _TriggeredTags(Strict):
    type: Literal["triggered_tags"]
    triggers: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    tags: Annotated[list[_Tag], Field(min_length=1)]
    at_least_one: bool = False
    stop_after_first: bool = False


class _SeparatedTags(Strict):
    type: Literal["tags_with_separator"]
    tags: Annotated[list[_Tag], Field(min_length=1)]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


_NODES = (_ConstString, _JSONSchema, _AnyText, _Regex, _Grammar, _Several, _Tag, _TriggeredTags, _SeparatedTags)
_BY_TYPE = {name: node for node in _NODES for name in get_args(node.model_fields["type"].annotation)}


def structural_tag(value: Mapping[str, Any], at: str, vocabulary: Vocabulary) -> OutputFormat:
    """Return the output format of a structural tag.

    Args:
        value: the structural tag.
        at: JSON pointer to it.
        vocabulary: of the model, whose special tokens may be part of tags.

    Raises:
        APIError: it is malformed, or has a format that this server does not know.
    """
    made = _Tags(vocabulary)
    if "format" in value:
        whole = _validated(_Formatted, value, at)
        return made.text.format(made.expression(whole.format, f"{at}/format"), at)
    structures = _validated(_Structures, value, at)
    tags = []
    for structure in structures.structures:
        parts = map(made.text.literal, (structure.begin, structure.end))
        begin, end = parts
        tags.append((structure.begin, f"{begin} {made.text.refer(structure.schema_)} {end}"))
    return made.text.format(made.triggered(structures.triggers, tags, at), at)


def _validated(kind: type[Any], value: Any, at: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise invalid(error.errors(), at) from error


class _Tags:
    """Writes structural tags as expressions of a Lark grammar."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.text = GrammarText(vocabulary, "tag")

    def expression(self, value: Mapping[str, Any], at: str, excluded: Sequence[str] = ()) -> str:
        """Return the expression of a format; ``excluded``: texts that end free text."""
        kind = value.get("type", "tag")
        if kind not in _BY_TYPE:
            known = ", ".join(sorted(_BY_TYPE))
            raise APIError(f"{at}/type: this server knows {known}", param=f"{at}/type", code="invalid_value")
        node = _validated(_BY_TYPE[kind], value, at)
        if isinstance(node, _Several):
            parts = [self.expression(each, f"{at}/elements/{i}", excluded) for i, each in enumerate(node.elements)]
            return any_of(parts) if node.type == "or" else " ".join(f"({part})" for part in parts)
        if isinstance(node, _Tag):
            return self._tag(node, at)
        if isinstance(node, (_TriggeredTags, _SeparatedTags)):
            return self._tags(node, at, excluded)
        return self._leaf(node, at, excluded)

    def _leaf(self, node: Any, at: str, excluded: Sequence[str]) -> str:
        if isinstance(node, _ConstString):
            return self.text.literal(node.value)
        if isinstance(node, _JSONSchema):
            return self.text.refer(node.json_schema)
        if isinstance(node, _AnyText):
            return self.text.free_text(excluded)
        if isinstance(node, _Regex):
            return self.text.refer(compiled_pattern(node.pattern, f"{at}/pattern"))
        return self.text.refer(lark_text(node.grammar, f"{at}/grammar"))

    def _tag(self, tag: _Tag, at: str) -> str:
        content = self.expression(tag.content, f"{at}/content", [tag.end])
        return f"{self.text.literal(tag.begin)} ({content}) {self.text.literal(tag.end)}"

    def _tags(self, node: _TriggeredTags | _SeparatedTags, at: str, excluded: Sequence[str]) -> str:
        tags = [(tag.begin, self._tag(tag, at + pointer("tags", i))) for i, tag in enumerate(node.tags)]
        most_one, least_one = node.stop_after_first, node.at_least_one
        if isinstance(node, _TriggeredTags):
            return self.triggered(node.triggers, tags, at, least_one, most_one, excluded)
        one = any_of(tag for _, tag in tags)
        several = one if most_one else f"{one} ({self.text.literal(node.separator)} {one})*"
        return several if least_one else f"({several})?"

    def triggered(
        self,
        triggers: Sequence[str],
        tags: Sequence[tuple[str, str]],
        at: str,
        least_one: bool = False,
        most_one: bool = False,
        excluded: Sequence[str] = (),
    ) -> str:
        """Return the expression of free text, in which a trigger begins one of the tags that begin with it.

        Args:
            triggers: texts that occur nowhere else.
            tags: the beginning of each tag, and its expression.
            at: JSON pointer, for errors.
            least_one, most_one: whether at least, and at most, one tag is written.
            excluded: texts that end free text.
        """
        for number, (begin, _) in enumerate(tags):
            if not begin.startswith(tuple(triggers)):
                raise APIError(f"{at}: tag {number} begins with none of the triggers", param=at, code="invalid_value")
        text, one = self.text.free_text([*triggers, *excluded]), any_of(tag for _, tag in tags)
        if least_one:
            return f"{text} {one}" if most_one else f"{text} {one} ({text} {one})* {text}"
        return f"{text} ({one})?" if most_one else f"{text} ({one} {text})*"


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
        return lark_of_gbnf(grammar) if "::=" in grammar else grammar
    except LarkError as error:
        raise in_grammar(error, at) from error

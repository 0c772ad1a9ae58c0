"""The formats of structural tags, as expressions of a Lark grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from constrain.engine.json_schema import JsonLayout, LaidOutSchema
from constrain.engine.lark import as_lark
from constrain.engine.structural_tags import fields
from constrain.engine.structural_tags.expressions import Barriers, Expressions, any_of
from constrain.engine.structural_tags.parameters import STYLES, parameters
from constrain.engine.vocabulary import Vocabulary
from constrain.errors import LarkError, StructuralTagError

_Node = Mapping[str, Any]

#: Longest run of white space in a document: of ``"bounded"``, a line break and an indentation.
_LONGEST_SPACE: Mapping[Any, int] = {"compact": 0, "single": 1, "bounded": 42}


class TagWriter:
    """Writes formats as expressions.

    Args:
        vocab: the vocabulary of the model.
        layout: how JSON documents are written.

    Attributes:
        text: the expressions, with the grammars that they refer to.
    """

    def __init__(self, vocab: Vocabulary, layout: JsonLayout) -> None:
        self.text = Expressions(vocab)
        self._layout = layout
        self._tags: dict[str, str] = {}  # by JSON pointer

    def whole(self, tag: _Node) -> str:
        """Return the expression of a structural tag in either notation.

        Raises:
            StructuralTagError: it is malformed, or has something that is not known or cannot be enforced.
        """
        if not isinstance(tag, Mapping):
            raise StructuralTagError("a structural tag is an object")
        if "structures" not in tag:
            fields.check_fields(tag, "", {"type", "format"}, {"format"})
            return self.expression(tag["format"], "/format", Barriers())
        fields.check_fields(tag, "", {"type", "structures", "triggers"}, {"structures", "triggers"})
        structures = fields.filled(tag, "structures", "", "structure")
        tags = [self._structure(item, f"/structures/{i}") for i, item in enumerate(structures)]
        return self._in_text(fields.texts(tag, "triggers", ""), tags, "", Barriers())

    def expression(self, node: Any, at: str, barriers: Barriers) -> str:
        """Return the expression of a format.

        Args:
            node: the format.
            at: its JSON pointer.
            barriers: where unconstrained text ends.

        Raises:
            StructuralTagError: it is malformed, or has something that is not known or cannot be enforced.
        """
        if not isinstance(node, Mapping):
            raise StructuralTagError("a format is an object", at)
        kind = node.get("type", "tag")
        _refuse_unenforceable(node, at)
        if not isinstance(kind, str) or kind not in _FORMATS:
            raise StructuralTagError(f"{kind!r} is not one of the known formats: {', '.join(_FORMATS)}", f"{at}/type")
        known, required, write = _FORMATS[kind]
        fields.check_fields(node, at, {"type", *known.split(), *required.split()}, set(required.split()))
        return write(self, node, at, barriers)

    # Formats with a form of their own.

    def const_string(self, node: _Node, at: str, barriers: Barriers) -> str:
        return self.text.literal(fields.text(node, "value", at))

    def json_schema(self, node: _Node, at: str, barriers: Barriers) -> str:
        style = node.get("style", "json")
        layout = self._layout_of(node, at)
        for i, name in enumerate(fields.texts(node, "excludes", at)):
            # A special token is part of no document; other texts may be.
            if not self.text.is_special(name):
                raise StructuralTagError("only special tokens can be kept out of documents", f"{at}/excludes/{i}")
        if style == "json":
            return self._schema(node["json_schema"], f"{at}/json_schema", layout)
        if style not in STYLES:
            known = ", ".join(("json", *STYLES))
            raise StructuralTagError(f"{style!r} is not one of the styles that can be enforced: {known}", f"{at}/style")
        return parameters(node["json_schema"], STYLES[style], self.text, f"{at}/json_schema", layout)

    def qwen_parameters(self, node: _Node, at: str, barriers: Barriers) -> str:
        return parameters(node["json_schema"], STYLES["qwen_xml"], self.text, f"{at}/json_schema", self._layout)

    def any_text(self, node: _Node, at: str, barriers: Barriers) -> str:
        counts = "" if node.get("max_chars") is None else f"{{0,{fields.count(node, 'max_chars', at)}}}"
        return self.text.free_text(_excluding(node, at, barriers), at, counts)

    def regex(self, node: _Node, at: str, barriers: Barriers) -> str:
        pattern = fields.text(node, "pattern", at)
        try:
            return self.text.refer(re.compile(pattern), f"{at}/pattern")
        except (re.error, RecursionError, OverflowError) as error:
            raise StructuralTagError(f"not a regular expression: {error}", f"{at}/pattern") from error

    def grammar(self, node: _Node, at: str, barriers: Barriers) -> str:
        text = fields.text(node, "grammar", at)
        if node.get("syntax") not in (None, "ebnf", "lark"):
            raise StructuralTagError(f"{node['syntax']!r} is neither 'ebnf' nor 'lark'", f"{at}/syntax")
        try:
            return self.text.refer(as_lark(text), f"{at}/grammar")
        except LarkError as error:
            raise StructuralTagError(str(error), f"{at}/grammar") from error

    def token(self, node: _Node, at: str, barriers: Barriers) -> str:
        return self.text.token(node["token"], f"{at}/token")

    def any_tokens(self, node: _Node, at: str, barriers: Barriers) -> str:
        return self.text.any_tokens(self._excluded_tokens(node, at), barriers, at)

    # Formats of other formats.

    def sequence(self, node: _Node, at: str, barriers: Barriers) -> str:
        elements = fields.filled(node, "elements", at, "element")
        # Only the last one is before what follows the whole.
        around = [replace(barriers, following=frozenset())] * (len(elements) - 1) + [barriers]
        parts = enumerate(zip(elements, around, strict=True))
        return " ".join(f"({self.expression(part, f'{at}/elements/{i}', ends)})" for i, (part, ends) in parts)

    def either(self, node: _Node, at: str, barriers: Barriers) -> str:
        elements = fields.filled(node, "elements", at, "element")
        return any_of(self.expression(part, f"{at}/elements/{i}", barriers) for i, part in enumerate(elements))

    def optional(self, node: _Node, at: str, barriers: Barriers) -> str:
        return f"({self._content(node, at, barriers)})?"

    def star(self, node: _Node, at: str, barriers: Barriers) -> str:
        return f"({self._repeated(node, at, barriers)})*"

    def plus(self, node: _Node, at: str, barriers: Barriers) -> str:
        return f"({self._repeated(node, at, barriers)})+"

    def repeat(self, node: _Node, at: str, barriers: Barriers) -> str:
        low, high = fields.count(node, "min", at), fields.count(node, "max", at, -1)
        content = self._repeated(node, at, barriers)
        if high < 0:  # no maximum
            return f"({content})~{low} ({content})*"
        if high < low:
            raise StructuralTagError(f"must be at least 'min', {low}, or -1 for no maximum", f"{at}/max")
        return f"({content})~{low}..{high}"

    def tag(self, node: _Node, at: str, barriers: Barriers) -> str:
        if at not in self._tags:  # written for each end of a tag around it
            self._tags[at] = self._new_tag(node, at)
        return self._tags[at]

    def _new_tag(self, node: _Node, at: str) -> str:
        begin = self._border(node["begin"], f"{at}/begin")
        ends = node["end"] if isinstance(node["end"], list) else [node["end"]]
        if not ends:
            raise StructuralTagError("at least one end is needed", f"{at}/end")
        texts = frozenset(end for end in ends if isinstance(end, str) and end)
        borders: dict[str, list[str]] = {}  # by the content before them
        for end in ends:
            barriers = Barriers(texts, texts.intersection([end] if isinstance(end, str) else []))
            content = self.expression(node["content"], f"{at}/content", barriers)
            borders.setdefault(content, []).append(self._border(end, f"{at}/end"))
        return any_of(f"{begin} ({content}) {any_of(group)}" for content, group in borders.items())

    def tags_with_separator(self, node: _Node, at: str, barriers: Barriers) -> str:
        tags = fields.filled(node, "tags", at, "tag")
        one = any_of(self._tag(tag, f"{at}/tags/{i}") for i, tag in enumerate(tags))
        separator = self.text.literal(fields.text(node, "separator", at))
        several = one if fields.flag(node, "stop_after_first", at) else f"{one} ({separator} {one})*"
        return several if fields.flag(node, "at_least_one", at) else f"({several})?"

    # Formats of unconstrained text with tags in it.

    def triggered_tags(self, node: _Node, at: str, barriers: Barriers) -> str:
        listed = fields.filled(node, "tags", at, "tag")
        tags = [(_begin(tag), self._tag(tag, f"{at}/tags/{i}")) for i, tag in enumerate(listed)]
        least, most = _least_most(node, at)
        return self._in_text(fields.texts(node, "triggers", at), tags, at, _excluding(node, at, barriers), least, most)

    def dispatch(self, node: _Node, at: str, barriers: Barriers) -> str:
        rules = self._rules(node, at)
        if not all(isinstance(pattern, str) and pattern for pattern, _ in rules):
            raise StructuralTagError("the pattern of a rule must be a text that is not empty", f"{at}/rules")
        tags = [(pattern, f"{self.text.literal(pattern)} ({content})") for pattern, content in rules]
        most = not fields.flag(node, "loop", at, default=True)
        patterns = [pattern for pattern, _ in rules]
        return self._in_text(patterns, tags, at, _excluding(node, at, barriers), most=most)

    def token_triggered_tags(self, node: _Node, at: str, barriers: Barriers) -> str:
        triggers = fields.items(node, "trigger_tokens", at)
        names = [self.text.token_name(token, f"{at}/trigger_tokens/{i}") for i, token in enumerate(triggers)]
        listed = fields.filled(node, "tags", at, "tag")
        tags = [self._tag(tag, f"{at}/tags/{i}") for i, tag in enumerate(listed)]
        for i, tag in enumerate(listed):
            begin = tag["begin"].get("token") if isinstance(tag["begin"], Mapping) else tag["begin"]
            if self.text.token_name(begin, f"{at}/tags/{i}/begin") not in names:
                raise StructuralTagError(f"the tag {begin!r} begins with none of the triggers", f"{at}/trigger_tokens")
        least, most = _least_most(node, at)
        return self._in_tokens(node, names, tags, at, barriers, least, most)

    def token_dispatch(self, node: _Node, at: str, barriers: Barriers) -> str:
        rules = self._rules(node, at)
        names = [self.text.token_name(token, f"{at}/rules/{i}/0") for i, (token, _) in enumerate(rules)]
        tags = [f"{self.text.token(name, at)} ({content})" for name, (_, content) in zip(names, rules, strict=True)]
        most = not fields.flag(node, "loop", at, default=True)
        return self._in_tokens(node, names, tags, at, barriers, most=most)

    def _in_text(
        self,
        triggers: Sequence[str],
        tags: Sequence[tuple[str, str]],
        at: str,
        barriers: Barriers,
        least: bool = False,
        most: bool = False,
    ) -> str:
        """Return the expression of unconstrained text with tags, each given by its beginning and its expression."""
        texts = barriers.texts.union(triggers)
        groups: dict[Barriers, list[str]] = {}
        for begin, tag in tags:
            found = [trigger for trigger in triggers if begin.startswith(trigger)]
            if not found:
                raise StructuralTagError(f"the tag {begin!r} begins with none of the triggers", f"{at}/triggers")
            before = replace(barriers, texts=texts, following=frozenset({min(found, key=len)}))
            groups.setdefault(before, []).append(tag)
        steps = (f"{self.text.free_text(before, at)} {any_of(tags)}" for before, tags in groups.items())
        rest = self.text.free_text(replace(barriers, texts=texts), at)
        return _with_steps(any_of(tag for _, tag in tags), any_of(steps), rest, least, most)

    def _in_tokens(
        self,
        node: _Node,
        triggers: Sequence[str],
        tags: Sequence[str],
        at: str,
        barriers: Barriers,
        least: bool = False,
        most: bool = False,
    ) -> str:
        """Return the expression of text and special tokens with tags that begin with a special token."""
        excluded = {*triggers, *self._excluded_tokens(node, at)}
        inner = self.text.any_tokens(excluded, replace(barriers, following=frozenset()), at)
        rest = self.text.any_tokens(excluded, barriers, at)
        return _with_steps(any_of(tags), f"{inner} {any_of(tags)}", rest, least, most)

    def _rules(self, node: _Node, at: str) -> list[tuple[Any, str]]:
        """Return the patterns of rules, with the expressions of their formats."""
        rules = fields.filled(node, "rules", at, "rule")
        found = []
        for i, rule in enumerate(rules):
            if not isinstance(rule, (list, tuple)) or len(rule) != 2:
                raise StructuralTagError("a rule is a list of a pattern and a format", f"{at}/rules/{i}")
            found.append((rule[0], self.expression(rule[1], f"{at}/rules/{i}/1", Barriers())))
        return found

    def _structure(self, item: Any, at: str) -> tuple[str, str]:
        if not isinstance(item, Mapping):
            raise StructuralTagError("a structure is an object", at)
        fields.check_fields(item, at, {"begin", "schema", "end"}, {"begin", "schema", "end"})
        begin, end = (self.text.literal(fields.text(item, name, at)) for name in ("begin", "end"))
        return item["begin"], f"{begin} {self._schema(item['schema'], f'{at}/schema', self._layout)} {end}"

    def _content(self, node: _Node, at: str, barriers: Barriers) -> str:
        return self.expression(node["content"], f"{at}/content", barriers)

    def _repeated(self, node: _Node, at: str, barriers: Barriers) -> str:
        content = node["content"]
        if isinstance(content, Mapping) and content.get("type") in ("any_text", "any_tokens"):
            raise StructuralTagError("unconstrained text is of any length; it cannot be repeated", f"{at}/content")
        return self._content(node, at, barriers)

    def _tag(self, node: Any, at: str) -> str:
        if not isinstance(node, Mapping) or node.get("type", "tag") != "tag":
            raise StructuralTagError("only a format of type 'tag' can be here", at)
        return self.expression(node, at, Barriers())

    def _border(self, value: Any, at: str) -> str:
        """Return the expression of the beginning or the end of a tag: a text, or a format of type ``token``."""
        if isinstance(value, str):
            return self.text.literal(value)
        if isinstance(value, Mapping) and value.get("type") == "token":
            return self.expression(value, at, Barriers())
        raise StructuralTagError("must be a text or a token", at)

    def _schema(self, schema: Any, at: str, layout: JsonLayout) -> str:
        if not isinstance(schema, (dict, bool)):
            raise StructuralTagError("a JSON Schema is an object, true or false", at)
        return self.text.refer(LaidOutSchema(schema, layout), at)

    def _layout_of(self, node: _Node, at: str) -> JsonLayout:
        """Return the layout of the documents of a format, which may have its own order and bound on white space."""
        layout = self._layout
        if node.get("any_order") is not None:
            layout = replace(layout, property_order="any" if fields.flag(node, "any_order", at) else "schema")
        if node.get("max_whitespace_cnt") is None:
            return layout
        most = fields.count(node, "max_whitespace_cnt", at)
        if _LONGEST_SPACE.get(layout.whitespace, most + 1) <= most:
            return layout
        return replace(layout, whitespace="single" if most else "compact")

    def _excluded_tokens(self, node: _Node, at: str) -> list[str]:
        tokens = fields.items(node, "exclude_tokens", at)
        return [self.text.token_name(token, f"{at}/exclude_tokens/{i}") for i, token in enumerate(tokens)]


_Write = Callable[[TagWriter, _Node, str, Barriers], str]

#: Of each format: its optional fields, its required ones, and what writes it.
_FORMATS: dict[str, tuple[str, str, _Write]] = {
    "const_string": ("", "value", TagWriter.const_string),
    "json_schema": ("style any_order max_whitespace_cnt excludes", "json_schema", TagWriter.json_schema),
    "qwen_xml_parameter": ("", "json_schema", TagWriter.qwen_parameters),
    "any_text": ("excludes max_chars", "", TagWriter.any_text),
    "regex": ("", "pattern", TagWriter.regex),
    "grammar": ("syntax", "grammar", TagWriter.grammar),
    "token": ("", "token", TagWriter.token),
    "any_tokens": ("exclude_tokens", "", TagWriter.any_tokens),
    "sequence": ("", "elements", TagWriter.sequence),
    "or": ("", "elements", TagWriter.either),
    "optional": ("", "content", TagWriter.optional),
    "star": ("", "content", TagWriter.star),
    "plus": ("", "content", TagWriter.plus),
    "repeat": ("", "min max content", TagWriter.repeat),
    "tag": ("", "begin content end", TagWriter.tag),
    "triggered_tags": ("at_least_one stop_after_first excludes", "triggers tags", TagWriter.triggered_tags),
    "token_triggered_tags": (
        "at_least_one stop_after_first exclude_tokens",
        "trigger_tokens tags",
        TagWriter.token_triggered_tags,
    ),
    "tags_with_separator": ("at_least_one stop_after_first", "tags separator", TagWriter.tags_with_separator),
    "dispatch": ("loop excludes", "rules", TagWriter.dispatch),
    "token_dispatch": ("loop exclude_tokens", "rules", TagWriter.token_dispatch),
}


def _refuse_unenforceable(node: _Node, at: str) -> None:
    if node.get("max_tokens") is not None:
        reason = "a number of tokens is no property of a text; 'max_chars' of 'any_text' bounds its characters"
        raise StructuralTagError(reason, f"{at}/max_tokens")
    if node.get("type") == "exclude_token":
        reason = "one token of text cannot be told from several; 'any_tokens' is any number of them"
        raise StructuralTagError(reason, f"{at}/type")


def _with_steps(tag: str, step: str, rest: str, least: bool, most: bool) -> str:
    """Return the expression of tags in text.

    Args:
        tag: expression of one tag.
        step: of one tag with the text before it.
        rest: of the text after the last tag.
        least: whether the text begins with a tag.
        most: whether it ends with the first tag.
    """
    if least:
        return tag if most else f"{tag} ({step})* {rest}"
    return f"({step} | {rest})" if most else f"({step})* {rest}"


def _excluding(node: _Node, at: str, barriers: Barriers) -> Barriers:
    return replace(barriers, excluded=barriers.excluded.union(fields.texts(node, "excludes", at)))


def _least_most(node: _Node, at: str) -> tuple[bool, bool]:
    return fields.flag(node, "at_least_one", at), fields.flag(node, "stop_after_first", at)


def _begin(tag: Any) -> str:
    begin = tag.get("begin") if isinstance(tag, Mapping) else None
    return begin if isinstance(begin, str) else ""

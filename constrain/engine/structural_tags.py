"""Structural tags, as XGrammar, vLLM and SGLang write them: text in which tags enclose parts of a given form.

There are two notations: ``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``, and a tree of formats,
``{"type": "structural_tag", "format": {"type": ...}}``. Both are translated into a Lark grammar, in which schemas,
patterns and free text are grammars of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from constrain.engine.grammar import CompiledGrammar, Limits
from constrain.engine.lark import NamedGrammar, compile_lark, lark_of_gbnf
from constrain.engine.special import pieces
from constrain.engine.vocabulary import Vocabulary
from constrain.errors import LarkError, StructuralTagError

_Node = Mapping[str, Any]


def compile_structural_tag(tag: _Node, vocab: Vocabulary, *, limits: Limits = Limits()) -> CompiledGrammar:
    """Compile a structural tag.

    In free text, a trigger can only begin one of its tags. Names of special tokens in the beginning and the end of a
    tag, such as ``<|tool|>``, stand for these tokens.

    Args:
        tag: the structural tag, as ``json.loads`` returns it. Known formats are ``const_string``, ``json_schema``,
            ``any_text``, ``regex``, ``grammar``, ``token``, ``sequence``, ``or``, ``optional``, ``star``, ``plus``,
            ``repeat``, ``tag``, ``triggered_tags`` and ``tags_with_separator``.
        vocab: the vocabulary of the model.
        limits: limits on states, memory and time.

    Raises:
        StructuralTagError: the tag is malformed, has a format or field that is not known, or a part does not compile;
            with a JSON pointer.
        ResourceLimit: a limit was reached.
    """
    translated = lark_of_structural_tag(tag, vocab)
    try:
        return compile_lark(translated.text, vocab, grammars=translated.grammars, limits=limits)
    except LarkError as error:
        raise translated.located(error) from error


@dataclass(frozen=True)
class TranslatedTag:
    """A structural tag in Lark's notation.

    Attributes:
        text: the grammar.
        grammars: the grammars that it refers to by ``@name``.
        pointers: of each of these, the JSON pointer to the part of the tag that it comes from.
    """

    text: str
    grammars: Mapping[str, NamedGrammar]
    pointers: Mapping[str, str]

    def located(self, error: LarkError) -> StructuralTagError:
        """Return an error of the grammar as one of the part of the tag at fault."""
        named = re.search(r"@(tag\d+)|grammar '(tag\d+)'", str(error))
        pointer = self.pointers[named[1] or named[2]] if named else ""
        return StructuralTagError(re.sub(r"^@tag\d+ cannot be used: ", "", error.reason), pointer)


def lark_of_structural_tag(tag: _Node, vocab: Vocabulary) -> TranslatedTag:
    """Translate a structural tag into Lark's notation; see :func:`compile_structural_tag`.

    Raises:
        StructuralTagError: the tag is malformed, or has a format or field that is not known; with a JSON pointer.
    """
    writer = _Writer(vocab)
    return TranslatedTag(f"start: {writer.whole(tag)}", writer.grammars, writer.pointers)


class _Writer:
    """Writes formats as expressions of a Lark grammar.

    Attributes:
        grammars: the grammars that the expressions refer to, by name.
        pointers: of each of these, the JSON pointer to the part that it comes from.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.grammars: dict[str, NamedGrammar] = {}
        self.pointers: dict[str, str] = {}
        self._vocab = vocab

    def whole(self, tag: _Node) -> str:
        """Return the expression of a structural tag in either notation."""
        if not isinstance(tag, Mapping):
            raise StructuralTagError("a structural tag is an object")
        if "structures" not in tag:
            _check_fields(tag, "", {"type", "format"}, {"format"})
            return self.expression(tag["format"], "/format")
        _check_fields(tag, "", {"type", "structures", "triggers"}, {"structures", "triggers"})
        tags = [self._structure(item, f"/structures/{i}") for i, item in enumerate(_list(tag, "structures", ""))]
        return self._triggered(_texts(tag, "triggers", ""), tags, "")

    def expression(self, node: Any, at: str, barred: Sequence[str] = ()) -> str:
        """Return the expression of a format.

        Args:
            node: the format.
            at: its JSON pointer.
            barred: texts that end free text.
        """
        if not isinstance(node, Mapping):
            raise StructuralTagError("a format is an object", at)
        kind = node.get("type", "tag")
        if kind not in _FORMATS:
            raise StructuralTagError(f"{kind!r} is not one of the known formats: {', '.join(_FORMATS)}", f"{at}/type")
        known, required, write = _FORMATS[kind]
        _check_fields(node, at, {"type", *known.split(), *required.split()}, set(required.split()))
        return write(self, node, at, barred)

    def const_string(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return self._literal(_text(node, "value", at))

    def json_schema(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        if node.get("style", "json") != "json":
            raise StructuralTagError(f"style {node['style']!r} is not known; 'json' is", f"{at}/style")
        return self._schema(node["json_schema"], f"{at}/json_schema")

    def any_text(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return self._free_text([*_texts(node, "excludes", at), *barred], at)

    def regex(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        pattern = _text(node, "pattern", at)
        try:
            return self._refer(re.compile(pattern), f"{at}/pattern")
        except (re.error, RecursionError, OverflowError) as error:
            raise StructuralTagError(f"not a regular expression: {error}", f"{at}/pattern") from error

    def grammar(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        text = _text(node, "grammar", at)
        try:
            return self._refer(lark_of_gbnf(text) if "::=" in text else text, f"{at}/grammar")
        except LarkError as error:
            raise StructuralTagError(str(error), f"{at}/grammar") from error

    def token(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return self._token(node["token"], f"{at}/token")

    def sequence(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return " ".join(f"({part})" for part in self._elements(node, at, barred))

    def either(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return _any_of(self._elements(node, at, barred))

    def optional(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return f"({self._content(node, at, barred)})?"

    def star(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return f"({self._content(node, at, barred)})*"

    def plus(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return f"({self._content(node, at, barred)})+"

    def repeat(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        low, high = _count(node, "min", at), _count(node, "max", at)
        content = self._content(node, at, barred)
        if high < 0:  # no maximum
            return f"({content})~{low} ({content})*"
        return f"({content})~{low}..{high}"

    def tag(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        begin = self._border(node["begin"], f"{at}/begin")
        ends = node["end"] if isinstance(node["end"], list) else [node["end"]]
        content = self.expression(node["content"], f"{at}/content", [end for end in ends if isinstance(end, str)])
        end = _any_of(self._border(end, f"{at}/end") for end in ends)
        return f"{begin} ({content}) {end}"

    def triggered_tags(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        tags = [(_begin(tag), self._tag(tag, f"{at}/tags/{i}")) for i, tag in enumerate(_list(node, "tags", at))]
        excluded = [*_texts(node, "excludes", at), *barred]
        least_one, most_one = _flag(node, "at_least_one", at), _flag(node, "stop_after_first", at)
        return self._triggered(_texts(node, "triggers", at), tags, at, excluded, least_one, most_one)

    def tags_with_separator(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        one = _any_of(self._tag(tag, f"{at}/tags/{i}") for i, tag in enumerate(_list(node, "tags", at)))
        separator = self._literal(_text(node, "separator", at))
        several = one if _flag(node, "stop_after_first", at) else f"{one} ({separator} {one})*"
        return several if _flag(node, "at_least_one", at) else f"({several})?"

    def _structure(self, item: Any, at: str) -> tuple[str, str]:
        if not isinstance(item, Mapping):
            raise StructuralTagError("a structure is an object", at)
        _check_fields(item, at, {"begin", "schema", "end"}, {"begin", "schema", "end"})
        begin, end = (self._literal(_text(item, name, at)) for name in ("begin", "end"))
        return item["begin"], f"{begin} {self._schema(item['schema'], f'{at}/schema')} {end}"

    def _triggered(
        self,
        triggers: Sequence[str],
        tags: Sequence[tuple[str, str]],
        at: str,
        excluded: Sequence[str] = (),
        least_one: bool = False,
        most_one: bool = False,
    ) -> str:
        """Return the expression of free text with tags, each given by its beginning and its expression."""
        if not tags:
            raise StructuralTagError("at least one tag is needed", at)
        for begin, _ in tags:
            if not begin.startswith(tuple(triggers)):
                raise StructuralTagError(f"the tag {begin!r} begins with none of the triggers", f"{at}/triggers")
        text, one = self._free_text([*triggers, *excluded], at), _any_of(tag for _, tag in tags)
        if least_one:
            return f"{text} {one}" if most_one else f"{text} ({one} {text})+"
        return f"{text} ({one})?" if most_one else f"{text} ({one} {text})*"

    def _elements(self, node: _Node, at: str, barred: Sequence[str]) -> list[str]:
        elements = _list(node, "elements", at)
        if not elements:
            raise StructuralTagError("at least one element is needed", f"{at}/elements")
        return [self.expression(part, f"{at}/elements/{i}", barred) for i, part in enumerate(elements)]

    def _content(self, node: _Node, at: str, barred: Sequence[str]) -> str:
        return self.expression(node["content"], f"{at}/content", barred)

    def _tag(self, node: Any, at: str) -> str:
        if not isinstance(node, Mapping) or node.get("type", "tag") != "tag":
            raise StructuralTagError("only a format of type 'tag' can be here", at)
        return self.expression(node, at)

    def _border(self, value: Any, at: str) -> str:
        """Return the expression of the beginning or the end of a tag: a text, or a format of type ``token``."""
        if isinstance(value, str):
            return self._literal(value)
        if isinstance(value, Mapping) and value.get("type") == "token":
            return self.expression(value, at)
        raise StructuralTagError("must be a text or a token", at)

    def _schema(self, schema: Any, at: str) -> str:
        if not isinstance(schema, (dict, bool)):
            raise StructuralTagError("a JSON Schema is an object, true or false", at)
        return self._refer(schema, at)

    def _token(self, token: Any, at: str) -> str:
        """Return the special token that is given by name or id, in Lark's notation."""
        names = self._vocab.special_tokens
        for name, id_ in names.items():
            if token in (name, id_):
                return _special(name)
        raise StructuralTagError(f"{token!r} is not one of the special tokens: {', '.join(sorted(names))}", at)

    def _literal(self, text: str) -> str:
        """Return the expression of a text, in which names of special tokens are these tokens."""
        found = [
            _special(part.text) if part.special else json.dumps(part.text, ensure_ascii=False)
            for part in pieces(text, self._vocab.special_tokens)
            if part.text
        ]
        return " ".join(found) or "()"

    def _free_text(self, barred: Iterable[str], at: str) -> str:
        """Return the expression of any text, empty or not, in which no text of ``barred`` occurs."""
        options = "|".join(re.escape(text) for text in barred if text)
        pattern = f"(?s:(?!{options}).)+" if options else "(?s:.)+"
        return f"{self._refer(re.compile(pattern), at)}?"

    def _refer(self, grammar: NamedGrammar, at: str) -> str:
        """Return the expression of another grammar, which comes from the part at a JSON pointer."""
        name = f"tag{len(self.grammars)}"
        self.grammars[name], self.pointers[name] = grammar, at
        return f"@{name}"


_Write = Callable[[_Writer, _Node, str, Sequence[str]], str]

#: Of each format: its optional fields, its required ones, and what writes it.
_FORMATS: dict[str, tuple[str, str, _Write]] = {
    "const_string": ("", "value", _Writer.const_string),
    "json_schema": ("style any_order", "json_schema", _Writer.json_schema),
    "any_text": ("excludes", "", _Writer.any_text),
    "regex": ("", "pattern", _Writer.regex),
    "grammar": ("", "grammar", _Writer.grammar),
    "token": ("", "token", _Writer.token),
    "sequence": ("", "elements", _Writer.sequence),
    "or": ("", "elements", _Writer.either),
    "optional": ("", "content", _Writer.optional),
    "star": ("", "content", _Writer.star),
    "plus": ("", "content", _Writer.plus),
    "repeat": ("", "min max content", _Writer.repeat),
    "tag": ("", "begin content end", _Writer.tag),
    "triggered_tags": ("at_least_one stop_after_first excludes", "triggers tags", _Writer.triggered_tags),
    "tags_with_separator": ("at_least_one stop_after_first", "tags separator", _Writer.tags_with_separator),
}


def _special(name: str) -> str:
    """Return Lark's notation of a special token: ``<|name|>`` as it is, ``<[NAME]>`` for ``[NAME]``."""
    return name if name.startswith("<") and name.endswith(">") else f"<{name}>"


def _any_of(options: Iterable[str]) -> str:
    return "(" + " | ".join(options) + ")"


def _begin(tag: Any) -> str:
    begin = tag.get("begin") if isinstance(tag, Mapping) else None
    return begin if isinstance(begin, str) else ""


def _check_fields(node: _Node, at: str, known: set[str], required: set[str]) -> None:
    if missing := sorted(required.difference(node)):
        raise StructuralTagError(f"{missing[0]!r} is missing", at)
    # Programs write out the fields that they leave at their defaults, which ask for nothing.
    if unknown := sorted(name for name in set(node).difference(known) if node[name] not in (None, False, [])):
        raise StructuralTagError(f"the field is not known; {', '.join(sorted(known))} are", f"{at}/{unknown[0]}")


def _field(node: _Node, name: str, at: str, kind: type, wanted: str, default: Any = None) -> Any:
    value = node.get(name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise StructuralTagError(f"must be {wanted}", f"{at}/{name}")
    return value


def _text(node: _Node, name: str, at: str) -> str:
    return str(_field(node, name, at, str, "a text"))


def _flag(node: _Node, name: str, at: str) -> bool:
    return bool(_field(node, name, at, bool, "true or false", False))


def _count(node: _Node, name: str, at: str) -> int:
    return int(_field(node, name, at, int, "a whole number"))


def _list(node: _Node, name: str, at: str) -> list[Any]:
    return list(_field(node, name, at, list, "a list"))


def _texts(node: _Node, name: str, at: str) -> list[str]:
    texts = _field(node, name, at, list, "a list of texts", [])
    if not all(isinstance(text, str) and text for text in texts):
        raise StructuralTagError("must be a list of texts that are not empty", f"{at}/{name}")
    return list(texts)

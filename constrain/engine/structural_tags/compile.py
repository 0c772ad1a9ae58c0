"""Compilation of structural tags, and errors at their parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from constrain.engine.compiled_grammar import CompiledGrammar, Limits
from constrain.engine.json_schema import JsonLayout
from constrain.engine.lark import NamedGrammar, compile_lark
from constrain.engine.lark.lower import DEFAULT_LAYOUT
from constrain.engine.structural_tags.writer import TagWriter
from constrain.engine.vocabulary import Vocabulary
from constrain.errors import LarkError, StructuralTagError


def compile_structural_tag(
    tag: Mapping[str, Any],
    vocab: Vocabulary,
    *,
    layout: JsonLayout = DEFAULT_LAYOUT,
    limits: Limits = Limits(),
) -> CompiledGrammar:
    """Compile a structural tag.

    Unconstrained text goes on up to the first trigger, which can only begin one of its tags; in a tag it goes on up to
    the first end of the tag. Names of special tokens in the beginning and the end of a tag, such as ``<|tool|>``, stand
    for these tokens.

    Args:
        tag: the structural tag, as ``json.loads`` returns it. Known formats are ``const_string``, ``json_schema``,
            ``any_text``, ``regex``, ``grammar``, ``sequence``, ``or``, ``optional``, ``star``, ``plus``, ``repeat``,
            ``tag``, ``triggered_tags``, ``dispatch``, ``tags_with_separator``, and for special tokens ``token``,
            ``any_tokens``, ``token_triggered_tags`` and ``token_dispatch``. The ``style`` of a ``json_schema`` is
            ``json``, or parameters between tags: ``qwen_xml``, ``minimax_xml``, ``deepseek_xml``,
            ``deepseek_v4_1_xml``, ``glm_xml``, ``cohere_xml`` and ``kimi_k3_xml``.
        vocab: the vocabulary of the model.
        layout: how the documents of ``json_schema``, and of ``%json`` in a ``grammar``, are written; by default members
            come in any order, with white space as :func:`~constrain.engine.compile_json_schema` has it by default, and
            integers have no fraction. A ``json_schema`` may have ``any_order`` and ``max_whitespace_cnt`` of its own.
        limits: limits on states, memory and time.

    Raises:
        StructuralTagError: the tag is malformed or nested too deeply, has a format or field that is not known or cannot
            be enforced, or a part does not compile; with a JSON pointer.
        ResourceLimit: a limit was reached.
    """
    translated = lark_of_structural_tag(tag, vocab, layout=layout)
    try:
        return compile_lark(translated.text, vocab, grammars=translated.grammars, layout=layout, limits=limits)
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


def lark_of_structural_tag(
    tag: Mapping[str, Any], vocab: Vocabulary, *, layout: JsonLayout = DEFAULT_LAYOUT
) -> TranslatedTag:
    """Translate a structural tag into Lark's notation; see :func:`compile_structural_tag`.

    Raises:
        StructuralTagError: the tag is malformed, nested too deeply, or has a format or field that is not known; with a
            JSON pointer.
    """
    writer = TagWriter(vocab, layout)
    try:
        text = f"start: {writer.whole(tag)}"
    except RecursionError as error:
        raise StructuralTagError("the structural tag is nested too deeply") from error
    return TranslatedTag(text, writer.text.grammars, writer.text.pointers)

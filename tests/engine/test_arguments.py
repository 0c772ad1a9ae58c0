"""Arguments that are plausible and wrong: each ends in an error that names it, never in one from inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from constrain.engine import (
    CompiledGrammar,
    GrammarCache,
    Limits,
    Vocabulary,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
    grammar_cache,
    lark_warnings,
)
from constrain.errors import ArgumentError, GrammarError, LarkError, RegexError, SchemaError, VocabularyError
from constrain.testing import byte_vocabulary

VOCAB = byte_vocabulary()
GRAMMAR = 'start: "a"'


class Model(BaseModel):
    name: str


@pytest.mark.parametrize("schema", ['{"type": "string"}', b"{}", None, Model, Path("schema.json"), [{}], 3], ids=repr)
def test_a_schema_is_a_dict_or_a_bool(schema: Any) -> None:
    with pytest.raises(SchemaError, match=r"dict or a bool, not (an? \w+|None); json\.loads"):
        compile_json_schema(schema, VOCAB)


@pytest.mark.parametrize("pattern", [b"a", None, 3, Path("a"), ["a"], "\ud800"], ids=repr)
def test_a_pattern_is_text(pattern: Any) -> None:
    with pytest.raises(RegexError, match="the pattern"):
        compile_regex(pattern, VOCAB)


@pytest.mark.parametrize("choices", ["yes", b"yes", None, 3, {"yes": 1}, re.compile("a")], ids=repr)
def test_choices_are_a_list(choices: Any) -> None:
    with pytest.raises(GrammarError, match="choices must be a list of texts, not"):
        compile_choices(choices, VOCAB)


@pytest.mark.parametrize("choice", [b"no", None, 3, ["no"], "\ud800"], ids=repr)
def test_each_choice_is_text(choice: Any) -> None:
    with pytest.raises(GrammarError, match=r"choices\[1\]"):
        compile_choices(["yes", choice], VOCAB)


@pytest.mark.parametrize("compiler", [compile_lark, lambda text, _: lark_warnings(text)], ids=["compile", "warnings"])
@pytest.mark.parametrize("text", [Path("g.lark"), b"start: A", None, ["start: A"], re.compile("a")], ids=repr)
def test_a_grammar_is_text(compiler: Callable[..., Any], text: Any) -> None:
    with pytest.raises(LarkError, match="a grammar must be a str, not"):
        compiler(text, VOCAB)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start": None}, "start must be the name of a rule, not None"),
        ({"start": ["start"]}, "start must be"),
        ({"grammars": [GRAMMAR]}, "grammars must be grammars by name"),
        ({"grammars": {"x": Path("x.lark")}}, "@x must be a Lark grammar as a str"),
        ({"special_tokens": "<s>"}, "special_tokens must be names by names"),
        ({"special_tokens": {"S": 1}}, r"special_tokens\['S'\] must be the name"),
    ],
)
def test_options_of_lark_grammars(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LarkError, match=said):
        compile_lark(GRAMMAR, VOCAB, **options)


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"whitespace": True}, GrammarError, "whitespace must be"),
        ({"whitespace": "tight"}, GrammarError, "there is no whitespace policy 'tight'"),
        ({"lenient": "no"}, ArgumentError, "lenient must be a bool, not 'no'"),
        ({"registry": {"http://x": {}}}, ArgumentError, "registry must be a referencing.Registry"),
        ({"sources": ["a text"]}, GrammarError, "sources must be texts by name"),
        ({"sources": {"text": b"a"}}, GrammarError, r"sources\['text'\] must be a str"),
        ({"sources": {"text": "\ud800"}}, GrammarError, "lone surrogate at index 0"),
    ],
)
def test_options_of_schemas(options: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        compile_json_schema({"type": "string"}, VOCAB, **options)


COMPILERS: list[Callable[..., CompiledGrammar]] = [
    lambda vocab, **options: compile_json_schema({}, vocab, **options),
    lambda vocab, **options: compile_regex("a", vocab, **options),
    lambda vocab, **options: compile_choices(["a"], vocab, **options),
    lambda vocab, **options: compile_lark(GRAMMAR, vocab, **options),
]


@pytest.mark.parametrize("compiler", COMPILERS, ids=["schema", "regex", "choices", "lark"])
class TestEveryCompiler:
    @pytest.mark.parametrize("vocab", [None, "gpt2", {"a": 0}, [b"a"]], ids=repr)
    def test_takes_a_vocabulary(self, compiler: Callable[..., Any], vocab: Any) -> None:
        with pytest.raises(ArgumentError, match=r"vocab must be a constrain\.engine\.Vocabulary"):
            compiler(vocab)

    @pytest.mark.parametrize("limits", [None, 5, {"max_states": 5}], ids=repr)
    def test_takes_limits(self, compiler: Callable[..., Any], limits: Any) -> None:
        with pytest.raises(ArgumentError, match=r"limits must be constrain\.engine\.Limits"):
            compiler(VOCAB, limits=limits)


@pytest.mark.parametrize("value", [-1, 0.5, float("nan"), "10", None, 2**64])
def test_limits_are_whole_numbers(value: Any) -> None:
    with pytest.raises(ArgumentError, match="max_seconds must be a whole number from 0"):
        Limits(max_seconds=value)


@pytest.mark.parametrize("text", [None, 3, ["a"], Path("a")], ids=repr)
def test_accepts_and_explain_take_text_only(text: Any) -> None:
    grammar = compile_regex("a", VOCAB)
    for ask in (grammar.accepts, grammar.explain):
        with pytest.raises(ArgumentError, match="text must be a str"):
            ask(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tokens": ["a", "b"]}, r"tokens\[0\] must be bytes, not 'a'"),
        ({"tokens": {b"a": 0}}, "tokens must be a list of bytes"),
        ({"eos_ids": 1}, "eos_ids must be a list of ids"),
        ({"eos_ids": ["</s>"]}, r"eos_ids\[0\] must be a whole number"),
        ({"special_ids": None}, "special_ids must be a list of ids"),
        ({"first_space": "auto"}, "first_space must be 'keep' or 'optional'"),
    ],
)
def test_vocabularies_of_tokens(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Vocabulary.from_tokens(**{"tokens": [b"a", b""], "eos_ids": [1], **arguments})


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_the_size_of_a_vocabulary(size: Any) -> None:
    with pytest.raises(VocabularyError, match="size must be a whole number from 1 to"):
        Vocabulary.from_tokens([b"a", b""], [1], size=size)


def test_error_for_tokenizers_of_other_libraries() -> None:
    with pytest.raises(ArgumentError, match=r"give their folder to Vocabulary\.from_pretrained"):
        Vocabulary.from_tokenizer(object())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="model_dir must be the path of a folder, not None"):
        Vocabulary.from_pretrained(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"max_bytes": None}, {"max_bytes": -1}, {"directory": 3}], ids=str)
def test_caches_of_grammars(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(options))} must be"):
        GrammarCache(**options)


def test_a_cache_compiles_with_a_compiler() -> None:
    with pytest.raises(ArgumentError, match="compiler must be a function"):
        grammar_cache.compile("regex", "a", VOCAB)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        (re.compile("ab."), "abc", "AB\n"),
        (re.compile("ab.", re.I | re.S), "AB\n", "A"),
        (re.compile("(?i)ab.", re.S), "AB\n", "A"),
        (re.compile("a b  # ab", re.X), "ab", "a b"),
        (re.compile("a\n^b$", re.M), "a\nb", "ab"),
        (re.compile(r"(?a)\w"), "e", "é"),
    ],
    ids=repr,
)
def test_compiled_patterns_keep_their_flags(pattern: re.Pattern[str], accepted: str, refused: str) -> None:
    grammar = compile_regex(pattern, VOCAB)
    assert pattern.fullmatch(accepted) and grammar.accepts(accepted)
    assert not pattern.fullmatch(refused) and not grammar.accepts(refused)


def test_offsets_in_compiled_patterns_are_those_of_their_text() -> None:
    for flags in (re.NOFLAG if hasattr(re, "NOFLAG") else re.UNICODE, re.I | re.S):
        with pytest.raises(RegexError) as error:
            compile_regex(re.compile(r"(a)b\1", flags), VOCAB)
        assert error.value.offset == 4


def test_unsupported_flags_are_refused() -> None:
    with pytest.raises(RegexError, match=r"let the pattern begin with \(\?a\)"):
        compile_regex(re.compile(r"\w", re.ASCII), VOCAB)
    with pytest.raises(RegexError, match="one of bytes"):
        compile_regex(re.compile(b"a"), VOCAB)  # type: ignore[arg-type]


def test_compiled_patterns_are_cached_with_their_flags() -> None:
    cache = GrammarCache()
    plain, folded = (cache.compile(compile_regex, re.compile("a", flags), VOCAB) for flags in (re.U, re.I))
    assert plain is not folded and folded.accepts("A") and not plain.accepts("A")
    assert cache.compile(compile_regex, re.compile("a", re.I), VOCAB) is folded

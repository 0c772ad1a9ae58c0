"""The filters that follow a compiled grammar."""

from __future__ import annotations

import gc
import random
import re
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from constrain import ExLlamaV2Tokenizer
from constrain.engine import allocate_bitmask, compile_regex
from constrain.engine.bitmask import unpacked
from constrain.errors import FilterError, LarkError, RegexError, SchemaError
from constrain.filters import (
    ExLlamaV2EngineFilter,
    ExLlamaV2GrammarFilter,
    ExLlamaV2JSONSchemaFilter,
    ExLlamaV2RegexFilter,
)
from constrain.filters.vocabularies import vocabulary_of
from constrain.testing import accepts, sample

EOS = 1
MODEL: Any = None
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
LARK = 'start: "yes" ("," start)?'


def every_filter(tokenizer: ExLlamaV2Tokenizer) -> list[ExLlamaV2EngineFilter]:
    return [
        ExLlamaV2RegexFilter(MODEL, tokenizer, r"[0-9]{2,4}(é|è)!"),
        ExLlamaV2GrammarFilter(MODEL, tokenizer, LARK),
        ExLlamaV2JSONSchemaFilter(MODEL, tokenizer, SCHEMA),
    ]


def feed(filter_: Any, ids: list[int]) -> None:
    for token_id in ids:
        filter_.feed(torch.tensor([[token_id]]))


def ids_of(tokenizer: ExLlamaV2Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text)[0].tolist()
    return ids


def masked(filter_: ExLlamaV2EngineFilter) -> list[int]:
    assert filter_.prepare_logit_mask() is True
    logits = filter_.mask_logits(torch.zeros(384))
    return torch.nonzero(logits == 0).flatten().tolist()


def packed(filter_: ExLlamaV2EngineFilter) -> list[int]:
    bits = allocate_bitmask(3, filter_.vocabulary.size)
    return unpacked(bits[1]).tolist() if filter_.fill_bitmask(bits, 1) else list(range(384))


def test_bits_are_unpacked_in_order() -> None:
    assert unpacked(np.array([-(2**31), 0b101], dtype=np.int32)).tolist() == [31, 32, 34]


@pytest.mark.parametrize("index", range(3))
def test_the_three_forms_agree_along_random_texts(tokenizer: ExLlamaV2Tokenizer, index: int) -> None:
    for seed in range(3):
        choose = random.Random(seed)
        filter_ = every_filter(tokenizer)[index]
        filter_.begin("")
        for _ in range(40):
            allowed, ends = filter_.next()
            assert isinstance(allowed, list)
            assert allowed == sorted(set(allowed)) == masked(filter_) == packed(filter_)
            assert ends == {EOS}.intersection(allowed)
            sampled = EOS if EOS in allowed else choose.choice(allowed)
            feed(filter_, [sampled])
            if sampled == EOS:
                break
        else:
            pytest.fail("the text did not end")


@pytest.mark.parametrize(
    ("index", "text"), [(0, "12é!"), (1, "yes,yes"), (2, '{"a": -12}')], ids=["regex", "grammar", "json_schema"]
)
def test_texts_of_the_language_end_and_no_others(tokenizer: ExLlamaV2Tokenizer, index: int, text: str) -> None:
    filter_ = every_filter(tokenizer)[index]
    filter_.begin("")
    for token_id in ids_of(tokenizer, text):
        allowed, ends = filter_.next()
        assert allowed is not None
        assert token_id in allowed
        feed(filter_, [token_id])
    allowed, ends = filter_.next()
    assert ends == {EOS}
    filter_.begin("")
    assert filter_.next()[1] == set()


def test_a_character_may_be_split_over_tokens(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = ExLlamaV2RegexFilter(MODEL, tokenizer, "漢")
    filter_.begin("")
    parts = ids_of(tokenizer, "漢")
    assert len(parts) == 3
    for part in parts:
        assert filter_.next() == ([part], set())
        feed(filter_, [part])
    assert filter_.next() == ([EOS], {EOS})


def test_errors_of_constraints_that_do_not_compile(tokenizer: ExLlamaV2Tokenizer) -> None:
    with pytest.raises(RegexError):
        ExLlamaV2RegexFilter(MODEL, tokenizer, "(a")
    with pytest.raises(LarkError):
        ExLlamaV2GrammarFilter(MODEL, tokenizer, "start: missing")
    with pytest.raises(SchemaError):
        ExLlamaV2JSONSchemaFilter(MODEL, tokenizer, {"type": "strin"})


def test_options_reach_the_compilers(tokenizer: ExLlamaV2Tokenizer) -> None:
    other = ExLlamaV2GrammarFilter(MODEL, tokenizer, LARK + '\nother: "no"', start="other")
    other.begin("")
    feed(other, ids_of(tokenizer, "no"))
    assert other.next()[1] == {EOS}
    named = ExLlamaV2GrammarFilter(MODEL, tokenizer, "start: @word", grammars={"word": re.compile("no")})
    named.begin("")
    feed(named, ids_of(tokenizer, "no"))
    assert named.next()[1] == {EOS}
    ordered = ExLlamaV2JSONSchemaFilter(
        MODEL, tokenizer, {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}, property_order="schema"
    )
    ordered.begin("")
    feed(ordered, ids_of(tokenizer, '{"'))
    b = ids_of(tokenizer, "b")[0]
    assert b not in (ordered.next()[0] or [])


def test_a_token_outside_the_language_is_an_error_at_the_next_mask(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = ExLlamaV2RegexFilter(MODEL, tokenizer, "yes")
    filter_.begin("")
    stop = ids_of(tokenizer, "no")[0]
    feed(filter_, [stop, EOS])
    with pytest.raises(FilterError, match="excludes it"):
        filter_.next()
    filter_.begin("")
    assert filter_.next()[0]


def test_the_end_may_be_fed(tokenizer: ExLlamaV2Tokenizer) -> None:
    filter_ = ExLlamaV2RegexFilter(MODEL, tokenizer, "yes")
    filter_.begin("")
    feed(filter_, [*ids_of(tokenizer, "yes"), EOS])
    assert filter_.next() == ([EOS], {EOS})


def test_a_clone_goes_its_own_way(tokenizer: ExLlamaV2Tokenizer) -> None:
    for filter_ in every_filter(tokenizer):
        filter_.begin("")
        first = (filter_.next()[0] or [])[0]
        feed(filter_, [first])
        copy = filter_.clone()
        assert copy.background_result is None
        assert copy.grammar is filter_.grammar
        expected = filter_.next()
        assert copy.next() == expected
        feed(copy, [(copy.next()[0] or [])[0]])
        assert filter_.next() == expected


@pytest.mark.parametrize("prefix", [None, ""])
def test_begin_takes_no_prefix(tokenizer: ExLlamaV2Tokenizer, prefix: str | None) -> None:
    filter_ = ExLlamaV2RegexFilter(MODEL, tokenizer, "yes")
    feed(filter_, ids_of(tokenizer, "y"))
    filter_.begin(prefix)
    feed(filter_, ids_of(tokenizer, "yes"))
    assert filter_.next()[1] == {EOS}


def test_a_healed_token_covers_the_prefix_and_goes_on_in_the_language(tokenizer: ExLlamaV2Tokenizer) -> None:
    pieces = tokenizer.get_id_to_piece_list()
    hello, he = pieces.index("hello"), pieces.index("he")
    filter_ = ExLlamaV2RegexFilter(MODEL, tokenizer, "llo|n")
    filter_.begin("he")
    allowed = filter_.next()[0] or []
    assert {pieces[i] for i in allowed} == {"h", "he", "hel", "hell", "hello"} & set(pieces)
    feed(filter_, [hello])
    assert filter_.next() == ([EOS], {EOS})
    filter_.begin("he")
    feed(filter_, [he])
    feed(filter_, ids_of(tokenizer, "n"))
    assert filter_.next() == ([EOS], {EOS})
    filter_.begin("he")
    feed(filter_, ids_of(tokenizer, "x"))
    with pytest.raises(FilterError):
        filter_.next()


def test_a_healed_token_does_not_leave_the_language(tokenizer: ExLlamaV2Tokenizer) -> None:
    pieces = tokenizer.get_id_to_piece_list()
    filter_ = ExLlamaV2RegexFilter(MODEL, tokenizer, "ge|ll")
    filter_.begin("a")
    assert {"ase", "an", "age"} < {piece for piece in pieces if piece.startswith("a")}
    assert {pieces[i] for i in filter_.next()[0] or ()} == {"a", "ag", "age", "al"}


def test_engine_filters_offer_every_form_and_background_work(tokenizer: ExLlamaV2Tokenizer) -> None:
    for filter_ in every_filter(tokenizer):
        assert filter_.use_background_worker() is True
        assert filter_.can_mask_logits() is True


def test_a_grammar_may_be_given_compiled(tokenizer: ExLlamaV2Tokenizer) -> None:
    grammar = compile_regex("yes", vocabulary_of(tokenizer))
    assert ExLlamaV2EngineFilter(MODEL, tokenizer, grammar).grammar is grammar


def test_a_vocabulary_is_built_once_and_dies_with_its_tokenizer(tokenizer: ExLlamaV2Tokenizer) -> None:
    assert vocabulary_of(tokenizer) is vocabulary_of(tokenizer)
    other = ExLlamaV2Tokenizer(tokenizer.config)
    assert vocabulary_of(other) is not vocabulary_of(tokenizer)
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


def test_a_grammar_may_ask_for_special_tokens(tokenizer: ExLlamaV2Tokenizer) -> None:
    """``<pad>`` (2) is a special token; of ``</s>`` (1) and ``<s>`` (0), only the former ends the text."""
    filter_ = ExLlamaV2GrammarFilter(
        MODEL, tokenizer, 'start: <pad> "yes" BEGIN </s>\n%declare BEGIN', special_tokens={"BEGIN": "<s>"}
    )
    filter_.begin("")
    for token, ends in [(2, set()), *((token, set()) for token in ids_of(tokenizer, "yes")), (0, set()), (1, {1})]:
        allowed, ended = filter_.next()
        assert token in (allowed or ())
        assert ended == ends
        assert masked(filter_) == sorted(allowed or ())
        feed(filter_, [token])
    assert filter_.matcher.is_finished()
    assert accepts(filter_, "<pad>yes<s></s>", special_tokens=True)
    for text in ("<pad>yes<s>", "yes<s></s>", "<pad>yes<s></s></s>"):
        assert not accepts(filter_, text, special_tokens=True)
    assert sample(filter_) == "<pad>yes<s></s>"

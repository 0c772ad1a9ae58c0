"""The tokenizer of the built-in model: any text comes back, and a value is split in the same way wherever it stands."""

from __future__ import annotations

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constrain.demo import model_dir
from constrain.demo.batches import Codec
from constrain.demo.synth import Split, example
from constrain.demo.tokenizer import SPECIAL, train_tokenizer
from constrain.extract.prompts.builtin import RECORD_MARK, SCHEMA_MARK, TEXT_MARK

CODEC = Codec(model_dir())


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: not any(mark in text for mark in SPECIAL)))
def test_any_text_comes_back(text: str) -> None:
    assert CODEC.decode(CODEC.tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_every_byte_is_a_token() -> None:
    tokens = [CODEC.tokenizer.id_to_token(index) for index in range(CODEC.tokenizer.get_vocab_size())]
    assert sum(len(token) == 1 for token in tokens) == 256
    assert tokens[: len(SPECIAL)] == list(SPECIAL)


@pytest.mark.parametrize(
    "value", ["Anna Kvist", "standing desk", "INV-20418", "1234.5", "d.okoro@ferro.example", "Łódź 7b"]
)
def test_a_value_has_the_same_tokens_in_text_and_record_but_for_a_space_before_it(value: str) -> None:
    first, *rest = CODEC.tokenizer.encode(value, add_special_tokens=False).tokens
    for around in (
        f"to {value}, today",
        f"Name: {value}\n",
        f'{{"a": "{value}", "b": 1}}',
        f'["{value}"]',
        f"({value})",
    ):
        tokens = CODEC.tokenizer.encode(around, add_special_tokens=False).tokens
        found = [tokens[index : index + 1 + len(rest)] for index in range(len(tokens))]
        assert [first, *rest] in found or [f"Ġ{first}", *rest] in found, tokens


def test_digits_stand_alone_and_json_marks_together() -> None:
    tokens = CODEC.tokenizer.encode(json.dumps({"a": "x", "b": 12}), add_special_tokens=False).tokens
    assert tokens == ['{"', "a", '":Ġ"', "x", '",Ġ"', "b", '":Ġ', "1", "2", "}"]


@pytest.mark.parametrize("has_shots", [False, True])
def test_prompts_begin_with_bos_and_hold_the_marks_as_tokens(has_shots: bool) -> None:
    samples = (example(0, Split.TRAIN, index) for index in count())
    sample = next(each for each in samples if bool(each.shots) == has_shots)
    ids = CODEC.prompt(sample)
    schema, text, record = (CODEC.tokenizer.token_to_id(mark) for mark in (SCHEMA_MARK, TEXT_MARK, RECORD_MARK))
    marks = [schema, *[text, record] * (len(sample.shots) + 1)]
    assert ids[0] == CODEC.bos
    assert [token for token in ids if token in marks] == marks
    assert ids[-1] == marks[-1]
    assert CODEC.answer(sample)[-1] == CODEC.eos


def test_training_a_tokenizer_is_deterministic() -> None:
    first, second = (train_tokenizer(8).to_str() for _ in range(2))
    assert first == second

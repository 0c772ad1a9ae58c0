"""The plugin as its users see it: made by name, obeyed by a generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.demo import model_dir
from constrain.filters import available, create
from constrain.filters.adapter import adapt
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler


@pytest.fixture(scope="module")
def generator() -> ExLlamaV2BaseGenerator:
    torch.set_num_threads(1)
    model = ExLlamaV2(ExLlamaV2Config(str(model_dir())))
    model.load()
    return ExLlamaV2BaseGenerator(model, ExLlamaV2Cache(model), ExLlamaV2Tokenizer(model.config))


@pytest.fixture
def digits(generator: ExLlamaV2BaseGenerator) -> Any:
    return create("characters", generator.model, generator.tokenizer, characters="0123456789")


def test_the_filter_is_listed_with_its_origin() -> None:
    (info,) = [info for info in available() if info.name == "characters"]
    assert (info.origin, info.version, info.signature) == ("constrain-example", "0.1.0", "(characters: str)")


def test_text_has_the_given_characters_only(generator: ExLlamaV2BaseGenerator, digits: Any) -> None:
    settings = ExLlamaV2Sampler.Settings(temperature=3.0)
    texts = [
        generator.generate_simple(
            "The answer is ", settings, 16, seed=seed, stop_token=None, filters=[digits], completion_only=True
        )
        for seed in range(8)
    ]
    assert "".join(texts).isdigit()  # one alone may end at once


def test_a_runtime_sees_a_constraint(generator: ExLlamaV2BaseGenerator, digits: Any) -> None:
    tokenizer = generator.tokenizer
    constraint = adapt(digits, tokenizer, generator.model.config.padded_vocab_size)
    constraint.begin()
    mask = constraint.mask()
    assert mask is not None and mask.count == len(digits.tokens) and all(token in mask for token in digits.tokens)
    constraint.accept(int(tokenizer.encode("7")[0, 0]))
    fork = constraint.fork()
    assert fork is not None and fork.mask().id == mask.id
    assert constraint.is_third_party and constraint.matchers is None and not constraint.end_tokens


def test_a_clone_allows_the_same(digits: Any) -> None:
    assert digits.clone().next() == digits.next()

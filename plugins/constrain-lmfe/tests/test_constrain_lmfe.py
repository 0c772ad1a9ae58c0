"""lm-format-enforcer's parsers through the base generator of constrain."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from constrain_lmfe import ExLlamaV2TokenEnforcerFilter
from lmformatenforcer import JsonSchemaParser, RegexParser

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.demo import model_dir
from constrain.filters import available, create
from constrain.filters.adapter import adapt
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "size": {"enum": ["S", "M", "L"]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def generator() -> ExLlamaV2BaseGenerator:
    torch.set_num_threads(1)
    model = ExLlamaV2(ExLlamaV2Config(str(model_dir())))
    model.load()
    return ExLlamaV2BaseGenerator(model, ExLlamaV2Cache(model), ExLlamaV2Tokenizer(model.config))


def generate(generator: ExLlamaV2BaseGenerator, *filters: Any, seed: int = 1) -> str:
    settings = ExLlamaV2Sampler.Settings(temperature=1.5)
    return generator.generate_simple("", settings, 150, seed, add_bos=True, completion_only=True, filters=filters)


def test_the_filter_is_listed_with_its_origin() -> None:
    (info,) = [info for info in available() if info.name == "lmfe"]
    assert info.origin == "constrain-lmfe"
    assert info.signature == "(character_level_parser: CharacterLevelParser)"


@pytest.mark.parametrize("seed", range(3))
def test_a_json_schema_is_obeyed(generator: ExLlamaV2BaseGenerator, seed: int) -> None:
    parser = JsonSchemaParser(SCHEMA)
    enforcer = create("lmfe", generator.model, generator.tokenizer, character_level_parser=parser)
    record = json.loads(generate(generator, enforcer, seed=seed))
    assert set(record) == {"name", "size"}
    assert record["size"] in ("S", "M", "L")
    assert len(record["name"]) <= 8


def test_a_regular_expression_is_obeyed(generator: ExLlamaV2BaseGenerator) -> None:
    pattern = r"[a-f]{3}-[0-9]{2}(yes|no)"
    enforcer = ExLlamaV2TokenEnforcerFilter(generator.model, generator.tokenizer, RegexParser(pattern))
    assert re.fullmatch(pattern, generate(generator, enforcer))


def test_the_filter_combines_with_the_built_in_ones(generator: ExLlamaV2BaseGenerator) -> None:
    enforcer = ExLlamaV2TokenEnforcerFilter(generator.model, generator.tokenizer, RegexParser("[a-f]{3}"))
    other = create("regex", generator.model, generator.tokenizer, pattern="[e-z]*")
    assert re.fullmatch("[ef]{3}", generate(generator, enforcer, other))


def test_a_filter_can_be_used_again_and_cloned(generator: ExLlamaV2BaseGenerator) -> None:
    enforcer = ExLlamaV2TokenEnforcerFilter(generator.model, generator.tokenizer, RegexParser("[ab]{2}"))
    assert len(generate(generator, enforcer)) == 2
    enforcer.begin("")
    first = enforcer.next()
    copy = enforcer.clone()
    copy.feed(torch.tensor([[first[0][0]]]))
    assert enforcer.next() == first
    assert copy.next() != first


def test_several_tokens_may_be_fed_before_the_next_mask(generator: ExLlamaV2BaseGenerator) -> None:
    enforcer = ExLlamaV2TokenEnforcerFilter(generator.model, generator.tokenizer, RegexParser("[ab]{3}"))
    enforcer.begin("")
    letter = generator.tokenizer.single_id("a")
    for _ in range(3):
        enforcer.feed(torch.tensor([[letter]]))
    assert enforcer.next()[0] == [generator.tokenizer.eos_token_id]


def test_nothing_is_kept_of_earlier_texts(generator: ExLlamaV2BaseGenerator) -> None:
    enforcer = ExLlamaV2TokenEnforcerFilter(generator.model, generator.tokenizer, RegexParser("[ab]*"))
    letter = generator.tokenizer.single_id("a")
    sizes = []
    for length in (3, 2, 1):
        copy = enforcer.clone()
        for each in (enforcer, copy):
            each.begin("")
            for _ in range(length):
                each.next()
                each.feed(torch.tensor([[letter]]))
            sizes.append(len(each.token_enforcer.prefix_states))
    assert sizes == [3, 3, 2, 2, 1, 1]


def test_a_runtime_sees_a_constraint(generator: ExLlamaV2BaseGenerator) -> None:
    tokenizer = generator.tokenizer
    enforcer = ExLlamaV2TokenEnforcerFilter(generator.model, tokenizer, RegexParser("[ab]{2}"))
    constraint = adapt(enforcer, tokenizer, generator.model.config.padded_vocab_size, time_limit=30.0)
    constraint.begin()
    first = constraint.mask()
    assert first is not None and first.tokens == enforcer.next()[0]
    fork = constraint.fork()
    assert fork is not None
    fork.accept(first.tokens[0])
    assert fork.mask().id != constraint.mask().id == first.id
    assert constraint.is_third_party and constraint.matchers is None and constraint.min_tokens() is None

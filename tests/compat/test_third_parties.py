"""The exllamav2 integrations of other packages drive generation through the alias, as they are."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pydantic
import pytest

from constrain.compat.exllamav2 import install, uninstall
from constrain.demo import model_dir
from constrain.extract import build_prompt

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
PROMPT = build_prompt(SCHEMA, "Ada Lovelace is 36 years old.")
PATTERN = "(cat|dog)-[0-9]{2}x"

Constrain = Callable[[str, Any], Any]
Write = Callable[[Any], str]


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    """The objects that programs for exllamav2 make first: model, cache and tokenizer."""
    install()
    from exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer

    config = ExLlamaV2Config(str(model_dir()))
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, max_seq_len=768, lazy=True)
    model.load_autosplit(cache)
    yield {"model": model, "cache": cache, "tokenizer": ExLlamaV2Tokenizer(config)}
    uninstall()


@pytest.fixture(params=["base", "dynamic"])
def write(program: Any, request: pytest.FixtureRequest) -> Write:
    """Continues the prompt inside what a filter allows."""
    from exllamav2.generator import ExLlamaV2BaseGenerator, ExLlamaV2DynamicGenerator, ExLlamaV2Sampler

    settings = ExLlamaV2Sampler.Settings.greedy()

    def with_base(filters: list[Any]) -> str:
        text: str = ExLlamaV2BaseGenerator(**program).generate_simple(
            PROMPT, settings, 60, filters=filters, completion_only=True
        )
        return text

    def with_dynamic(filters: list[Any]) -> str:
        generator = ExLlamaV2DynamicGenerator(**program)
        texts: list[str] = generator.generate(
            prompt=["anything", PROMPT],
            filters=[None, filters],
            gen_settings=settings,
            max_new_tokens=60,
            stop_conditions=[program["tokenizer"].eos_token_id],
            completion_only=True,
        )
        return texts[1]

    run = with_base if request.param == "base" else with_dynamic
    return lambda filter_of: run([filter_of(program["model"], program["tokenizer"])])


def test_lm_format_enforcer(write: Write) -> None:
    pytest.importorskip("lmformatenforcer")
    from lmformatenforcer import JsonSchemaParser, RegexParser
    from lmformatenforcer.integrations.exllamav2 import ExLlamaV2TokenEnforcerFilter

    record = write(lambda model, tokenizer: ExLlamaV2TokenEnforcerFilter(JsonSchemaParser(SCHEMA), tokenizer))
    assert json.loads(record) == {"name": "Ada Lovelace", "age": 36}
    assert re.fullmatch(
        PATTERN, write(lambda _, tokenizer: ExLlamaV2TokenEnforcerFilter(RegexParser(PATTERN), tokenizer))
    )


def test_lm_format_enforcer_in_a_filter_of_the_program(write: Write) -> None:
    pytest.importorskip("lmformatenforcer")
    from exllamav2.generator.filters import ExLlamaV2Filter
    from lmformatenforcer import RegexParser, TokenEnforcer
    from lmformatenforcer.integrations.exllamav2 import build_token_enforcer_tokenizer_data

    class EnforcerFilter(ExLlamaV2Filter):  # type: ignore[misc]
        def __init__(self, model: Any, tokenizer: Any) -> None:
            super().__init__(model, tokenizer)
            self.enforcer = TokenEnforcer(build_token_enforcer_tokenizer_data(tokenizer), RegexParser(PATTERN))
            self.sequence: list[int] = []

        def begin(self, prefix_str: str) -> None:
            self.sequence = []

        def feed(self, token: Any) -> None:
            self.sequence.append(int(token[0][0]))

        def next(self) -> tuple[list[int], list[int]]:
            return sorted(self.enforcer.get_allowed_tokens(self.sequence).allowed_tokens), []

        def use_background_worker(self) -> bool:
            return True

    assert re.fullmatch(PATTERN, write(EnforcerFilter))


@pytest.fixture
def formatron(monkeypatch: pytest.MonkeyPatch) -> Any:
    # Formatron takes the standard library's typing out of pydantic, where it used to be.
    monkeypatch.setattr(pydantic, "typing", typing, raising=False)
    return pytest.importorskip("formatron.formatter")


@pytest.mark.parametrize("kind", ["json", "regex"])
def test_formatron(write: Write, formatron: Any, kind: str) -> None:
    from formatron.integrations.exllamav2 import create_formatter_filter
    from formatron.integrations.utils import update_vocab_dot_G
    from formatron.schemas import json_schema

    builder = formatron.FormatterBuilder()
    if kind == "json":
        identified = {"$id": "https://example.com/person.json", "$schema": "http://json-schema.org/draft-07/schema#"}
        builder.append_str(f"{builder.json(json_schema.create_schema({**identified, **SCHEMA}), capture_name='found')}")
    else:
        builder.append_str(f"{builder.regex(PATTERN, capture_name='found')}")
    made = []

    def formatter_filter(model: Any, tokenizer: Any) -> Any:
        made.append(create_formatter_filter(model, tokenizer, builder, vocab_processors=[update_vocab_dot_G]))
        return made[0]

    text = write(formatter_filter)
    found = made[0].formatter_captures["found"]
    if kind == "json":
        assert found == json.loads(text) == {"name": "Ada Lovelace", "age": 36}
    else:
        assert re.fullmatch(PATTERN, text) and found.group() == text

"""Arguments that are plausible and wrong: each ends in an error that names it, never in one from inside.

Those of the engine are in ``tests/engine/test_arguments.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from names import without_addresses

import constrain
from constrain import LLM, ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2StreamingGenerator
from constrain.arguments import check_count, check_number, texts_of
from constrain.chat import Chat
from constrain.engine import Vocabulary, compile_regex
from constrain.errors import (
    ArgumentError,
    CacheError,
    ConfigError,
    ConstrainError,
    GrammarError,
    SchemaError,
    VocabularyError,
)
from constrain.extract import Extractor, Target
from constrain.filters import ExLlamaV2EngineFilter, combine, create
from constrain.filters.vocabularies import vocabulary_of
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler
from constrain.testing import MockModel, accepts, byte_vocabulary, sample

Settings = ExLlamaV2Sampler.Settings
GRAMMAR = compile_regex("a+", byte_vocabulary())


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir)


@pytest.fixture(scope="module")
def dynamic(llm: LLM) -> ExLlamaV2DynamicGenerator:
    return ExLlamaV2DynamicGenerator(llm.model, constrain.ExLlamaV2Cache(llm.model, max_seq_len=256), llm.tokenizer)


@pytest.fixture
def streaming(llm: LLM) -> ExLlamaV2StreamingGenerator:
    return ExLlamaV2StreamingGenerator(llm.model, constrain.ExLlamaV2Cache(llm.model), llm.tokenizer)


def refuses(kind: type[ConstrainError], said: str, call: Callable[..., Any], *args: Any, **options: Any) -> None:
    with pytest.raises(kind, match=said):
        call(*args, **options)


@pytest.mark.parametrize("check", [check_count, check_number])
@pytest.mark.parametrize("value", ["10", None, math.nan, math.inf, [1], 1j, -1, 7], ids=repr)
def test_numbers_have_a_type_and_bounds(check: Callable[..., None], value: Any) -> None:
    refuses(ArgumentError, r"n must be a .* number from 0 to 5, not ", check, "n", value, 0, 5)
    check("n", 3, 0, 5)


@pytest.mark.parametrize("value", ["abc", b"abc", {"a": 1}, None, 5], ids=repr)
def test_a_text_is_no_list_of_texts(value: Any) -> None:
    refuses(ArgumentError, "words must be a list of texts, not", texts_of, "words", value)
    assert texts_of("words", ("abc",)) == ["abc"]


def test_what_was_given_is_shown_in_brief() -> None:
    with pytest.raises(ArgumentError) as caught:
        check_count("n", "x" * 10_000)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"prompt": None}, ArgumentError, "give a prompt, or messages"),
        ({"prompt": b"a"}, ArgumentError, "prompt must be a str"),
        ({"prompt": ["a"]}, ArgumentError, "prompt must be a str"),
        ({"prompt": "\ud800"}, ArgumentError, "prompt is no text, because of a lone surrogate"),
        ({"max_new_tokens": "10"}, ArgumentError, r"max_new_tokens must be .* not '10' \(str\)"),
        ({"max_new_tokens": 1.5}, ArgumentError, "max_new_tokens must be"),
        ({"max_new_tokens": -1}, ArgumentError, "max_new_tokens must be"),
        ({"settings": {"temperature": 0}}, ArgumentError, r"gen_settings must be ExLlamaV2Sampler\.Settings"),
        ({"seed": "7"}, ArgumentError, "seed must be a whole number"),
        ({"filters": GRAMMAR}, ArgumentError, "filters must be a list of filters"),
        ({"regex": b"a"}, GrammarError, "the pattern must be a str"),
        ({"grammar": Path("g.lark")}, GrammarError, "a grammar must be a str"),
        ({"grammar": 'start: "a"', "grammars": ["b"]}, GrammarError, "grammars must be grammars by name"),
        ({"choices": "yes"}, GrammarError, "choices must be a list of texts"),
        ({"prefix": 5}, GrammarError, "prefix_strings must be a list of texts"),
        ({"json_schema": "{}"}, GrammarError, "a schema is a dict or a type"),
        ({"regexp": "a"}, ArgumentError, r"there is no option 'regexp'; did you mean 'regex'\?"),
        ({"xyz": 1}, ArgumentError, "there is no option 'xyz'; there are choices, filters, grammar, "),
    ],
    ids=without_addresses,
)
def test_generate(llm: LLM, options: dict[str, Any], kind: type[ConstrainError], said: str) -> None:
    refuses(kind, said, llm.generate, **{"prompt": "hello", "max_new_tokens": 2, **options})


def test_choose(llm: LLM) -> None:
    refuses(ArgumentError, "give a prompt, or messages", llm.choose, None, ["a"])
    refuses(GrammarError, r"options\[0\] must be a str", llm.choose, "hello", [1])


def test_extract(llm: LLM) -> None:
    refuses(ArgumentError, "is a path, and no document", llm.extract, {"type": "string"}, Path("letter.txt"))
    refuses(ArgumentError, "did you mean 'max_new_tokens'", llm.extract, {"type": "string"}, "text", max_tokens=5)
    refuses(ArgumentError, "target must be a Target", llm.extractor.extract, {"type": "string"}, "text")
    refuses(ArgumentError, "prompt must be a function", Extractor, llm.runtime, "Extract:")
    refuses(ArgumentError, "runtime must be a Runtime, or something that has one", Extractor, llm.model)
    refuses(ArgumentError, "runtime must be a Runtime, or something that has one", LLM, llm.tokenizer)
    refuses(ArgumentError, "a stop condition must be", llm.generate, "hello", stop=[1.5])


@pytest.mark.parametrize(
    "schema",
    [{"$schema": 1}, {"$schema": "http://example.org/mine"}, {"enum": [{1}]}, {"properties": {1: {}}}, {"$ref": "#/x"}],
    ids=str,
)
def test_targets_are_checked_at_once(schema: dict[Any, Any]) -> None:
    refuses(SchemaError, "not a (valid )?JSON Schema|none of the dialects|leads nowhere|is no JSON", Target.of, schema)


@pytest.mark.parametrize("keyword", ["$ref", "$schema"])
def test_nothing_is_fetched(keyword: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with pytest.raises(SchemaError) as caught:
        Target.of({keyword: "https://example.org/schema"})
    assert "sending request" not in str(caught.value)


def test_targets_read_text() -> None:
    refuses(ArgumentError, "text must be a str", Target.of({}).read, None)
    refuses(SchemaError, "the schema must be a dict", Target, "{}")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", math.nan),
        ("temperature", "1"),
        ("temperature", None),
        ("token_repetition_penalty", None),
        ("token_repetition_decay", -1),
        ("top_k", 1.5),
        ("top_k", 2**31),
        ("top_p", "0.9"),
        ("skew", math.inf),
        ("smoothing_factor", math.inf),
        ("xtc_probability", 2),
        ("token_bias", [0.0]),
        ("post_sampling_hooks", [1]),
        ("cfg_scale", "1"),
    ],
)
def test_settings(
    llm: LLM,
    dynamic: ExLlamaV2DynamicGenerator,
    streaming: ExLlamaV2StreamingGenerator,
    field: str,
    value: Any,
) -> None:
    settings, ids = Settings(**{field: value}), llm.tokenizer.encode("hello")
    refuses(ArgumentError, f"{field} must be", llm.generate, "hello", settings=settings)
    refuses(ArgumentError, f"{field} must be", streaming.begin_stream_ex, ids, settings)
    refuses(ArgumentError, f"{field} must be", dynamic.generate, "hello", 2, gen_settings=settings)


@pytest.mark.parametrize("tokens", ["ab", None, [None], [10**6], [-1], [1.5]], ids=repr)
def test_tokens_to_ban(llm: LLM, tokens: Any) -> None:
    for change in (Settings().disallow_tokens, Settings().allow_tokens):
        refuses(ArgumentError, "tokens must be a list|neither the id nor", change, llm.tokenizer, tokens)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": None}, "a prompt must be a str"),
        ({"prompt": [b"a"]}, "a prompt must be a str"),
        ({"max_new_tokens": "10"}, "max_new_tokens must be"),
        ({"max_new_tokens": 0}, "max_new_tokens must be"),
        ({"min_new_tokens": -1}, "min_new_tokens must be"),
        ({"seed": "a"}, "seed must be"),
        ({"gen_settings": 5}, "gen_settings must be"),
        ({"stop_conditions": "stop"}, "stop conditions must be a list"),
        ({"stop_conditions": [None]}, "a stop condition must be"),
        ({"stop_conditions": [[1]]}, "a stop condition must be"),
        ({"filters": 5}, "filters must be a list"),
        ({"banned_strings": "bad"}, "banned_strings must be a list"),
        ({"banned_strings": [1]}, r"banned_strings\[0\] must be a str"),
        ({"return_top_tokens": 10**12}, "return_top_tokens must be a whole number from 0 to"),
        ({"max_skips": -1}, "max_skips must be"),
        ({"abort_event": True}, "abort_event must be a threading.Event"),
        ({"embeddings": "image"}, "embeddings must be a list"),
        ({"embeddings": [torch.ones(1, 8)]}, "embeddings must be a list"),
        ({"trigger": 5, "filters": [MockModel()]}, "trigger must be|not a filter"),
    ],
    ids=without_addresses,
)
def test_jobs(dynamic: ExLlamaV2DynamicGenerator, options: dict[str, Any], said: str) -> None:
    refuses(ConstrainError, said, dynamic.generate, **{"prompt": "hello", "max_new_tokens": 2, **options})
    assert dynamic.num_remaining_jobs() == 0


@pytest.mark.parametrize("ids", [None, "hello", [1, 2], [[1, 2]], torch.ones(1, 2), torch.ones(3, dtype=torch.long)])
def test_ids(llm: LLM, dynamic: ExLlamaV2DynamicGenerator, streaming: ExLlamaV2StreamingGenerator, ids: Any) -> None:
    refuses(ArgumentError, "input_ids must be ids", ExLlamaV2DynamicJob, ids, 2)
    refuses(ArgumentError, "input_ids must be ids", streaming.begin_stream_ex, ids, Settings())
    refuses(ArgumentError, "input_ids must be ids", llm.model.forward, ids)
    refuses(ArgumentError, "job must be", dynamic.enqueue, ids if isinstance(ids, torch.Tensor) else "job")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_batch_size": "4"}, "max_batch_size must be"),
        ({"max_q_size": 0}, "max_q_size must be"),
        ({"max_seq_len": -1}, "max_seq_len must be"),
        ({"num_draft_tokens": -1}, "num_draft_tokens must be"),
        ({"filter_time_limit": "1"}, "filter_time_limit must be"),
    ],
    ids=str,
)
def test_dynamic_generators(dynamic: ExLlamaV2DynamicGenerator, options: dict[str, Any], said: str) -> None:
    refuses(ArgumentError, said, ExLlamaV2DynamicGenerator, dynamic.model, dynamic.cache, dynamic.tokenizer, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_new_tokens": "5"}, "max_new_tokens must be"),
        ({"return_top_tokens": 10**9}, "return_top_tokens must be"),
        ({"banned_strings": "bad"}, "banned_strings must be"),
        ({"filters": 5}, "filters must be"),
        ({"loras": "adapter"}, "loras must be"),
        ({"abort_event": True}, "abort_event must be"),
    ],
    ids=str,
)
def test_streams(streaming: ExLlamaV2StreamingGenerator, options: dict[str, Any], said: str) -> None:
    ids = streaming.tokenizer.encode("hello")
    refuses(ArgumentError, said, streaming.begin_stream_ex, ids, Settings(), **options)


@pytest.mark.parametrize("tokens", [5, "a", ["a"], [-1], [10**9], torch.tensor([0.5])], ids=repr)
def test_tokens_that_are_banned_for_once(streaming: ExLlamaV2StreamingGenerator, tokens: Any) -> None:
    streaming.begin_stream_ex(streaming.tokenizer.encode("hello"), Settings())
    refuses(ArgumentError, "ban_tokens must be", streaming.stream_ex, tokens)


@pytest.mark.parametrize("wrong", ["model", "cache", "tokenizer"])
@pytest.mark.parametrize("kind", [ExLlamaV2BaseGenerator, ExLlamaV2StreamingGenerator, ExLlamaV2DynamicGenerator])
def test_what_generators_are_made_of(dynamic: ExLlamaV2DynamicGenerator, kind: Any, wrong: str) -> None:
    parts = {"model": dynamic.model, "cache": dynamic.cache, "tokenizer": dynamic.tokenizer}
    refuses(ArgumentError, f"{wrong} must be an ExLlamaV2", kind, **{**parts, wrong: "folder"})


def test_base_generators(llm: LLM) -> None:
    generate = ExLlamaV2BaseGenerator(llm.model, constrain.ExLlamaV2Cache(llm.model), llm.tokenizer).generate_simple
    refuses(ArgumentError, "prompt must be a list of texts", generate, None, Settings(), 2)
    refuses(ArgumentError, "num_tokens must be", generate, "hello", Settings(), "2")
    refuses(ArgumentError, "stop_token must be", generate, "hello", Settings(), 2, stop_token="</s>")
    refuses(ArgumentError, "input_embeddings must be", generate, "hello", Settings(), 2, input_embeddings=[1.0])


def test_conversations(dynamic: ExLlamaV2DynamicGenerator, llm: LLM) -> None:
    refuses(ArgumentError, "runtime must be a Runtime, or something that has one", Chat, llm.model)
    refuses(ArgumentError, "system must be a str", Chat, dynamic, system=["Be brief."])
    refuses(ArgumentError, "max_new_tokens must be", Chat, dynamic, max_new_tokens=0)
    refuses(ArgumentError, "message must be a str", lambda: list(Chat(dynamic).answer(None)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": "1"}, "batch_size must be"),
        ({"max_seq_len": None}, "max_seq_len must be"),
        ({"max_seq_len": 16.5}, "max_seq_len must be"),
        ({"num_key_value_heads": -1}, "num_key_value_heads must be"),
        ({"copy_from": "cache"}, "copy_from must be a KV cache"),
        ({"fixed_device": "gpu"}, "fixed_device='gpu' is no device"),
        ({"model": None}, "model must be an ExLlamaV2"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [constrain.ExLlamaV2Cache, constrain.ExLlamaV2Cache_8bit])
def test_caches(llm: LLM, kind: Any, options: dict[str, Any], said: str) -> None:
    refuses(CacheError, said, kind, **{"model": llm.model, "max_seq_len": 16, **options})


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_seq_len", "2048"), ("max_input_len", 0), ("scale_pos_emb", math.nan), ("compute_dtype", "float16")],
)
def test_configs(tiny_dir: Path, name: str, value: Any) -> None:
    config = constrain.ExLlamaV2Config(tiny_dir)
    setattr(config, name, value)
    refuses(ConfigError, f"{name} must be", constrain.ExLlamaV2, config)


@pytest.mark.parametrize("split", ["auto", 20, ["20"], [-1], [math.nan]], ids=repr)
def test_gigabytes(tiny_dir: Path, split: Any) -> None:
    model = constrain.ExLlamaV2(constrain.ExLlamaV2Config(tiny_dir))
    refuses(ArgumentError, r"gpu_split(\[0\])? must be", model.load, split)


def test_folders() -> None:
    refuses(ArgumentError, "model_dir must be the path of a folder", constrain.load, 5)
    refuses(ConfigError, "no config.json", constrain.load, "")
    refuses(ConfigError, "max_seq_len must be", constrain.load, max_seq_len=0)
    refuses(ArgumentError, "config must be an ExLlamaV2Config", constrain.ExLlamaV2Tokenizer, "folder")


@pytest.mark.parametrize("text", [None, b"a", 5, [1], "\ud800"], ids=repr)
def test_texts_to_encode(llm: LLM, text: Any) -> None:
    refuses(ArgumentError, "text", llm.tokenizer.encode, text)
    refuses(ArgumentError, "text", llm.tokenizer.num_tokens, text)


def test_filters(llm: LLM) -> None:
    make = lambda name, **options: create(name, llm.model, llm.tokenizer, **options)  # noqa: E731
    refuses(ConstrainError, "no filter is called", make, ["regex"])
    refuses(ConstrainError, "unexpected keyword argument 'white'", make, "json_schema", schema={}, white="any")
    refuses(GrammarError, r"options\[0\] must be a str", make, "select", options=[1], case_insensitive=True)
    refuses(ArgumentError, "filters must be a list", combine, 5, llm.tokenizer, 64)
    refuses(ArgumentError, "grammar must be a compiled grammar", ExLlamaV2EngineFilter, llm.model, llm.tokenizer, "a+")
    refuses(ArgumentError, "tokenizer must be", create, "regex", llm.model, None, pattern="a")


def test_a_grammar_for_another_vocabulary_is_refused(llm: LLM) -> None:
    said = r"compiled for Vocabulary\(size=257.*Vocabulary\.from_tokenizer"
    refuses(VocabularyError, said, ExLlamaV2EngineFilter, llm.model, llm.tokenizer, GRAMMAR)


def test_a_vocabulary_that_differs_by_one_token_is_another(llm: LLM) -> None:
    own = vocabulary_of(llm.tokenizer)
    tokens = [own.token_bytes(token) for token in range(own.size)]
    tokens[tokens.index(b"z")] = b"zz~"
    other = Vocabulary.from_tokens(tokens, own.eos_token_ids, own.special_token_ids)
    grammar = compile_regex("a+", other)
    refuses(VocabularyError, "compiled for", ExLlamaV2EngineFilter, llm.model, llm.tokenizer, grammar)


def test_help_for_tests() -> None:
    refuses(ArgumentError, "constraint must be a compiled grammar or a filter", accepts, "a+", "a")
    refuses(ArgumentError, "text must be a str", accepts, GRAMMAR, None)
    refuses(ArgumentError, "max_tokens must be", sample, GRAMMAR, max_tokens="10")
    refuses(ArgumentError, "text must be a str", MockModel, None)

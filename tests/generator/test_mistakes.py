"""Mistakes in the use of the generators: typed errors, and warnings of names that have no effect."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.errors import ArgumentError, FilterError, GenerationError
from constrain.filters import ExLlamaV2Filter, ExLlamaV2RegexFilter
from constrain.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from constrain.generator.arguments import split_stop_conditions
from constrain.generator.prompt import left_padding

EOS = 1
IDS = torch.tensor([[10, 11, 12, 13]])
Settings = ExLlamaV2Sampler.Settings


@pytest.fixture
def generator(long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> ExLlamaV2DynamicGenerator:
    return ExLlamaV2DynamicGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=1024), tiny_tokenizer)


@pytest.fixture
def streaming(long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> ExLlamaV2StreamingGenerator:
    return ExLlamaV2StreamingGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=256), tiny_tokenizer)


def last_results(generator: ExLlamaV2DynamicGenerator) -> dict[Any, dict[str, Any]]:
    """Run all jobs; return the last result of each by its identifier."""
    last: dict[Any, dict[str, Any]] = {}
    while generator.num_remaining_jobs():
        last |= {result["identifier"]: result for result in generator.iterate() if result["eos"]}
    return last


# Prompts, stop conditions and numbers


@pytest.mark.parametrize("ids", [IDS.bool(), IDS.float(), IDS.to(torch.complex64), IDS[0]])
def test_prompts_that_are_no_integers_are_refused(streaming: ExLlamaV2StreamingGenerator, ids: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match="input_ids"):
        ExLlamaV2DynamicJob(ids, 3)
    with pytest.raises(ArgumentError, match="input_ids"):
        streaming.begin_stream_ex(ids, Settings())


HIDDEN = -65504.0


@pytest.mark.parametrize(
    ("mask", "offsets", "message"),
    [
        ([[0, HIDDEN, 0]], None, "may only hide padding on the left"),
        ([[HIDDEN, 0, 0]], [[0]], "may only hide padding on the left"),
        ([[HIDDEN, 0, HIDDEN]], [[-1]], "may only hide padding on the left"),
        ([[HIDDEN, HIDDEN, HIDDEN]], None, "minus the padding of each row, not \\[-3\\]"),
        (None, [[1]], "minus the padding of each row, not \\[1\\]"),
        (None, [[-3]], "minus the padding of each row, not \\[-3\\]"),
    ],
)
def test_only_padding_on_the_left_may_be_hidden(mask: Any, offsets: Any, message: str) -> None:
    ids = torch.zeros(1, 3, dtype=torch.long)
    given = [None if each is None else torch.tensor(each) for each in (mask, offsets)]
    with pytest.raises(GenerationError, match=message):
        left_padding(ids, *given)
    assert left_padding(ids, torch.tensor([[HIDDEN, HIDDEN, 0]]), torch.tensor([[-2]])).tolist() == [2]


def test_streams_have_to_begin_and_their_embeddings_take_no_padding(streaming: ExLlamaV2StreamingGenerator) -> None:
    with pytest.raises(GenerationError, match="call begin_stream_ex before stream_ex"):
        streaming.stream_ex()
    rows = torch.zeros(1, 2, streaming.model.config.hidden_size)
    with pytest.raises(GenerationError, match="input_embeddings take no padding"):
        streaming.begin_stream_ex(IDS, Settings(), input_embeddings=rows, position_offsets=torch.tensor([[-1]]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_prompts_of_other_integers_are_converted(
    generator: ExLlamaV2DynamicGenerator, streaming: ExLlamaV2StreamingGenerator, dtype: torch.dtype
) -> None:
    texts = []
    for ids in (IDS, IDS.to(dtype)):
        generator.enqueue(ExLlamaV2DynamicJob(ids, 4, gen_settings=Settings.greedy(), identifier=0))
        streaming.begin_stream_ex(ids, Settings.greedy())
        texts.append((last_results(generator)[0]["full_completion"], streaming.stream_ex()["chunk"]))
    assert texts[0] == texts[1]


def test_stop_conditions_of_numpy_are_ids_and_others_are_refused(generator: ExLlamaV2DynamicGenerator) -> None:
    tokens, strings = split_stop_conditions([np.int64(4), 5, "x"])
    assert tokens == {4, 5} and all(type(token) is int for token in tokens) and strings == ["x"]
    for wrong in (True, -3, 1.0, "", [2]):
        with pytest.raises(ArgumentError, match="a stop condition must be an id"):
            split_stop_conditions([wrong])
    with pytest.raises(ArgumentError, match=r"stop condition must be a whole number from 0 to 383, not 384"):
        generator.generate("x", 3, stop_conditions=[384])


def test_options_that_contradict_each_other_are_refused(generator: ExLlamaV2DynamicGenerator) -> None:
    with pytest.raises(ArgumentError, match="min_new_tokens must be a whole number from 0 to 5, not 6"):
        generator.generate("x", 5, min_new_tokens=6)
    with pytest.raises(ArgumentError, match="banned_strings must be texts that are not empty"):
        generator.generate("x", 5, banned_strings=["a", ""])


# Filters


def test_a_filter_follows_one_job_at_a_time(generator: ExLlamaV2DynamicGenerator) -> None:
    regex = ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "[a-c]{3}")
    options: dict[str, Any] = {"max_new_tokens": 8, "filters": [regex], "stop_conditions": [EOS]}
    first, second = (ExLlamaV2DynamicJob(IDS, identifier=number, **options) for number in range(2))
    generator.enqueue(first)
    with pytest.raises(FilterError, match=r"ExLlamaV2RegexFilter: follows another request .*clone\(\)"):
        generator.enqueue(second)
    assert last_results(generator)[0]["new_tokens"] > 0
    generator.enqueue(second)
    generator.cancel(second)
    for _ in range(2):
        assert set(generator.generate("x", completion_only=True, **options)) <= set("abc")
    with pytest.raises(FilterError, match="follows another request"):
        generator.generate(["x", "y"], **(options | {"filters": [[regex], [regex]]}))
    with pytest.raises(FilterError, match="is given twice"):
        generator.generate("x", **(options | {"filters": [regex, regex]}))
    assert generator.num_remaining_jobs() == 0
    assert generator.generate("x", **options)


class Uncloned(ExLlamaV2Filter):
    """Allows one token, and has a clone that is none."""

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def next(self) -> Any:
        return {20}, set()

    def clone(self, c: Any = None) -> Any:
        return None


def test_a_filter_without_a_valid_clone_is_not_drafted_for(
    long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    cache = ExLlamaV2Cache(long_model, max_seq_len=1024)
    generator = ExLlamaV2DynamicGenerator(long_model, cache, tiny_tokenizer, use_ngram_draft=True)
    prompt = torch.tensor([[20, 21, 20, 21, 20]])
    filters = [Uncloned(long_model, tiny_tokenizer)]
    generator.enqueue(ExLlamaV2DynamicJob(prompt, 6, filters=filters, identifier=0))
    assert last_results(generator)[0]["new_tokens"] == 6


# Settings


def broken(change: Callable[[Settings], None]) -> Callable[[ExLlamaV2DynamicJob], None]:
    return lambda job: change(job.gen_settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (broken(lambda s: setattr(s, "temperature", "hot")), "temperature must be a finite number"),
        (broken(lambda s: setattr(s, "token_bias", torch.zeros(5))), "token_bias must have shape"),
        (broken(lambda s: setattr(s, "token_bias", [0.0])), "token_bias must be a tensor"),
        (broken(lambda s: setattr(s, "cfg_scale", 1.5)), "guidance takes two prompts"),
        (lambda job: setattr(job, "gen_settings", 3), "gen_settings must be ExLlamaV2Sampler.Settings"),
        (
            broken(lambda s: vars(s).update(dry_multiplier=1.0, dry_sequence_breakers=3, _params=None)),
            "settings of the job are invalid: TypeError",
        ),
    ],
)
def test_settings_that_become_invalid_end_their_own_job(
    generator: ExLlamaV2DynamicGenerator, change: Callable[[ExLlamaV2DynamicJob], None], message: str
) -> None:
    bad, good = (ExLlamaV2DynamicJob(IDS, 5, gen_settings=Settings(), identifier=name) for name in ("bad", "good"))
    generator.enqueue([bad, good])
    generator.iterate()
    change(bad)
    last = last_results(generator)
    assert last["good"]["new_tokens"] == 5 and last["good"]["eos_reason"] == "max_new_tokens"
    assert last["bad"]["eos_reason"] == "error" and bad.is_finished
    with pytest.raises(GenerationError if "must be" not in message else ArgumentError, match=message):
        raise last["bad"]["exception"]
    assert not any(page.users for page in generator.runtime.allocator.pages)


# Names without effect


def test_misspelt_options_are_named(
    generator: ExLlamaV2DynamicGenerator, streaming: ExLlamaV2StreamingGenerator
) -> None:
    with pytest.warns(UserWarning, match="there is no 'stop_conditons', which is ignored; did you mean 'stop_cond"):
        generator.generate("x", 1, stop_conditons=[1])
    with pytest.warns(UserWarning, match="did you mean 'completion_only'"):
        generator.generate("x", 1, compltion_only=True)
    with pytest.warns(UserWarning, match="did you mean 'filters'"):
        streaming.begin_stream_ex(IDS, Settings(), filterz=3)
    with pytest.warns(UserWarning, match="did you mean 'max_batch_size'"):
        ExLlamaV2DynamicGenerator(generator.model, generator.cache, generator.tokenizer, max_batchsize=3)
    with pytest.warns(UserWarning, match="did you mean 'temperature'"):
        Settings().temprature = 0.1  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="settings have no 'filters', which is ignored: give it to the generator"):
        Settings().filters = []  # type: ignore[attr-defined]


def test_options_of_other_versions_are_ignored_silently(generator: ExLlamaV2DynamicGenerator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generator.generate("x", 1, an_option_of_another_version=True)
        settings: Any = Settings()
        settings.something_else = settings.clone().top_k


def test_fields_of_subclasses_are_no_mistakes() -> None:
    @dataclass
    class Derived(Settings):
        top_k_count: int = 3

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Derived(top_k_count=5).top_k_count == 5


# Models


def test_a_model_without_weights_is_refused(tiny_dir: Path, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    model = ExLlamaV2(ExLlamaV2Config(str(tiny_dir)))
    model.load()
    cache = ExLlamaV2Cache(model, max_seq_len=256)
    dynamic = ExLlamaV2DynamicGenerator(model, cache, tiny_tokenizer)
    base = ExLlamaV2BaseGenerator(model, cache, tiny_tokenizer)
    streaming = ExLlamaV2StreamingGenerator(model, cache, tiny_tokenizer)
    assert dynamic.generate("yes", 2)
    model.unload()
    for call in (
        lambda: dynamic.generate("yes", 2),
        lambda: base.generate_simple("yes", Settings(), 2),
        lambda: streaming.begin_stream_ex(IDS, Settings()),
    ):
        with pytest.raises(GenerationError, match="the model has no weights"):
            call()

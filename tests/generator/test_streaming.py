"""The streaming generator: every argument, every key of its results, and reuse of the prompt before."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.errors import BudgetError, FilterError, GenerationError
from constrain.filters import ExLlamaV2RegexFilter
from constrain.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2PostSamplingResult,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)

EOS = 1
GREEDY = ExLlamaV2Sampler.Settings.greedy()
PROMPT = "hello there, the quick brown"


@pytest.fixture
def generator(tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> ExLlamaV2StreamingGenerator:
    return ExLlamaV2StreamingGenerator(tiny_model, ExLlamaV2Cache(tiny_model, batch_size=2), tiny_tokenizer)


def encode(generator: ExLlamaV2BaseGenerator, text: str) -> torch.Tensor:
    ids: torch.Tensor = generator.tokenizer.encode(text)
    return ids


def run(generator: ExLlamaV2StreamingGenerator, limit: int = 300) -> list[dict[str, Any]]:
    results = [generator.stream_ex()]
    while not results[-1]["eos"] and len(results) < limit:
        results.append(generator.stream_ex())
    return results


def text_of(results: list[dict[str, Any]]) -> str:
    return "".join(result["chunk"] for result in results)


def ids_of(results: list[dict[str, Any]]) -> list[int]:
    return [token for result in results for token in result["chunk_token_ids"][0].tolist()]


def stream(generator: ExLlamaV2StreamingGenerator, prompt: str, count: int, **options: Any) -> list[dict[str, Any]]:
    settings = options.pop("settings", GREEDY)
    generator.begin_stream_ex(encode(generator, prompt), settings, max_new_tokens=count, **options)
    return run(generator)


def forcing(tokens: list[int]) -> ExLlamaV2Sampler.Settings:
    """Settings whose hook puts the given tokens in place of those sampled."""
    given = iter(tokens)

    def hook(result: ExLlamaV2PostSamplingResult) -> None:
        result.sampled_token = torch.tensor([[next(given)]])

    return ExLlamaV2Sampler.Settings.greedy(post_sampling_hooks=[hook])


def biased(generator: ExLlamaV2BaseGenerator, **pieces: float) -> ExLlamaV2Sampler.Settings:
    bias = torch.zeros(384)
    for piece, value in pieces.items():
        bias[generator.tokenizer.get_id_to_piece_list().index(piece)] = value
    return ExLlamaV2Sampler.Settings.greedy(token_bias=bias)


def regex(generator: ExLlamaV2BaseGenerator, pattern: str) -> list[Any]:
    return [ExLlamaV2RegexFilter(generator.model, generator.tokenizer, pattern)]


@pytest.mark.parametrize("healing", [False, True])
@pytest.mark.parametrize("pattern", [None, "[a-f]{3}-[0-9]+ (yes please|no)!"])
@pytest.mark.parametrize("ngram", [False, True])
def test_all_generators_write_the_same(
    generator: ExLlamaV2StreamingGenerator,
    long_model: ExLlamaV2,
    healing: bool,
    pattern: str | None,
    ngram: bool,
) -> None:
    base = ExLlamaV2BaseGenerator(generator.model, ExLlamaV2Cache(generator.model), generator.tokenizer)
    filters = None if pattern is None else regex(generator, pattern)
    expected = base.generate_simple(
        PROMPT, GREEDY, 24, token_healing=healing, filters=filters, completion_only=True, stop_token=EOS
    )
    generator.speculative_ngram = ngram
    # The base generator counts the token that is generated anew.
    results = stream(
        generator, PROMPT, 24 - healing, token_healing=healing, filters=filters, complete_within_budget=False
    )
    assert text_of(results) == expected
    if healing and filters:
        return  # there, filters hold for what follows the token that is generated anew
    dynamic = ExLlamaV2DynamicGenerator(
        long_model, ExLlamaV2Cache(long_model, max_seq_len=1024), generator.tokenizer, use_ngram_draft=ngram
    )
    options: dict[str, Any] = {"token_healing": healing, "filters": filters, "stop_conditions": [EOS]}
    text = dynamic.generate(
        PROMPT, 24 - healing, gen_settings=GREEDY, completion_only=True, complete_within_budget=False, **options
    )
    assert text == expected


def test_a_stream_ends_with_its_last_token_or_the_context(generator: ExLlamaV2StreamingGenerator) -> None:
    generator.set_stop_conditions([])
    results = stream(generator, PROMPT, 5)
    assert results[-1]["eos_reason"] == "max_new_tokens" and len(ids_of(results)) <= 5
    ids = torch.randint(3, 300, (1, 250), generator=torch.Generator().manual_seed(1))
    generator.begin_stream_ex(ids, GREEDY)
    run(generator)
    assert generator.full() and generator.sequence_ids is not None and generator.sequence_ids.shape == (1, 256)


def test_stop_conditions(generator: ExLlamaV2StreamingGenerator) -> None:
    y, es, he = (generator.tokenizer.get_id_to_piece_list().index(piece) for piece in ("y", "es", "he"))
    assert generator.stop_tokens == {EOS} and generator.stop_strings == set()
    results = stream(generator, "x", 9, settings=forcing([he, EOS]))
    assert text_of(results) == "he" and results[-1]["eos_reason"] == "stop_token"
    assert results[-1]["chunk_token_ids"].shape == (1, 0)
    assert generator.sequence_ids is not None and int(generator.sequence_ids[0, -1]) == EOS
    generator.set_stop_conditions([EOS, "yes"])
    results = stream(generator, "x", 9, settings=forcing([he, y, es]))
    assert [result["chunk"] for result in results] == ["he", "", ""]
    assert ids_of(results) == [he] and results[-1]["eos_reason"] == "stop_string"
    # Text that is held when a stop token comes is not lost.
    results = stream(generator, "x", 9, settings=forcing([y, EOS]))
    assert [result["chunk"] for result in results] == ["", "y"]
    # A stop token that has text does not show it.
    generator.set_stop_conditions([he, "yes"])
    results = stream(generator, "x", 9, settings=forcing([y, he]))
    assert text_of(results) == "y" and results[-1]["eos_reason"] == "stop_token"
    with pytest.raises(ValueError, match="stop condition"):
        generator.set_stop_conditions([1.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="not None"):
        generator.set_stop_conditions(None)  # type: ignore[arg-type]


def test_after_its_end_a_stream_says_why_it_ended(generator: ExLlamaV2StreamingGenerator) -> None:
    he = generator.tokenizer.get_id_to_piece_list().index("he")
    event = threading.Event()
    stream(generator, "x", 9, settings=forcing([he, EOS]), abort_event=event)
    for _ in range(2):
        again = generator.stream_ex()
        assert (again["chunk"], again["eos"], again["eos_reason"]) == ("", True, "stop_token")
        assert again["chunk_token_ids"].shape == (1, 0)
        event.set()


def test_what_is_asked_for(generator: ExLlamaV2StreamingGenerator) -> None:
    wanted: dict[str, Any] = {"return_probabilities": True, "return_top_tokens": 3, "return_logits": True}
    results = stream(generator, PROMPT, 4, settings=biased(generator, he=50.0), **wanted)
    for result in results:
        count = result["chunk_token_ids"].shape[1]
        assert result["probs"].shape == (count,) and len(result["top_tokens"]) == 3 * count
        assert result["logits"].shape == (1, count, 384)
    expected = generator.model.forward(encode(generator, PROMPT), last_id_only=True)
    torch.testing.assert_close(results[0]["logits"], expected, atol=1e-4, rtol=1e-4)
    assert results[0]["top_tokens"][0][0] == int(results[0]["chunk_token_ids"])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_settings_may_change_between_calls(generator: ExLlamaV2StreamingGenerator, asynchronous: bool) -> None:
    """Also where the next token is sampled already, as on a GPU."""
    generator.runtime.runner.is_asynchronous = asynchronous
    settings, other = biased(generator, he=2e3), biased(generator, y=2e3)
    generator.begin_stream_ex(encode(generator, PROMPT), settings)
    chunks = [generator.stream_ex()["chunk"] for _ in range(2)]
    settings.token_bias = other.token_bias
    assert [*chunks, *(generator.stream_ex()["chunk"] for _ in range(2))] == ["he", "he", "y", "y"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tokens_can_be_banned_for_a_call(generator: ExLlamaV2StreamingGenerator, asynchronous: bool) -> None:
    generator.runtime.runner.is_asynchronous = asynchronous
    settings = biased(generator, he=2e3, y=1e3)
    generator.begin_stream_ex(encode(generator, PROMPT), settings)
    he = generator.tokenizer.encode("he")[0].tolist()
    chunks = [generator.stream_ex(ban_tokens=banned)["chunk"] for banned in (None, torch.tensor(he), he, [])]
    assert chunks == ["he", "y", "y", "he"]


def test_banned_strings_never_show(generator: ExLlamaV2StreamingGenerator) -> None:
    settings = biased(generator, y=2e3, he=1e3)
    results = stream(generator, "x", 4, settings=settings, banned_strings=["YYY"])
    assert text_of(results) == "heheyy"
    assert [result["suppressed"] for result in results if "suppressed" in result] == ["yyy", "yyy"]
    filtered = stream(generator, "x", 9, settings=settings, banned_strings=["yy"], filters=regex(generator, "[yz]{5}"))
    assert text_of(filtered) == "zzzzy"


def test_a_healed_token_shows_only_what_it_adds(generator: ExLlamaV2StreamingGenerator) -> None:
    results = stream(generator, "the\nhe", 1, settings=biased(generator, hello=1e4), token_healing=True)
    assert text_of(results) == "llohello" and len(results) == 1
    assert len(ids_of(results)) == 2


def test_guidance_takes_two_rows(generator: ExLlamaV2StreamingGenerator) -> None:
    settings = ExLlamaV2Sampler.Settings.greedy(cfg_scale=1.7)
    prompts = [PROMPT, "yes"]
    ids, offsets = generator.tokenizer.encode(prompts, return_offsets=True)
    mask = generator.tokenizer.padding_mask(ids)
    generator.begin_stream_ex(ids, settings, input_mask=mask, position_offsets=offsets, max_new_tokens=10)
    text = text_of(run(generator))
    base = ExLlamaV2BaseGenerator(generator.model, generator.cache, generator.tokenizer)
    assert text == base.generate_simple(prompts, settings, 10, completion_only=True)[0]
    with pytest.raises(GenerationError, match="guidance takes two prompts"):
        generator.begin_stream_ex(ids, GREEDY)


def test_only_what_is_new_of_a_prompt_is_computed(
    generator: ExLlamaV2StreamingGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[int] = []
    forward = generator.model.forward
    monkeypatch.setattr(
        generator.model,
        "forward",
        lambda ids, *rest, **more: widths.append(ids.shape[1]) or forward(ids, *rest, **more),
    )
    prompt = encode(generator, PROMPT)
    generator.begin_stream_ex(prompt, GREEDY)
    assert widths == [prompt.shape[1] - 1]
    generator.begin_stream_ex(prompt, GREEDY)
    assert len(widths) == 1
    first = text_of([generator.stream_ex() for _ in range(6)])
    assert generator.sequence_ids is not None
    turn = torch.cat([generator.sequence_ids, encode(generator, " yes")], dim=1)
    widths.clear()
    generator.begin_stream_ex(turn, GREEDY)
    # The last token of the answer had not been through the model.
    assert widths == [encode(generator, " yes").shape[1]]
    again = text_of([generator.stream_ex() for _ in range(6)])
    fresh = ExLlamaV2StreamingGenerator(generator.model, ExLlamaV2Cache(generator.model), generator.tokenizer)
    fresh.begin_stream_ex(turn, GREEDY)
    assert again == text_of([fresh.stream_ex() for _ in range(6)])
    # Something else has been in the cache since.
    generator.generate_simple("12 345", GREEDY, 9)
    generator.begin_stream_ex(prompt, GREEDY)
    assert text_of([generator.stream_ex() for _ in range(6)]) == first


def test_a_prompt_leaves_room_for_a_token(tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    generator = ExLlamaV2StreamingGenerator(tiny_model, ExLlamaV2Cache(tiny_model, max_seq_len=16), tiny_tokenizer)
    for length in (16, 17, 40):
        with pytest.raises(GenerationError, match=f"the prompt has {length} tokens, which leaves no room in 16"):
            generator.begin_stream_ex(torch.full((1, length), 40), GREEDY)
    generator.begin_stream_ex(torch.full((1, 15), 40), GREEDY)
    assert [result["eos"] for result in run(generator)] == [True]
    # The last token is generated again.
    generator.begin_stream_ex(encode(generator, "a" * 40)[:, :16], GREEDY, token_healing=True)
    assert run(generator)[-1]["eos"]


def test_embeddings_come_before_the_prompt(generator: ExLlamaV2StreamingGenerator) -> None:
    prompt = encode(generator, PROMPT)
    rows = generator.model.modules[0].weight[prompt[:, :3]]
    generator.begin_stream_ex(prompt[:, 3:], GREEDY, input_embeddings=rows, max_new_tokens=8)
    assert text_of(run(generator)) == text_of(stream(generator, PROMPT, 8))
    with pytest.raises(GenerationError, match="input_embeddings"):
        generator.begin_stream_ex(prompt, GREEDY, input_embeddings=rows[0])


def test_an_event_ends_a_stream(generator: ExLlamaV2StreamingGenerator) -> None:
    event = threading.Event()
    generator.begin_stream_ex(encode(generator, PROMPT), GREEDY, abort_event=event)
    assert not generator.stream_ex()["eos"]
    event.set()
    assert generator.stream_ex() == {
        "chunk": "",
        "eos": True,
        "chunk_token_ids": pytest.approx(torch.empty(1, 0)),
        "eos_reason": "aborted",
    }
    generator.begin_stream_ex(encode(generator, "12 345 67.8"), GREEDY, abort_event=event)
    assert generator.stream_ex()["eos"]
    assert text_of(stream(generator, PROMPT, 5)) == text_of(stream(generator, PROMPT, 5))


def test_a_batch_ends_a_stream(generator: ExLlamaV2StreamingGenerator) -> None:
    """Both use the rows of the cache, so that a stream that went on would write over what the batch has computed."""
    alone, expected = generator.generate_simple(PROMPT, GREEDY, 20), text_of(stream(generator, "hey", 8))
    generator.begin_stream_ex(encode(generator, "hey"), GREEDY)
    generator.stream_ex()
    assert generator.generate_simple(PROMPT, GREEDY, 20) == alone
    result = generator.stream_ex()
    assert (result["chunk"], result["eos"], result["eos_reason"]) == ("", True, "aborted")
    assert text_of(stream(generator, "hey", 8)) == expected


def test_a_prompt_that_was_interrupted_is_dropped(
    generator: ExLlamaV2StreamingGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = text_of(stream(generator, PROMPT, 20))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(generator.runtime.runner, "prefill", interrupt)
        generator.begin_stream_ex(encode(generator, "yes, hello"), GREEDY)
    assert text_of(stream(generator, PROMPT, 20)) == alone


def test_special_tokens_are_shown_on_demand(generator: ExLlamaV2StreamingGenerator) -> None:
    generator.set_stop_conditions([])
    assert text_of(stream(generator, "x", 1, settings=forcing([EOS]))) == ""
    assert text_of(stream(generator, "x", 1, settings=forcing([EOS]), decode_special_tokens=True)) == "</s>"


def test_the_older_forms(generator: ExLlamaV2StreamingGenerator) -> None:
    settings = biased(generator, he=2e3)
    generator.begin_stream(encode(generator, PROMPT), settings)
    chunk, eos, ids = generator.stream()
    assert chunk == "he" and not eos and ids.shape == (1, 1)
    generator.begin_stream(encode(generator, PROMPT), settings, return_probabilities=True, return_logits=True)
    assert [len(part) for part in generator.stream()[3:]] == [1, 1]


def test_filters_end_streams_and_failures_are_raised(generator: ExLlamaV2StreamingGenerator) -> None:
    results = stream(generator, PROMPT, 40, filters=regex(generator, "yes|no"))
    assert text_of(results) in ("yes", "no") and results[-1]["eos"]
    with pytest.raises(BudgetError):
        stream(generator, PROMPT, 4, filters=regex(generator, "[0-9]{9}"))
    results = stream(generator, PROMPT, 9, filters=regex(generator, "[0-9]*x"))
    assert text_of(results)[-1] == "x"

    class Broken:
        def begin(self, prefix_str: str) -> None: ...
        def feed(self, token: torch.Tensor) -> None: ...
        def next(self) -> Any:
            raise KeyError("lost")

    with pytest.raises(FilterError, match="lost"):
        stream(generator, PROMPT, 4, filters=[Broken()])


# Guesses


@pytest.mark.parametrize("pattern", [None, "([0-9]{2}-){3}[a-z ]{8}!"])
def test_drafts_do_not_change_the_text(generator: ExLlamaV2StreamingGenerator, pattern: str | None) -> None:
    filters = None if pattern is None else regex(generator, pattern)
    expected = stream(generator, PROMPT, 40, filters=filters)
    drafting = ExLlamaV2StreamingGenerator(
        generator.model, ExLlamaV2Cache(generator.model), generator.tokenizer, generator.model, None, 4
    )
    drafting.speculative_prob_threshold = 0.0
    results = stream(drafting, PROMPT, 40, filters=filters)
    assert text_of(results) == text_of(expected)
    # The model drafts for itself, so that guesses are right and calls give several tokens.
    efficiency, accuracy, total, drafted, accepted = drafting.get_sd_stats()
    assert accuracy == accepted / drafted > 0.9 and efficiency == accepted / total
    assert total - accepted == len(results), "each call has a token that was not drafted"
    assert max(result["chunk_token_ids"].shape[1] for result in results) > 1
    again = stream(drafting, PROMPT + " fox", 10)
    assert text_of(again) == text_of(stream(generator, PROMPT + " fox", 10))
    drafting.reset_sd_stats()
    assert drafting.get_sd_stats() == (0.0, 0.0, 0, 0, 0)
    drafting.one_token_per_call = True
    assert len(stream(drafting, PROMPT, 12)) == drafting.total_tokens == 12


def test_what_occurred_before_is_guessed(generator: ExLlamaV2StreamingGenerator) -> None:
    expected = text_of(stream(generator, PROMPT, 30))
    assert generator.sequence_ids is not None
    generator.ngram_preload(generator.sequence_ids)
    generator.speculative_ngram = True
    results = stream(generator, PROMPT, 30)
    assert text_of(results) == expected and len(results) < 20
    job = generator._job
    assert job is not None and generator.accepted_draft_tokens == job.accepted_draft_tokens > 10
    assert generator.total_draft_tokens - job.accepted_draft_tokens == job.rejected_draft_tokens > 0


@pytest.mark.parametrize("ngram", [False, True])
def test_without_draft_tokens_nothing_is_drafted(generator: ExLlamaV2StreamingGenerator, ngram: bool) -> None:
    model = generator.model
    drafting = ExLlamaV2StreamingGenerator(model, ExLlamaV2Cache(model), generator.tokenizer, None if ngram else model)
    drafting.speculative_ngram, drafting.speculative_ngram_max_inf, drafting.num_speculative_tokens = ngram, 0, 0
    stream(drafting, PROMPT, 1)
    assert drafting.runtime.speculation.proposer is None

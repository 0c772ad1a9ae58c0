"""The dynamic generator: results, scheduling, and that nothing depends on what runs beside a job."""

from __future__ import annotations

import random
import threading
from itertools import product
from typing import Any

import pytest
import torch
from dynamic_jobs import (
    EOS,
    GREEDY,
    PROMPT,
    RANDOM,
    Make,
    encode,
    forcing,
    ids,
    last,
    piece_ids,
    reference,
    run,
    streamed,
)

from constrain import ExLlamaV2, ExLlamaV2Cache
from constrain.errors import GenerationError
from constrain.filters import ExLlamaV2RegexFilter
from constrain.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2Sampler,
)

# Texts


def test_texts_are_those_of_the_most_likely_tokens(generator: ExLlamaV2DynamicGenerator) -> None:
    prompts = [PROMPT, "yes", "12 345"]
    texts = generator.generate(prompts, 12, gen_settings=GREEDY, completion_only=True)
    for prompt, text in zip(prompts, texts, strict=True):
        expected = reference(generator, encode(generator, prompt), 12)
        assert text == generator.tokenizer.decode(torch.tensor(expected))
    assert generator.generate(PROMPT, 12, gen_settings=GREEDY) == PROMPT + texts[0]


@pytest.mark.parametrize("options", [{}, {"token_healing": True}, {"stop_conditions": [EOS]}])
def test_the_base_generator_writes_the_same(
    generator: ExLlamaV2DynamicGenerator, tiny_model: ExLlamaV2, options: dict[str, Any]
) -> None:
    base = ExLlamaV2BaseGenerator(tiny_model, ExLlamaV2Cache(tiny_model), generator.tokenizer)
    healing = options.get("token_healing", False)
    expected = base.generate_simple(PROMPT, GREEDY, 16, token_healing=healing, stop_token=None, completion_only=True)
    # The token that is generated anew is one of the base generator's.
    count = 15 if healing else 16
    assert generator.generate(PROMPT, count, gen_settings=GREEDY, completion_only=True, **options) == expected


def test_guidance_takes_pairs(generator: ExLlamaV2DynamicGenerator, tiny_model: ExLlamaV2) -> None:
    settings = ExLlamaV2Sampler.Settings.greedy(cfg_scale=1.7)
    base = ExLlamaV2BaseGenerator(tiny_model, ExLlamaV2Cache(tiny_model, batch_size=2), generator.tokenizer)
    expected = base.generate_simple([PROMPT, "yes"], settings, 10, stop_token=None, completion_only=True)[0]
    pair = generator.generate([(PROMPT, "yes"), "no"], 10, gen_settings=[settings, GREEDY], completion_only=True)
    assert pair[0] == expected
    assert generator.generate((PROMPT, "yes"), 10, gen_settings=settings) == PROMPT + expected


def test_a_text_does_not_depend_on_what_runs_beside_it(make: Make) -> None:
    choose = random.Random(4)
    prompts = [ids(seed, choose.choice([2, 9, 70, 255, 256, 257, 300])) for seed in range(16)]
    counts = [choose.randint(5, 30) for _ in prompts]

    def job(number: int) -> ExLlamaV2DynamicJob:
        settings = GREEDY if number % 2 else RANDOM.clone()
        return ExLlamaV2DynamicJob(prompts[number], counts[number], gen_settings=settings, seed=number)

    expected = []
    for number in range(16):
        generator, single = make(1024), job(number)
        generator.enqueue(single)
        expected.append(streamed(run(generator), single))

    generator = make(4096, max_chunk_size=256)
    jobs = [job(number) for number in range(16)]
    others = [ExLlamaV2DynamicJob(prompts[number], 40, gen_settings=GREEDY) for number in range(0, 16, 3)]
    results: list[dict[str, Any]] = []
    waiting = [*jobs, *others]
    choose.shuffle(waiting)
    while waiting or generator.num_remaining_jobs():
        for _ in range(choose.randint(0, 3)):
            if waiting:
                generator.enqueue(waiting.pop())
        results += generator.iterate()
        if choose.random() < 0.3:
            generator.cancel(choose.choice(others))
    assert [streamed(results, each) for each in jobs] == expected


def test_a_seed_makes_draws_reproducible(generator: ExLlamaV2DynamicGenerator) -> None:
    first = generator.generate([PROMPT] * 2, 12, gen_settings=RANDOM, seed=5)
    assert first[0] != first[1]
    assert first[1] == generator.generate(PROMPT, 12, gen_settings=RANDOM, seed=6)


def test_settings_are_read_anew_for_each_token(generator: ExLlamaV2DynamicGenerator) -> None:
    job = ExLlamaV2DynamicJob(encode(generator, PROMPT), 6, gen_settings=ExLlamaV2Sampler.Settings.greedy())
    generator.enqueue(job)
    results = generator.iterate()
    job.gen_settings.token_bias = torch.zeros(384)
    job.gen_settings.token_bias[77] = 1e4
    assert streamed(results + run(generator), job)[1:] == [77] * 5


def test_what_settings_keep_is_each_text_s_own(make: Make) -> None:
    settings = ExLlamaV2Sampler.Settings(mirostat=True, mirostat_tau=3.0, temperature=2.0, top_k=0, top_p=0.0)
    alone = [make().generate(PROMPT, 12, gen_settings=settings, seed=seed) for seed in (5, 6)]
    assert make().generate([PROMPT] * 2, 12, gen_settings=settings, seed=5) == alone
    assert settings.mirostat_mu is None


# Results


def test_results_at_a_stop_token(generator: ExLlamaV2DynamicGenerator) -> None:
    he = piece_ids(generator, "he")[0]
    job = ExLlamaV2DynamicJob(encode(generator, "x"), 9, gen_settings=forcing([he, EOS]), stop_conditions=[EOS, "yes"])
    generator.enqueue(job)
    started, first, end = run(generator)
    base = {"job": job, "serial": 0}
    assert started == {**base, "stage": "started", "eos": False}
    assert first.pop("token_ids").tolist() == [[he]]
    assert first == {**base, "stage": "streaming", "eos": False, "text": "he"}
    assert end.pop("held")["token_ids"].tolist() == [[EOS]]
    assert all(end.pop(f"time_{name}") >= 0 for name in ("enqueued", "prefill", "generate"))
    assert end == {
        **base,
        "stage": "streaming",
        "eos": True,
        "eos_reason": "stop_token",
        "eos_triggering_token_id": EOS,
        "eos_triggering_token_str": "</s>",
        "full_completion": "he",
        "new_tokens": 2,
        "prompt_tokens": 1,
        "cached_pages": 0,
        "cached_tokens": 0,
    }
    assert job.is_finished and job.full_completion == "he"


def test_text_held_at_a_stop_token_is_not_released(generator: ExLlamaV2DynamicGenerator) -> None:
    y, e = piece_ids(generator, "y", "e")
    job = ExLlamaV2DynamicJob(
        encode(generator, "x"), 9, gen_settings=forcing([y, e, EOS]), stop_conditions=[EOS, "yes"], identifier=0
    )
    generator.enqueue(job)
    _, first, second, end = run(generator)
    base = {"job": job, "serial": 0, "identifier": 0, "stage": "streaming", "eos": False}
    assert first == base and second == base
    assert end["eos_reason"] == "stop_token" and end["full_completion"] == ""
    assert end["held"]["text"] == "ye" and end["held"]["token_ids"].tolist() == [[y, e, EOS]]
    assert "text" not in end and "token_ids" not in end


def test_results_at_a_stop_string(generator: ExLlamaV2DynamicGenerator) -> None:
    he, y, es = piece_ids(generator, "he", "y", "es")
    settings = forcing([he, y, es])
    job = ExLlamaV2DynamicJob(encode(generator, "x"), 9, gen_settings=settings, stop_conditions=[EOS, "yes"])
    generator.enqueue(job)
    _, first, second, end = run(generator)
    assert first["text"] == "he" and "text" not in second and "token_ids" not in second
    assert end["eos_reason"] == "stop_string" and end["eos_triggering_string"] == "yes"
    assert end["token_ids"].tolist() == [[y, es]] and "text" not in end
    assert end["full_completion"] == "he" and end["held"] == {"text": "yes"}


def test_results_at_the_last_token(generator: ExLlamaV2DynamicGenerator) -> None:
    y, es = piece_ids(generator, "y", "es")
    job = ExLlamaV2DynamicJob(encode(generator, "x"), 2, gen_settings=forcing([y, es]), stop_conditions=[EOS, "yes"])
    generator.enqueue(job)
    _, first, end = run(generator)
    assert "text" not in first
    assert end["eos_reason"] == "max_new_tokens" and end["text"] == end["full_completion"] == "yes"
    assert end["token_ids"].tolist() == [[y, es]] and "held" not in end


def test_what_is_asked_for_of_each_token(generator: ExLlamaV2DynamicGenerator) -> None:
    wanted: dict[str, Any] = {"return_probs": True, "return_top_tokens": 4, "return_logits": True}
    tokens = piece_ids(generator, "y", "he", "es")
    job = ExLlamaV2DynamicJob(encode(generator, PROMPT), 3, gen_settings=forcing(tokens), **wanted)
    generator.enqueue(job)
    streaming = [result for result in run(generator) if result["stage"] == "streaming"]
    for result in streaming:
        assert result["token_probs"].shape == result["token_ids"].shape == (1, 1)
        assert result["top_k_tokens"].shape == result["top_k_probs"].shape == (1, 1, 4)
        assert result["logits"].shape == (1, 1, 384)
    expected = generator.model.forward(encode(generator, PROMPT), last_id_only=True)
    torch.testing.assert_close(streaming[0]["logits"], expected, atol=1e-4, rtol=1e-4)


def test_values_of_several_tokens_come_together_and_of_one_without_a_copy(generator: ExLlamaV2DynamicGenerator) -> None:
    y, es, he = piece_ids(generator, "y", "es", "he")
    wanted: dict[str, Any] = {
        "return_probs": True,
        "return_top_tokens": 4,
        "return_logits": True,
        "stop_conditions": ["yeX"],
    }
    jobs = [
        ExLlamaV2DynamicJob(encode(generator, PROMPT), 3, gen_settings=forcing([*tokens, he]), **wanted)
        for tokens in ([he, he], [he, he], [y, es])
    ]
    generator.enqueue(jobs)
    results = run(generator)
    first, second = ([each for each in results if each["job"] is job and "logits" in each] for job in jobs[:2])
    for one, other in zip(first, second, strict=True):
        storages = {each["logits"].untyped_storage().data_ptr() for each in (one, other)}
        assert len(storages) == 1, "rows of one pass share the memory of their pass"
    (held,) = [each for each in results if each["job"] is jobs[2] and each.get("text") == "yes"]
    assert held["token_ids"].tolist() == [[y, es]] and held["token_probs"].shape == (1, 2)
    assert held["top_k_tokens"].shape == held["top_k_probs"].shape == (1, 2, 4)
    assert held["logits"].shape == (1, 2, 384)


def test_stop_conditions_wait_for_the_minimum(generator: ExLlamaV2DynamicGenerator) -> None:
    bias = torch.zeros(384)
    y, es = piece_ids(generator, "y", "es")
    bias[EOS], bias[y] = 1e4, 5e3
    settings = ExLlamaV2Sampler.Settings.greedy(token_bias=bias)
    options: dict[str, Any] = {
        "gen_settings": settings,
        "min_new_tokens": 3,
        "stop_conditions": [EOS],
        "completion_only": True,
    }
    assert generator.generate("x", 9, **options) == "yyy"
    settings = forcing([y, es, y, es, y])
    options = {"gen_settings": settings, "min_new_tokens": 3, "stop_conditions": ["yes"], "completion_only": True}
    assert generator.generate("x", 9, **options) == "yes"


def test_a_healed_token_does_not_count(generator: ExLlamaV2DynamicGenerator) -> None:
    bias = torch.zeros(384)
    bias[piece_ids(generator, "hello")[0]] = 1e4
    settings = ExLlamaV2Sampler.Settings.greedy(token_bias=bias)
    prompt = encode(generator, "the\nhe")
    job = ExLlamaV2DynamicJob(prompt, 1, gen_settings=settings, token_healing=True)
    generator.enqueue(job)
    results = run(generator)
    assert last(results, job)["full_completion"] == "llohello"
    assert last(results, job)["new_tokens"] == 1 and last(results, job)["prompt_tokens"] == prompt.shape[1]
    assert streamed(results, job) == piece_ids(generator, "hello") * 2


def test_a_character_comes_whole_with_all_its_tokens(generator: ExLlamaV2DynamicGenerator) -> None:
    tokens: list[int] = encode(generator, "漢")[0].tolist()
    assert len(tokens) == 3
    job = ExLlamaV2DynamicJob(encode(generator, "x"), 4, gen_settings=forcing([*tokens, 77]))
    generator.enqueue(job)
    results = [result for result in run(generator) if result["stage"] == "streaming"]
    assert [result.get("text") for result in results[:3]] == [None, None, "漢"]
    assert results[2]["token_ids"].tolist() == [tokens]


# Banned strings


def test_a_banned_string_is_taken_back(generator: ExLlamaV2DynamicGenerator) -> None:
    y, he = piece_ids(generator, "y", "he")
    bias = torch.zeros(384)
    bias[y], bias[he] = 2e3, 1e3
    settings = ExLlamaV2Sampler.Settings.greedy(token_bias=bias)
    job = ExLlamaV2DynamicJob(encode(generator, "x"), 4, gen_settings=settings, banned_strings=["YYY"])
    generator.enqueue(job)
    results = [result for result in run(generator) if result["stage"] == "streaming"]
    suppressed = [result for result in results if "suppressed_text" in result]
    assert [result["suppressed_text"] for result in suppressed] == ["yyy", "yyy"]
    assert suppressed[0]["suppressed_tokens"].tolist() == [[y] * 3]
    assert "text" not in suppressed[0] and "token_ids" not in suppressed[0]
    # Each time, something else came in the place where the string began.
    assert results[-1]["full_completion"] == "heheyy" and results[-1]["new_tokens"] == 4
    assert streamed(results, job) == [he, he, y, y]


def test_where_nothing_but_banned_strings_is_left_the_job_ends(generator: ExLlamaV2DynamicGenerator) -> None:
    f = ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "yes{20}")
    job = ExLlamaV2DynamicJob(encode(generator, "x"), 30, gen_settings=GREEDY, banned_strings=["ss"], filters=[f])
    generator.enqueue(job)
    end = run(generator)[-1]
    assert end["eos_reason"] == "dead_end" and "ss" in str(end["exception"])
    assert "ss" not in end["full_completion"]


# Scheduling


def test_jobs_wait_for_room(make: Make) -> None:
    generator = make(1024)
    big = [ExLlamaV2DynamicJob(ids(n, 600), 8, gen_settings=GREEDY) for n in range(2)]
    small = [ExLlamaV2DynamicJob(ids(9 + n, 10), 3, gen_settings=GREEDY) for n in range(6)]
    generator.enqueue([*big, *small])
    generator.iterate()
    assert generator.active_jobs == [big[0], small[0]] and generator.num_remaining_jobs() == 8
    results = run(generator)
    ended = [result["job"] for result in results if result["eos"]]
    # The second big job is overtaken four times, and then those behind it wait.
    assert ended.index(big[1]) < ended.index(small[5]) and ended.index(small[3]) < ended.index(big[1])
    for job in [*big, *small]:
        assert (
            streamed(results, job)
            == reference(generator, job.sequences[0].input_ids.torch(), job.max_new_tokens)[
                -len(streamed(results, job)) :
            ]
        )


def test_the_batch_is_bounded(make: Make) -> None:
    generator = make(max_batch_size=2)
    jobs = [ExLlamaV2DynamicJob(ids(n, 5), 3) for n in range(5)]
    generator.enqueue(jobs)
    while generator.num_remaining_jobs():
        generator.iterate()
        assert len(generator.active_jobs) <= 2
    assert all(job.is_finished for job in jobs)


def test_a_job_has_a_sequence_once_it_is_enqueued() -> None:
    job = ExLlamaV2DynamicJob(ids(0, 5), 3)
    with pytest.raises(GenerationError, match="no sequence before a generator has enqueued it"):
        job.sequence
    assert (job.new_tokens, job.skips, job.accepted_draft_tokens) == (0, 0, 0)


def test_jobs_can_be_taken_back(generator: ExLlamaV2DynamicGenerator) -> None:
    jobs = [ExLlamaV2DynamicJob(ids(n, 300), 8, gen_settings=GREEDY) for n in range(3)]
    assert generator.enqueue(jobs) == [0, 1, 2]
    assert generator.enqueue(ExLlamaV2DynamicJob(ids(5, 5), 3)) == 3
    generator.iterate()
    generator.cancel(jobs[1])
    generator.cancel(jobs[1])
    results = run(generator)
    assert {result["job"] for result in results if result["eos"]}.isdisjoint({jobs[1]})
    assert all(page.users == 0 for page in generator.runtime.allocator.pages)
    generator.enqueue(ExLlamaV2DynamicJob(ids(5, 5), 3))
    generator.iterate()
    generator.clear_queue()
    assert generator.num_remaining_jobs() == 0 and generator.iterate() == []


def test_a_call_that_fails_leaves_no_job_behind(
    generator: ExLlamaV2DynamicGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(generator.runtime.runner, "decode", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            generator.generate([PROMPT] * 2, 4)
    assert generator.num_remaining_jobs() == 0
    jobs = [ExLlamaV2DynamicJob(ids(n, 5), 3) for n in range(2)]
    monkeypatch.setattr(jobs[1], "request", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generator.enqueue(jobs)
    assert generator.num_remaining_jobs() == 0
    assert generator.generate("yes", 4, gen_settings=GREEDY)


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1000}, "multiple of 256"),
        ({"max_chunk_size": 100}, "multiple of 256"),
        ({"max_batch_size": 1000}, "max_batch_size"),
        ({"max_seq_len": 5000}, "max_seq_len"),
        ({"use_ngram_draft": True, "num_draft_tokens": 9}, "max_q_size"),
    ],
)
def test_generators_that_cannot_be(make: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        make(**options)


def test_jobs_that_cannot_be(generator: ExLlamaV2DynamicGenerator) -> None:
    with pytest.raises(GenerationError, match="cannot be empty"):
        generator.generate("", 4)
    with pytest.raises(GenerationError, match="cannot be enqueued"):
        generator.enqueue(ExLlamaV2DynamicJob(ids(1, 4000), 500))
    for token in (999, -1):
        with pytest.raises(GenerationError, match=f"holds id {token}, which is outside the vocabulary"):
            generator.enqueue(ExLlamaV2DynamicJob(torch.tensor([[5, token]]), 4))
    with pytest.raises(GenerationError, match="two prompts"):
        ExLlamaV2DynamicJob([ids(1, 4), ids(2, 4)], 4)
    with pytest.raises(ValueError, match="stop condition"):
        ExLlamaV2DynamicJob(ids(1, 4), 4, stop_conditions=[None])  # type: ignore[list-item]
    with pytest.raises(GenerationError, match="for each of the 2 prompts"):
        generator.generate(["a", "b"], 4, filters=[None])
    job = ExLlamaV2DynamicJob(ids(1, 4), 4)
    generator.enqueue(job)
    with pytest.raises(GenerationError, match="only once"):
        generator.enqueue(job)


def test_an_event_ends_a_call(generator: ExLlamaV2DynamicGenerator) -> None:
    event = threading.Event()
    event.set()
    assert generator.generate(PROMPT, 50, abort_event=event) is None
    assert generator.num_remaining_jobs() == 0


def test_results_instead_of_texts(generator: ExLlamaV2DynamicGenerator) -> None:
    single = generator.generate(PROMPT, 3, return_last_results=True)
    several = generator.generate([PROMPT], 3, return_last_results=True)
    assert single["eos"] and len(several) == 1 and several[0]["new_tokens"] == 3


@pytest.mark.parametrize("modes", list(product([False, True], repeat=3)))
def test_callers_may_be_in_inference_mode_or_not(
    make: Make, long_model: ExLlamaV2, generator: ExLlamaV2DynamicGenerator, modes: tuple[bool, bool, bool]
) -> None:
    expected = generator.generate(PROMPT, 8, gen_settings=GREEDY, completion_only=True)
    created, enqueued, stepped = map(torch.inference_mode, modes)
    with created:
        drafted = make(draft_model=long_model, draft_cache=ExLlamaV2Cache(long_model, max_seq_len=4096))
    with enqueued:
        job = ExLlamaV2DynamicJob(encode(drafted, PROMPT), 8, gen_settings=GREEDY)
        drafted.enqueue(job)
    with stepped:
        run(drafted)
    assert job.full_completion == expected

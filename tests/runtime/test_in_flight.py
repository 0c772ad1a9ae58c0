"""Steps that the host hears of one behind: the same texts, whatever runs beside them, on the CPU in place of a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.errors import DeadEnd, FilterError
from constrain.filters import ExLlamaV2EngineFilter, ExLlamaV2Filter, ExLlamaV2JSONSchemaFilter, ExLlamaV2RegexFilter
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler, device_draws
from constrain.generator.decoding import Decoding
from constrain.generator.device_draws import StepSampler
from constrain.generator.pipeline import Pipeline
from constrain.generator.runner import PagedRunner
from constrain.kernels import cuda
from constrain.model import decode
from constrain.model.decode import Decoder

EOS = 1
GREEDY = ExLlamaV2Sampler.Settings.greedy()
RANDOM = ExLlamaV2Sampler.Settings(temperature=2.0, top_k=0, top_p=0.0)
Make = Callable[..., ExLlamaV2DynamicGenerator]


def tiny(folder: Path, tokenizer_dir: Path) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """A model that the CUDA kernels take too."""
    return random_model(Shape(64, 128, 2, 4, 2, 32, 384), folder, tokenizer_dir)


@pytest.fixture(scope="session")
def parts(
    tiny_dir: Path, long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    if torch.cuda.is_available() and cuda.module is not None:
        return tiny(tmp_path_factory.mktemp("tiny"), tiny_dir)
    return long_model, tiny_tokenizer


@pytest.fixture
def make(parts: tuple[ExLlamaV2, ExLlamaV2Tokenizer], monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr(decode, "supports", lambda *_: True)
    model, tokenizer = parts

    def make(size: int = 4096, piped: bool = True, **options: Any) -> ExLlamaV2DynamicGenerator:
        generator = ExLlamaV2DynamicGenerator(
            model, ExLlamaV2Cache(model, max_seq_len=size), tokenizer, **{"jump_forward": False, **options}
        )
        if not piped:
            monkeypatch.setattr(generator._runner, "_divided", lambda jobs: ([], jobs))
        return generator

    return make


def regex(generator: ExLlamaV2DynamicGenerator, pattern: str) -> ExLlamaV2RegexFilter:
    return ExLlamaV2RegexFilter(generator.model, generator.tokenizer, pattern)


def jobs(generator: ExLlamaV2DynamicGenerator, settings: ExLlamaV2Sampler.Settings) -> list[ExLlamaV2DynamicJob]:
    """Jobs of many kinds, some of which the pipeline leaves to others now and then."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}}}
    json_filter = ExLlamaV2JSONSchemaFilter(generator.model, generator.tokenizer, schema)
    penalties = settings.clone()
    penalties.token_repetition_penalty, penalties.token_frequency_penalty = 1.3, 0.2
    kinds: list[dict[str, Any]] = [
        {},
        {"stop_conditions": [*range(2, 120)]},
        {"stop_conditions": ["e", "t"], "max_new_tokens": 60},
        {"min_new_tokens": 5, "stop_conditions": [*range(2, 300)]},
        {"filters": [regex(generator, "(the|quick|fox){3}[0-9]{4}")]},
        {"filters": [regex(generator, "[a-z ]{2,9}"), regex(generator, "[a-f ]{3,}")]},
        {"filters": [json_filter]},
        {"filters": [json_filter.clone()], "filter_prefer_eos": True},
        {"gen_settings": penalties},
        {"token_healing": True},
        {"banned_strings": ["e"]},
        {"max_new_tokens": 1},
        {"filters": [regex(generator, "[a-z]{3}")], "trigger": "e"},
    ]
    return [
        ExLlamaV2DynamicJob(
            torch.randint(3, 350, (1, 5 + 40 * n), generator=torch.Generator().manual_seed(n)),
            **{"max_new_tokens": 24, "gen_settings": settings, "seed": n, "stop_conditions": [EOS], **kind},
        )
        for n, kind in enumerate(kinds)
    ]


def run(generator: ExLlamaV2DynamicGenerator, *given: ExLlamaV2DynamicJob) -> list[dict[str, Any]]:
    """The last result of each job."""
    generator.enqueue(list(given))
    results = []
    while generator.num_remaining_jobs():
        results += [result for result in generator.iterate() if result["eos"]]
    return sorted(results, key=lambda result: int(result["serial"]))


def before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, hear: Callable[[Any], None]) -> None:
    """Let ``hear`` see what a method is given."""
    method = getattr(owner, name)

    def watched(self: Any, given: Any) -> Any:
        hear(given)
        return method(self, given)

    monkeypatch.setattr(owner, name, watched)


def told(results: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(result["full_completion"], result["eos_reason"], result["new_tokens"]) for result in results]


def test_texts_are_the_same(make: Make) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU rounds products of other batches otherwise")
    for options in ({}, {"max_batch_size": 3}, {"jump_forward": True}):
        ordinary, piped = make(8192, piped=False, **options), make(8192, **options)
        expected = told(run(ordinary, *jobs(ordinary, GREEDY)))
        assert told(run(piped, *jobs(piped, GREEDY))) == expected
        # Pages are as full as without a pipeline: what was written is found again.
        again = run(piped, *jobs(piped, GREEDY))
        assert [result["cached_tokens"] for result in again] == [
            result["cached_tokens"] for result in run(ordinary, *jobs(ordinary, GREEDY))
        ]


def test_a_seed_gives_the_same_draws_whatever_runs_beside(make: Make) -> None:
    together = make()
    expected = told(run(together, *jobs(together, RANDOM)))
    # A GPU rounds products of other batches otherwise.
    for n, text in enumerate([] if torch.cuda.is_available() else expected):
        alone = make()
        assert told(run(alone, jobs(alone, RANDOM)[n])) == [text]
    again = make()
    assert told(run(again, *jobs(again, RANDOM))) == expected
    prompt = torch.tensor([[5, 6]])
    seeds = [ExLlamaV2DynamicJob(prompt, 9, gen_settings=RANDOM, seed=seed) for seed in range(4)]
    assert len({text for text, _, _ in told(run(again, *seeds))}) == 4


def test_penalties_see_the_whole_text(make: Make) -> None:
    settings = ExLlamaV2Sampler.Settings.greedy(token_repetition_penalty=5.0, token_presence_penalty=2.0)
    prompt = torch.randint(3, 350, (1, 300), generator=torch.Generator().manual_seed(0))
    texts = []
    for piped in (False, True):
        generator = make(piped=piped)
        texts.append(told(run(generator, ExLlamaV2DynamicJob(prompt, 40, gen_settings=settings))))
    assert texts[0] == texts[1]


def test_texts_of_any_length_become_known(make: Make) -> None:
    generator = make()
    decoder = generator.cache.decoder(256)
    texts = [([3], torch.arange(1, 8)), ([7, 2, 5], torch.arange(100, 700)), ([1, 4], torch.arange(1000, 1256))]
    decoder.write_texts(texts)
    for pages, tokens in texts:
        written = decoder._text.cpu()[pages].flatten()
        assert torch.equal(written[: len(tokens)].long(), tokens) and not written[len(tokens) :].any()
    assert int((decoder._text != 0).sum()) == 7 + 600 + 256


def test_forced_text_takes_one_step(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said to be forced is the text that the model writes by itself, with a wrong token now and then."""
    if torch.cuda.is_available():
        pytest.skip("a GPU rounds products of several tokens otherwise")
    widths: list[int] = []
    before(monkeypatch, Decoder, "run", lambda given: widths.append(1 + len(given[0].ahead)))
    prompt = torch.tensor([[5, 6, 7]])
    for settings in (GREEDY, RANDOM):
        plain = make(max_batch_size=1)
        options: dict[str, Any] = {"gen_settings": settings, "seed": 3, "stop_conditions": [EOS]}
        job = ExLlamaV2DynamicJob(prompt, 40, filters=[regex(plain, "[a-z ]{40,}")], **options)
        expected = told(run(plain, job))
        text: list[int] = job.sequences[0].sequence_ids.torch()[0].tolist()
        for wrong, most in ((100, 5), (20, 8), (7, 12), (3, 26)):
            heard = [token if at % wrong else 9 for at, token in enumerate(text, 1)]
            monkeypatch.setattr(Decoding, "forced", lambda self, n, to=heard: to[len(self.rows[0]) :][: min(n, 15)])
            ahead = make(jump_forward=True)
            widths.clear()
            job = ExLlamaV2DynamicJob(prompt, 40, filters=[regex(ahead, "[a-z ]{40,}")], **options)
            assert told(run(ahead, job)) == expected
            assert job.sequences[0].sequence_ids.torch()[0].tolist() == text
            assert max(widths) > 1 and len(widths) <= most


def test_few_allowed_tokens_need_a_part_of_the_head(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[list[Any], int, int]] = []
    for whole in (False, True):
        parts: list[list[int]] = []
        only: list[list[int]] = []
        before(monkeypatch, device_draws._Inputs, "allow", parts.append)
        before(monkeypatch, StepSampler, "_take", only.append)
        if whole:
            monkeypatch.setattr(device_draws, "_allowed", lambda *_: None)
        generator, texts = make(), []
        for settings in (GREEDY, RANDOM):
            filters = [regex(generator, pattern) for pattern in ("(a|b|c)[a-z ]{2}(quick)", "[0-9]{4}")]
            options: dict[str, Any] = {"gen_settings": settings, "seed": 3}
            given = [ExLlamaV2DynamicJob(torch.tensor([[5]]), 12, filters=[each], **options) for each in filters]
            texts += told(run(generator, *given))
        found.append((texts, len(parts), len(only)))
    (texts, parts_used, only_used), whole_head = found[0], found[1]
    assert whole_head == (texts, 0, 0) and parts_used and only_used


def test_the_host_is_one_step_behind(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make()
    rows: list[int] = []
    before(monkeypatch, Decoder, "run", lambda given: rows.append(len(given)))
    job = ExLlamaV2DynamicJob(torch.tensor([[5, 6, 7]]), 4, gen_settings=GREEDY)
    generator.enqueue(job)
    known = []
    while generator.num_remaining_jobs():
        generator.iterate()
        known.append((len(rows), job.new_tokens))
    # No step is queued behind the last token, since it is known beforehand which that is.
    assert known == [(1, 0), (2, 1), (3, 2), (4, 3), (4, 4)]
    # What stops a text is not, so that a step too many is queued.
    rows.clear()
    prompt = torch.tensor([[5, 6, 7]])
    stopped = run(generator, ExLlamaV2DynamicJob(prompt, 4, gen_settings=GREEDY, stop_conditions=[*range(384)]))
    assert stopped[0]["eos_reason"] == "stop_token" and rows == [1, 1]


class Watching(ExLlamaV2RegexFilter):
    """Notes when it is asked."""

    events: list[str]

    def fill_bitmask(self, bits: Any, row: int = 0, budget: int | None = None) -> bool:
        self.events.append("mask")
        return super().fill_bitmask(bits, row, budget)


def test_masks_are_made_while_the_model_runs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make()
    events: list[str] = []
    monkeypatch.setattr(Watching, "events", events, raising=False)
    before(monkeypatch, Decoder, "run", lambda _: events.append("forward"))
    before(monkeypatch, Pipeline, "_draw", lambda _: events.append("draw"))
    watching = Watching(generator.model, generator.tokenizer, "[0-9]{3}")
    run(generator, ExLlamaV2DynamicJob(torch.tensor([[5]]), 3, gen_settings=GREEDY, filters=[watching]))
    assert events == ["forward", "mask", "draw"] * 3 + ["draw"]


def test_what_the_kernels_do_not_know_is_drawn_on_the_host(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    before(monkeypatch, Pipeline, "step", lambda given: taken.append(len(given)))
    fields: list[dict[str, Any]] = [
        {"typical": 0.5},
        {"tfs": 0.5},
        {"top_a": 0.1},
        {"skew": 0.5},
        {"smoothing_factor": 0.2},
        {"min_temp": 0.5, "max_temp": 1.5},
        {"temperature_last": True},
        {"mirostat": True},
        {"dry_multiplier": 0.8},
        {"xtc_probability": 0.5},
        {"token_bias": torch.zeros(384)},
        {"post_sampling_hooks": [lambda result: None]},
    ]
    generator = make()
    prompt = torch.tensor([[5, 6]])
    run(generator, *(ExLlamaV2DynamicJob(prompt, 3, gen_settings=ExLlamaV2Sampler.Settings(**f)) for f in fields))
    wants: list[dict[str, Any]] = [
        {"return_top_tokens": 2},
        {"return_logits": True},
        {"banned_strings": ["x"]},
        {"min_new_tokens": 3},
        {"filters": [InPlace(generator.model, generator.tokenizer)]},
    ]
    run(generator, *(ExLlamaV2DynamicJob(prompt, 3, **want) for want in wants))
    assert not any(taken)
    run(generator, ExLlamaV2DynamicJob(prompt, 3))
    assert any(taken)


class Plain(ExLlamaV2Filter):
    def begin(self, prefix_str: str | None) -> None: ...

    def feed(self, token: torch.Tensor) -> None: ...


class InPlace(Plain):
    """Changes logits."""

    def can_mask_logits(self) -> bool:
        return True

    def prepare_logit_mask(self) -> bool:
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class Failing(Plain):
    """Fails, or allows nothing, at its third token."""

    def __init__(self, *parts: Any, fails: bool) -> None:
        super().__init__(*parts)
        self.fails, self.left = fails, 3

    def next(self) -> Any:
        self.left -= 1
        if self.left == 0 and self.fails:
            raise ValueError("broken")
        return ({5, 6} if self.left else set()), set()


def test_an_error_ends_its_own_text_alone(make: Make) -> None:
    generator = make()
    parts = generator.model, generator.tokenizer
    prompt = torch.tensor([[5, 6]])
    filters: list[list[Any] | None] = [[Failing(*parts, fails=True)], [Failing(*parts, fails=False)], None]
    results = run(generator, *(ExLlamaV2DynamicJob(prompt, 6, gen_settings=GREEDY, filters=each) for each in filters))
    assert [result["eos_reason"] for result in results] == ["filter_error", "dead_end", "max_new_tokens"]
    assert isinstance(results[0]["exception"], FilterError) and isinstance(results[1]["exception"], DeadEnd)
    assert [result["new_tokens"] for result in results] == [2, 2, 6]


class Slow(Plain):
    """Takes its time for its fourth token."""

    def __init__(self, *parts: Any, gate: threading.Event) -> None:
        super().__init__(*parts)
        self.gate, self.heard = gate, 0

    def use_background_worker(self) -> bool:
        return True

    def feed(self, token: torch.Tensor) -> None:
        self.heard += 1

    def next(self) -> Any:
        assert self.heard != 3 or self.gate.wait(10)
        return {token for token in range(5, 300) if token % 5 != self.heard % 5}, set()


def test_a_slow_filter_holds_up_its_own_text_alone(make: Make) -> None:
    settings = RANDOM.clone()
    settings.token_repetition_penalty = 1.5

    def given(generator: ExLlamaV2DynamicGenerator, gate: threading.Event) -> list[ExLlamaV2DynamicJob]:
        slow = Slow(generator.model, generator.tokenizer, gate=gate)
        filters: list[list[Any] | None] = [[slow], None, *[[regex(generator, "[a-z ]{200,}")] for _ in range(7)]]
        return [
            ExLlamaV2DynamicJob(
                torch.tensor([[5, 6 + n]]),
                16,
                gen_settings=settings,
                seed=n,
                filters=each,
                complete_within_budget=False,
            )
            for n, each in enumerate(filters)
        ]

    quick, gate = threading.Event(), threading.Event()
    quick.set()
    ordinary, generator = make(), make()
    expected = told(run(ordinary, *given(ordinary, quick)))
    jobs = given(generator, gate)
    generator.enqueue(jobs)
    results = []
    while min(job.new_tokens for job in jobs[1:]) < 12:
        results += generator.iterate()
    assert jobs[0].new_tokens == 3
    gate.set()
    while generator.num_remaining_jobs():
        results += generator.iterate()
    ends = sorted((result for result in results if result["eos"]), key=lambda result: int(result["serial"]))
    if not torch.cuda.is_available():  # which rounds products of other batches otherwise
        assert told(ends) == expected
    assert [result["new_tokens"] for result in ends] == [16] * 9


def test_a_filter_that_is_late_for_good_runs_out_of_time(make: Make) -> None:
    generator, gate = make(filter_time_limit=1.0), threading.Event()
    slow = Slow(generator.model, generator.tokenizer, gate=gate)
    filters: list[list[Any] | None] = [[slow], *[None] * 9]
    prompt = torch.tensor([[5, 6]])
    jobs = [ExLlamaV2DynamicJob(prompt, 250, gen_settings=GREEDY, filters=each) for each in filters]
    generator.enqueue(jobs)
    ends = list[dict[str, Any]]()
    while not ends:
        ends = [result for result in generator.iterate() if result["eos"]]
    gate.set()
    assert ends[0]["job"] is jobs[0] and ends[0]["eos_reason"] == "filter_error"
    assert "within 1.0 seconds" in str(ends[0]["exception"])
    assert min(job.new_tokens for job in jobs[1:]) > 4  # they have gone on
    generator.clear_queue()


def test_most_texts_are_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    generator, gate = make(), threading.Event()
    filters = [Slow(generator.model, generator.tokenizer, gate=gate) for _ in range(9)]
    jobs = [ExLlamaV2DynamicJob(torch.tensor([[5]]), 8, gen_settings=GREEDY, filters=[each]) for each in filters]
    steps: list[int] = []
    before(monkeypatch, Decoder, "run", lambda given: steps.append(len(given)))
    threading.Timer(0.3, gate.set).start()
    run(generator, *jobs)
    assert [job.new_tokens for job in jobs] == [8] * 9
    assert steps[:4] == [9] * 4 and len(steps) <= 12  # without waiting there would be steps for 0.3 seconds


class Beyond(Plain):
    """Allows a logit that the tokenizer has no token for."""

    def next(self) -> Any:
        return {300}, set()


def test_a_filter_that_allows_no_token_of_the_tokenizer(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make()
    monkeypatch.setattr(generator._runner, "_sizes", (300, 384))
    filters = [Beyond(generator.model, generator.tokenizer)]
    results = run(generator, ExLlamaV2DynamicJob(torch.tensor([[5, 6]]), 6, gen_settings=GREEDY, filters=filters))
    assert results[0]["eos_reason"] == "dead_end" and results[0]["new_tokens"] == 0


def test_filters_of_many_texts_take_their_tokens_together(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told_one_by_one: list[int] = []
    before(monkeypatch, ExLlamaV2EngineFilter, "feed", lambda token: told_one_by_one.append(int(token)))
    texts = []
    for background in (True, False):
        generator = make(filter_background_eval=background)
        given = [
            ExLlamaV2DynamicJob(
                torch.tensor([[5, n]]),
                12,
                gen_settings=GREEDY,
                stop_conditions=[EOS],
                filters=[regex(generator, pattern)],
            )
            for n, pattern in enumerate(("[a-z ]{3,}", "(the|quick|fox){3}[0-9]{4}", "[0-9]{2}"), 5)
        ]
        texts.append(told(run(generator, *given)))
        # All but the last tokens of texts, behind which nothing has to be known.
        assert len(told_one_by_one) == (3 if background else sum(job.new_tokens for job in given))
        told_one_by_one.clear()
    assert texts[0] == texts[1]


def test_nothing_is_sent_while_texts_go_on(make: Make) -> None:
    generator = make(max_batch_size=3)
    jobs = [ExLlamaV2DynamicJob(torch.tensor([[5, n]]), 20, gen_settings=RANDOM, seed=n) for n in range(3)]
    generator.enqueue(list(jobs))
    uploads, sent = generator.cache.decoder(generator.page_size).uploads, list[int]()
    while generator.num_remaining_jobs():
        generator.iterate()
        sent.append(uploads.bytes)
    assert sent[3] == sent[15] > 0


def test_jobs_that_are_taken_back(make: Make) -> None:
    generator = make()
    prompt = torch.tensor([[5, 6]])
    stays, goes = (ExLlamaV2DynamicJob(prompt, 8, gen_settings=GREEDY) for _ in range(2))
    generator.enqueue([stays, goes])
    for _ in range(3):
        generator.iterate()
    generator.cancel(goes)
    before = goes.new_tokens
    later = ExLlamaV2DynamicJob(prompt, 8, gen_settings=GREEDY)
    results = run(generator, later)
    assert goes.new_tokens == before < 8
    assert [result["job"] for result in results] == [stays, later]
    assert results[0]["full_completion"] == results[1]["full_completion"]


def test_a_runner_with_a_drafter_has_no_pipeline(make: Make) -> None:
    generator = make(use_ngram_draft=True)
    assert isinstance(generator._runner, PagedRunner)
    run(generator, ExLlamaV2DynamicJob(torch.tensor([[5, 6]]), 4, gen_settings=GREEDY))
    assert generator._runner._pipeline is None


@pytest.mark.gpu
def test_texts_on_a_gpu(make: Make) -> None:
    """One at a time, so that the products are the same with a pipeline and without."""
    ordinary, piped = make(piped=False), make()
    for n in range(len(jobs(piped, GREEDY))):
        assert told(run(piped, jobs(piped, GREEDY)[n])) == told(run(ordinary, jobs(ordinary, GREEDY)[n]))


@pytest.mark.gpu
def test_batches_on_a_gpu(make: Make) -> None:
    """A job beside others: products of more rows are rounded otherwise, which decides between equally likely tokens."""
    together, alone = make(8192), make(8192)
    batch, same = jobs(together, GREEDY), 0
    run(together, *batch)
    for n, job in enumerate(batch):
        single = jobs(alone, GREEDY)[n]
        run(alone, single)
        texts = [each.sequences[0].tokens() for each in (job, single)]
        at = next((at for at, pair in enumerate(zip(*texts, strict=False)) if pair[0] != pair[1]), None)
        if at is None:
            assert texts[0] == texts[1]
            same += 1
        elif job.gen_settings is GREEDY:
            logits = alone.model.forward(torch.tensor([texts[0][:at]]))[0, -1].float()
            first, second = (float(logits[text[at]]) for text in texts)
            assert abs(first - second) < 0.02 * float(logits[:350].abs().max())
    assert same >= len(batch) // 2

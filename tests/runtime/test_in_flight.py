"""In-flight steps: forward passes are queued ahead of the host as on a GPU, but here on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from request_kinds import EOS, KINDS, WIDTH, job, request, settings

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.errors import DeadEnd, FilterError
from constrain.filters import ExLlamaV2EngineFilter, ExLlamaV2Filter, ExLlamaV2RegexFilter, combine
from constrain.generator import ExLlamaV2DynamicGenerator
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sampler import batch_sampler
from constrain.runtime.sampler.batch_sampler import BatchSampler
from constrain.runtime.sampler.inputs import SamplingInputs

GREEDY = SamplingParams()
RANDOM = SamplingParams(temperature=2.0, top_k=0)
PROMPT = [5, 6, 7]
Make = Callable[..., Runtime]


@pytest.fixture
def ahead(make: Make) -> Make:
    """Return a factory of runtimes whose passes are queued ahead of the host."""

    def ahead(size: int = 4096, **options: Any) -> Runtime:
        runtime = make(size, **{"jump_forward": False, **options})
        runtime.runner.is_asynchronous = True
        return runtime

    return ahead


def asked(
    runtime: Runtime, count: int, ids: Sequence[int] = PROMPT, filters: Sequence[Any] = (), **options: Any
) -> Request:
    """Return a request, by default with greedy sampling."""
    time_limit = options.pop("time_limit", None)
    constraint = combine([*filters], runtime.tokenizer, WIDTH, time_limit) if filters else None
    return Request(
        [torch.tensor([ids])], options.pop("sampling", GREEDY), constraint=constraint, max_new_tokens=count, **options
    )


def regex(runtime: Runtime, pattern: str) -> ExLlamaV2RegexFilter:
    return ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, pattern)


def run(runtime: Runtime, *requests: Request) -> list[tuple[str, str, int]]:
    """Run requests in one batch; return the text, finish reason and number of tokens of each."""
    handles = [runtime.submit(each) for each in requests]
    runtime.run_until(lambda: all(handle.done for handle in handles))
    return [(h.output.text, h.output.finish.reason, h.sequence.new_tokens) for h in handles if h.output.finish]


def before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, note: Callable[[Any], None]) -> None:
    """Patch a method to call ``note`` with its first argument before it runs."""
    method = getattr(owner, name)

    def watched(self: Any, given: Any, *rest: Any) -> Any:
        note(given)
        return method(self, given, *rest)

    monkeypatch.setattr(owner, name, watched)


def test_pages_hold_as_much_as_without_steps_in_flight(make: Make, ahead: Make) -> None:
    """In-flight steps change neither the content of the prefix cache nor the number of cache hits."""
    counts = []
    for runtime in (make(16384), ahead(16384)):
        kinds = [each for each in KINDS if each != "hook"]
        for _ in range(2):
            handles = [runtime.submit(request(each, runtime.model, runtime.tokenizer, greedy=True)) for each in kinds]
            runtime.run_until(lambda handles=handles: all(handle.done for handle in handles))
        counts.append([sum(row.cached_tokens for row in handle.sequence.rows) for handle in handles])
    assert counts[0] == counts[1] and sum(counts[0]) > 0


def test_the_host_is_one_step_behind(ahead: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ahead()
    passes: list[int] = []
    before(monkeypatch, ModelRunner, "decode", lambda rows: passes.append(len(rows)))
    handle = runtime.submit(asked(runtime, 4))
    known = []
    while not handle.done:
        runtime.step()
        known.append((len(passes), handle.sequence.new_tokens))
    # The token limit is known in advance, so no pass is queued after the last token.
    assert known == [(1, 0), (2, 1), (3, 2), (4, 3), (4, 4)]
    # A stop token is not known in advance, so one pass is wasted.
    passes.clear()
    ((_, reason, _),) = run(runtime, asked(runtime, 4, stop_tokens=frozenset(range(384))))
    assert reason == "stop_token" and passes == [1, 1]


def test_a_synchronous_runtime_knows_every_token_at_once(make: Make) -> None:
    runtime = make()
    handle = runtime.submit(asked(runtime, 4))
    known = []
    while not handle.done:
        runtime.step()
        known.append(handle.sequence.new_tokens)
    assert known == [1, 2, 3, 4]


class Watching(ExLlamaV2RegexFilter):
    """Records when its mask is requested."""

    events: list[str]

    def fill_bitmask(self, bits: Any, row: int = 0, budget: int | None = None) -> bool:
        self.events.append("mask")
        return super().fill_bitmask(bits, row, budget)


def test_masks_are_asked_for_after_a_pass_is_queued(ahead: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ahead(use_background=False)
    events: list[str] = []
    monkeypatch.setattr(Watching, "events", events, raising=False)
    before(monkeypatch, ModelRunner, "decode", lambda _: events.append("pass"))
    before(monkeypatch, BatchSampler, "sample", lambda _: events.append("sample"))
    watching = Watching(runtime.model, runtime.tokenizer, "[0-9]{3}")
    run(runtime, asked(runtime, 3, [5], filters=[watching]))
    assert events == ["pass", "mask", "sample"] * 3


def test_penalties_see_the_whole_sequence(make: Make, ahead: Make) -> None:
    """Penalties cover prompts of several pages and in-flight tokens."""
    ids = torch.randint(3, 350, (300,), generator=torch.Generator().manual_seed(0)).tolist()
    penalties = GREEDY._replace(repetition_penalty=5.0, presence_penalty=2.0)
    outputs = [run(runtime, asked(runtime, 40, ids, sampling=penalties)) for runtime in (make(), ahead())]
    assert outputs[0] == outputs[1] != run(make(), asked(make(), 40, ids))


def test_few_allowed_tokens_need_a_part_of_the_head(ahead: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the logits of allowed tokens are computed if these are few, and no logits if only one is left."""
    found, is_decided = [], BatchSampler._is_decided
    for whole in (False, True):
        parts: list[Sequence[int]] = []
        decided: list[bool] = []

        def watched(self: BatchSampler, *given: Any, note: list[bool] = decided) -> bool:
            note.append(is_decided(self, *given))
            return note[-1]

        before(monkeypatch, SamplingInputs, "send_allowed", parts.append)
        monkeypatch.setattr(BatchSampler, "_is_decided", watched)
        if whole:
            monkeypatch.setattr(batch_sampler, "_few_allowed", lambda *_: None)
        runtime, outputs = ahead(), []
        for sampling in (GREEDY, RANDOM):
            patterns = ("(a|b|c)[a-z ]{2}(quick)", "[0-9]{4}")
            outputs += run(
                runtime,
                *(
                    asked(runtime, 12, [5], filters=[regex(runtime, pattern)], sampling=sampling, seed=3)
                    for pattern in patterns
                ),
            )
        found.append((outputs, len(parts), sum(decided)))
    (outputs, parts_used, decided_used), whole_head = found
    assert whole_head == (outputs, 0, 0) and parts_used and decided_used


@pytest.mark.parametrize("wrong_every", [100, 20, 7, 3])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM])
def test_forced_text_takes_one_pass(
    make: Make, ahead: Make, monkeypatch: pytest.MonkeyPatch, sampling: SamplingParams, wrong_every: int
) -> None:
    """The tokens claimed to be forced are the model's own output, with every ``wrong_every``-th token wrong."""
    options: dict[str, Any] = {"sampling": sampling, "seed": 3, "stop_tokens": frozenset([EOS])}
    plain = make(max_batch_size=1, jump_forward=False)
    handle = plain.submit(asked(plain, 40, filters=[regex(plain, "[a-z ]{40,}")], **options))
    handle.result()
    tokens = handle.sequence.rows[0].tokens()
    claimed = [token if at % wrong_every else 9 for at, token in enumerate(tokens, 1)]
    runtime = ahead(jump_forward=True)
    widths: list[int] = []
    before(monkeypatch, ModelRunner, "decode", lambda rows: widths.append(len(rows[0].ids)))
    jumping = runtime.submit(asked(runtime, 40, filters=[regex(runtime, "[a-z ]{40,}")], **options))
    sequence = jumping.sequence
    monkeypatch.setattr(sequence, "forced_tokens", lambda limit: claimed[len(sequence) :][: min(limit, 15)])
    assert jumping.result().text == handle.output.text and sequence.rows[0].tokens() == tokens
    assert max(widths) > 1
    assert len(widths) <= {100: 5, 20: 8, 7: 12, 3: 26}[wrong_every]


class Plain(ExLlamaV2Filter):
    def begin(self, prefix_str: str | None) -> None: ...

    def feed(self, token: torch.Tensor) -> None: ...


class Failing(Plain):
    """Raises an error, or allows no token, at its third token."""

    def __init__(self, runtime: Runtime, fails: bool) -> None:
        super().__init__(runtime.model, runtime.tokenizer)
        self.fails, self.left = fails, 3

    def next(self) -> Any:
        self.left -= 1
        if self.left == 0 and self.fails:
            raise ValueError("broken")
        return ({5, 6} if self.left else set()), set()


def test_an_error_ends_its_own_sequence_alone(ahead: Make) -> None:
    runtime = ahead()
    filters = [[Failing(runtime, fails=True)], [Failing(runtime, fails=False)], []]
    handles = [runtime.submit(asked(runtime, 6, filters=each)) for each in filters]
    runtime.run_until(lambda: all(handle.done for handle in handles))
    with pytest.raises(FilterError, match="broken"):
        handles[0].result()
    with pytest.raises(DeadEnd):
        handles[1].result()
    reasons = [handle.output.finish.reason for handle in handles if handle.output.finish]
    assert reasons == ["filter_error", "dead_end", "max_new_tokens"]
    assert [handle.sequence.new_tokens for handle in handles] == [2, 2, 6]


class Slow(Plain):
    """Waits for ``gate`` at its fourth token."""

    def __init__(self, runtime: Runtime, gate: threading.Event) -> None:
        super().__init__(runtime.model, runtime.tokenizer)
        self.gate, self.heard = gate, 0

    def use_background_worker(self) -> bool:
        return True

    def feed(self, token: torch.Tensor) -> None:
        self.heard += 1

    def next(self) -> Any:
        assert self.heard != 3 or self.gate.wait(10)
        return {token for token in range(5, 300) if token % 5 != self.heard % 5}, set()


def test_a_slow_filter_holds_up_its_own_sequence_alone(ahead: Make) -> None:
    sampling = RANDOM._replace(repetition_penalty=1.5)

    def requests(runtime: Runtime, gate: threading.Event) -> list[Request]:
        filters: list[list[Any]] = [[Slow(runtime, gate)], [], *([regex(runtime, "[a-z ]{200,}")] for _ in range(7))]
        return [
            asked(runtime, 16, [5, 6 + n], filters=each, sampling=sampling, seed=n) for n, each in enumerate(filters)
        ]

    open_gate, gate = threading.Event(), threading.Event()
    open_gate.set()
    ordinary, runtime = ahead(), ahead()
    expected = run(ordinary, *requests(ordinary, open_gate))
    handles = [runtime.submit(each) for each in requests(runtime, gate)]
    while min(handle.sequence.new_tokens for handle in handles[1:]) < 12:
        runtime.step()
    assert handles[0].sequence.new_tokens == 3
    gate.set()
    runtime.run_until(lambda: all(handle.done for handle in handles))
    ends = [(h.output.text, h.output.finish.reason, h.sequence.new_tokens) for h in handles if h.output.finish]
    assert ends == expected and {count for _, _, count in ends} == {16}


def test_a_filter_that_never_answers_runs_out_of_time(ahead: Make) -> None:
    runtime, gate = ahead(), threading.Event()
    requests = [asked(runtime, 250, filters=[Slow(runtime, gate)], time_limit=0.5)]
    requests += [asked(runtime, 250) for _ in range(9)]
    handles = [runtime.submit(each) for each in requests]
    with pytest.raises(FilterError, match=r"within 0\.5 seconds"):
        handles[0].result()
    gate.set()
    # The other sequences have continued; on a fast machine they may have ended.
    assert min(handle.sequence.new_tokens for handle in handles[1:]) > 4


def test_most_sequences_are_waited_for(ahead: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, gate = ahead(), threading.Event()
    steps: list[int] = []
    before(monkeypatch, ModelRunner, "decode", lambda rows: steps.append(len(rows)))
    threading.Timer(0.3, gate.set).start()
    outputs = run(runtime, *(asked(runtime, 8, [5], filters=[Slow(runtime, gate)]) for _ in range(9)))
    assert [count for _, _, count in outputs] == [8] * 9
    assert steps[:4] == [9] * 4 and len(steps) <= 12  # without waiting, many more steps would run in 0.3 s


class Beyond(Plain):
    """Allows only a token id beyond the tokenizer's vocabulary."""

    def next(self) -> Any:
        return {382}, set()


def test_a_filter_that_allows_no_token_of_the_tokenizer(ahead: Make) -> None:
    runtime = ahead()
    assert runtime.tokenizer.get_vocab_size() <= 382 < runtime.model.config.padded_vocab_size
    filters = [Beyond(runtime.model, runtime.tokenizer)]
    handle = runtime.submit(asked(runtime, 6, filters=filters))
    with pytest.raises(FilterError, match=r"Beyond: .* token id 382, outside the"):
        handle.result()
    assert handle.output.finish is not None and handle.output.finish.reason == "filter_error"
    assert handle.sequence.new_tokens == 0


def test_constraints_of_a_batch_accept_their_tokens_together(ahead: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[int] = []
    before(monkeypatch, ExLlamaV2EngineFilter, "feed", lambda token: one_by_one.append(int(token)))
    outputs = []
    for background in (True, False):
        runtime = ahead(use_background=background)
        patterns = ("[a-z ]{3,}", "(the|quick|fox){3}[0-9]{4}", "[0-9]{2}")
        outputs.append(
            run(
                runtime,
                *(
                    asked(runtime, 12, [5, n], filters=[regex(runtime, pattern)], stop_tokens=frozenset([EOS]))
                    for n, pattern in enumerate(patterns, 5)
                ),
            )
        )
        # In the background, only the last token of each sequence is accepted by itself, as no mask follows it.
        assert len(one_by_one) == (3 if background else sum(count for _, _, count in outputs[-1]))
        one_by_one.clear()
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("graphs", [False, True])
def test_nothing_is_sent_while_the_same_sequences_go_on(
    ahead: Make, monkeypatch: pytest.MonkeyPatch, graphs: bool
) -> None:
    """Decode graphs reuse static buffers, while eager passes upload their parameters every step."""
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: graphs))
    runtime = ahead(max_batch_size=3)
    handles = [runtime.submit(asked(runtime, 20, [5, n], sampling=RANDOM, seed=n)) for n in range(3)]
    sent = []
    while not all(handle.done for handle in handles):
        runtime.step()
        sent.append(runtime.runner.uploads.bytes)
    assert (sent[3] == sent[15]) == graphs and sent[3] > 0


def test_a_cancelled_sequence_stops_at_once(ahead: Make) -> None:
    runtime = ahead()
    stays, goes = (runtime.submit(asked(runtime, 8, [5, 6])) for _ in range(2))
    for _ in range(3):
        runtime.step()
    goes.cancel()
    count = goes.sequence.new_tokens
    later = runtime.submit(asked(runtime, 8, [5, 6]))
    assert later.result().text == stays.result().text
    assert goes.sequence.new_tokens == count < 8
    assert not any(page.users for page in runtime.allocator.pages)


# On a GPU


@pytest.fixture
def gpu(on_gpu: tuple[ExLlamaV2, ExLlamaV2Tokenizer]) -> Make:
    model, tokenizer = on_gpu

    def make(size: int = 4096, **options: Any) -> Runtime:
        runtime = Runtime(
            model, ExLlamaV2Cache(model, max_seq_len=size), tokenizer, **{"jump_forward": False, **options}
        )
        assert runtime.runner.is_asynchronous and runtime.runner.has_graphs
        return runtime

    return make


@pytest.mark.gpu
def test_batches_on_a_gpu(gpu: Make) -> None:
    """Matrix products of other batch sizes round differently, which may only change near-ties."""
    together, alone = gpu(16384), gpu()
    handles = {kind: together.submit(request(kind, together.model, together.tokenizer, greedy=True)) for kind in KINDS}
    together.run_until(lambda: all(handle.done for handle in handles.values()))
    same = 0
    for kind, handle in handles.items():
        single = alone.submit(request(kind, alone.model, alone.tokenizer, greedy=True))
        single.result()
        sequences = [each.sequence.rows[0].tokens() for each in (handle, single)]
        at = next((at for at, pair in enumerate(zip(*sequences, strict=False)) if pair[0] != pair[1]), None)
        same += at is None
        assert at is not None or sequences[0] == sequences[1]
        if at is not None and kind == "greedy":
            logits = alone.model.forward(torch.tensor([sequences[0][:at]]))[0, -1].float()
            first, second = (float(logits[each[at]]) for each in sequences)
            assert abs(first - second) < 0.02 * float(logits[:350].abs().max())
    assert same >= len(KINDS) // 2


def check_logprobs(runtime: Runtime, tolerance: float) -> None:
    """Check the log probabilities of requests of one batch, which ask for different things."""
    options: list[dict[str, Any]] = [
        {"return_logprobs": 3},
        {"return_logprobs": 0, "return_logits": True},
        {"return_logits": True, "filters": [regex(runtime, "[a-z ]{40}")]},
        {"return_logprobs": 5, "filters": [regex(runtime, "[a-z ]{40}")]},
        {},
    ]
    handles = [runtime.submit(asked(runtime, 6, [5, n], **each)) for n, each in enumerate(options)]
    outputs = [handle.result() for handle in handles]
    for handle, output, each in zip(handles, outputs, options, strict=True):
        ids = torch.tensor([handle.sequence.rows[0].tokens()])
        logits = runtime.model.forward(ids)[0, 1:-1].float().cpu()
        expected = logits[:, : runtime.tokenizer.get_vocab_size()].log_softmax(-1)
        for number, token in enumerate(output.tokens):
            assert (token.logprob is None) == ("return_logprobs" not in each)
            assert (token.logits is None) == ("return_logits" not in each)
            if token.logits is not None:
                torch.testing.assert_close(token.logits[0, 0].cpu(), logits[number], atol=tolerance, rtol=tolerance)
            if token.logprob is not None:
                assert token.logprob == pytest.approx(float(expected[number, token.id]), abs=tolerance)
                likely = [value for _, value in token.top_logprobs]
                assert likely == pytest.approx(expected[number].topk(len(likely)).values.tolist(), abs=tolerance)
                assert len(likely) == each["return_logprobs"]


def test_log_probabilities_of_a_batch(ahead: Make) -> None:
    check_logprobs(ahead(), 1e-3)


@pytest.mark.gpu
def test_log_probabilities_of_a_batch_on_a_gpu(gpu: Make) -> None:
    check_logprobs(gpu(), 0.1)


@pytest.mark.gpu
def test_nothing_is_sent_while_the_same_sequences_go_on_on_a_gpu(gpu: Make) -> None:
    runtime = gpu(max_batch_size=3)
    handles = [runtime.submit(asked(runtime, 20, [5, n], sampling=RANDOM, seed=n)) for n in range(3)]
    sent = []
    while not all(handle.done for handle in handles):
        runtime.step()
        sent.append(runtime.runner.uploads.bytes)
    assert sent[3] == sent[15] > 0


@pytest.mark.gpu
def test_the_host_is_one_step_behind_on_a_gpu(gpu: Make) -> None:
    runtime = gpu()
    handle = runtime.submit(asked(runtime, 4))
    known = []
    while not handle.done:
        runtime.step()
        known.append(handle.sequence.new_tokens)
    assert known == [0, 1, 2, 3, 4]


@pytest.mark.gpu
def test_generators_of_a_model_on_a_gpu_are_asynchronous(on_gpu: tuple[ExLlamaV2, ExLlamaV2Tokenizer]) -> None:
    model, tokenizer = on_gpu
    generator = ExLlamaV2DynamicGenerator(model, ExLlamaV2Cache(model, max_seq_len=4096), tokenizer)
    assert generator.runtime.runner.is_asynchronous
    jobs = [job(kind, model, tokenizer) for kind in KINDS]
    generator.enqueue([*jobs])
    while generator.num_remaining_jobs():
        generator.iterate()
    assert all(each.is_finished for each in jobs) and settings("greedy").top_k == 1

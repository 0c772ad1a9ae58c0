"""Speculative decoding: drafts change the speed but not the output, and drafting stops if drafts keep failing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from request_kinds import EOS, WIDTH

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config
from constrain.filters import ExLlamaV2RegexFilter, combine
from constrain.runtime import Handle, Request, Runtime, SamplingParams, SequenceState
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sampler.batch_sampler import BatchSampler
from constrain.runtime.speculative.draft_model import DraftModel
from constrain.runtime.speculative.ngram import NgramIndex, NgramProposer
from constrain.runtime.speculative.proposer import Acceptance, Proposer
from constrain.runtime.speculative.speculation import max_proposals

GREEDY = SamplingParams()
RANDOM = SamplingParams(temperature=2.0, top_k=0)
PROMPT = [5, 6, 7]
Make = Callable[..., Runtime]


class Oracle(Proposer):
    """Proposes a given output, with wrong tokens at some positions; records the requested limits and acceptances."""

    def __init__(self, num_tokens: int, tokens: Sequence[int], wrong: Callable[[int], bool] = lambda _: False) -> None:
        self.num_tokens = num_tokens
        self.tokens = [(10 if token == 9 else 9) if wrong(at) else token for at, token in enumerate(tokens)]
        self.asked: list[int] = []
        self.seen: list[tuple[int, int]] = []

    def wants(self, sequence: SequenceState) -> bool:
        return True

    def propose(self, sequences: Sequence[SequenceState], limits: Sequence[int]) -> list[list[int]]:
        self.asked += limits
        return [self.tokens[len(each) :][:most] for each, most in zip(sequences, limits, strict=True)]

    def observe(self, sequence: SequenceState, accepted: int, proposed: int) -> None:
        self.seen.append((accepted, proposed))


def asked(runtime: Runtime, count: int, pattern: str = "", **options: Any) -> Request:
    filters = [ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, pattern)] if pattern else []
    constraint = combine(filters, runtime.tokenizer, WIDTH) if filters else None
    given = {"sampling": GREEDY, "stop_tokens": frozenset([EOS]), **options}
    return Request([torch.tensor([PROMPT])], constraint=constraint, max_new_tokens=count, **given)


def output(make: Make, count: int, pattern: str = "", **options: Any) -> list[int]:
    """Return all tokens of a sequence run without proposals, prompt included."""
    runtime = make(jump_forward=False)
    handle = runtime.submit(asked(runtime, count, pattern, **options))
    handle.result()
    return handle.sequence.rows[0].tokens()


def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list to which each decode pass appends the number of tokens of each row."""
    found: list[list[int]] = []
    decode = ModelRunner.decode

    def watched(self: ModelRunner, rows: Sequence[BatchRow], *rest: Any) -> Any:
        found.append([len(row.ids) for row in rows])
        return decode(self, rows, *rest)

    monkeypatch.setattr(ModelRunner, "decode", watched)
    return found


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("wrong", [lambda at: False, lambda at: at % 4 == 0, lambda at: True])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM])
@pytest.mark.parametrize("pattern", ["", "[a-z ]{30,}"])
def test_right_and_wrong_proposals(
    make: Make, asynchronous: bool, wrong: Callable[[int], bool], sampling: SamplingParams, pattern: str
) -> None:
    expected = output(make, 30, pattern, sampling=sampling, seed=4)
    runtime = make(jump_forward=False)
    runtime.runner.is_asynchronous = asynchronous
    runtime.speculation.proposer = oracle = Oracle(5, expected, wrong)
    handle = runtime.submit(asked(runtime, 30, pattern, sampling=sampling, seed=4))
    handle.result()
    sequence = handle.sequence
    assert sequence.rows[0].tokens() == expected
    right = [at for at in range(len(PROMPT), len(expected)) if not wrong(at)]
    assert (sequence.accepted_draft_tokens > 0) == bool(right)
    assert (sequence.rejected_draft_tokens > 0) == (len(right) < len(expected) - len(PROMPT))
    assert sequence.accepted_draft_tokens == sum(accepted for accepted, _ in oracle.seen)
    # The last token always comes from the sampler, so it is never proposed.
    assert all(limit < 30 for limit in oracle.asked) and max(oracle.asked) == 5


def test_right_proposals_save_passes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = output(make, 30)
    found = passes(monkeypatch)
    runtime = make()
    runtime.speculation.proposer = Oracle(5, expected)
    runtime.submit(asked(runtime, 30)).result()
    assert found == [[6]] * 5


def test_drafts_are_cut_where_the_mask_forbids_them(make: Make) -> None:
    """Proposals are verified up to the first one that the constraint forbids; the rest is dropped without an error."""
    pattern = "[a-z ]{30,}"
    expected = output(make, 30, pattern)
    digit = make().tokenizer.get_id_to_piece_list().index("7")
    runtime = make(jump_forward=False)
    oracle = Oracle(6, expected)
    oracle.tokens = [digit if at % 3 == 2 else token for at, token in enumerate(expected)]
    runtime.speculation.proposer = oracle
    found: list[list[Any]] = []
    sampled = BatchSampler.sample

    def watched(self: BatchSampler, output: Any, rows: Any) -> Any:
        found.append([row.mask for row in rows])
        return sampled(self, output, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchSampler, "sample", watched)
        handle = runtime.submit(asked(runtime, 30, pattern))
        handle.result()
    assert handle.sequence.rows[0].tokens() == expected
    # Rows with a mask: the next token, and the token after each allowed proposal, of which there are two at most.
    assert {sum(mask is not None for mask in masks) for masks in found} <= {1, 2, 3}
    assert any(sum(mask is not None for mask in masks) == 3 for masks in found)


def test_masks_after_drafts_are_asked_for_before_sampling(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks are computed once the pass is queued; none is requested between sampling and the next drafts."""
    events: list[str] = []

    class Watching(ExLlamaV2RegexFilter):
        def fill_bitmask(self, bits: Any, row: int = 0, budget: int | None = None) -> bool:
            events.append("mask")
            return super().fill_bitmask(bits, row, budget)

        def clone(self, c: Any = None) -> Any:
            return super().clone(c)

    expected = output(make, 24, "[a-z]{90,}")
    runtime = make(jump_forward=False, use_background=False)
    runtime.speculation.proposer = Oracle(3, expected)
    for owner, name, event in ((ModelRunner, "decode", "pass"), (BatchSampler, "sample", "sample")):
        method = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *given, method=method, event=event: events.append(event) or method(*given)
        )
    constraint = combine([Watching(runtime.model, runtime.tokenizer, "[a-z]{90,}")], runtime.tokenizer, WIDTH)
    request = Request([torch.tensor([PROMPT])], GREEDY, constraint=constraint, max_new_tokens=24)
    handle = runtime.submit(request)
    handle.result()
    steps = " ".join(events).split("pass")[1:]
    assert len(steps) == 6 and handle.sequence.accepted_draft_tokens == 18
    assert {step.strip() for step in steps} == {"mask mask mask mask sample"}


# Adaptation


def test_nothing_is_drafted_any_more_after_drafts_fail() -> None:
    acceptance = Acceptance()
    drafted = []
    for _ in range(300):
        drafted.append(not acceptance.is_paused)
        acceptance.observe(0, 0 if acceptance.is_paused else 4)
    assert drafted[0] and not all(drafted[:5])
    assert sum(drafted[:60]) > sum(drafted[-60:]) and 0 < sum(drafted[-130:]) <= 2


def test_drafting_goes_on_once_drafts_are_right_again() -> None:
    acceptance = Acceptance()
    while not acceptance.is_paused:
        acceptance.observe(0, 4)
    assert acceptance.limit(4) == 1
    while acceptance.is_paused:
        acceptance.observe(0, 0)
    acceptance.observe(1, 1)
    acceptance.observe(1, 1)
    assert not acceptance.is_paused and acceptance.limit(4) == 4


@pytest.mark.parametrize("kind", ["draft model", "n-gram"])
def test_proposers_give_up_on_a_sequence(make: Make, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Proposals for random tokens are wrong, so after a few of them, passes go back to one token per sequence."""
    runtime = make(jump_forward=False)
    if kind == "n-gram":
        runtime.speculation.proposer = NgramProposer(1, 4)
    else:
        cache = ExLlamaV2Cache(runtime.model, max_seq_len=4096)
        runtime.speculation.proposer = DraftModel(runtime.model, cache, runtime.allocator.page_size, 380, 4)
    handle = runtime.submit(asked(runtime, 100, sampling=RANDOM._replace(temperature=50.0), stop_tokens=frozenset()))
    found = passes(monkeypatch)
    counts = []
    while not handle.done:
        runtime.step()
        sequence = handle.sequence
        counts.append(sequence.accepted_draft_tokens + sequence.rejected_draft_tokens)
    assert counts[-1] - counts[len(counts) // 2] <= 4
    if kind == "draft model":
        assert 0 < counts[-1] <= 20 and found


def test_a_draft_model_proposes_what_it_finds_likely(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = output(make, 30)
    runtime = make()
    cache = ExLlamaV2Cache(runtime.model, max_seq_len=4096)
    draft = DraftModel(runtime.model, cache, runtime.allocator.page_size, 380, 4)
    for least, accepted in ((0.0, 24), (2.0, 0)):
        draft.min_probability = least
        runtime.speculation.proposer = draft
        handle = runtime.submit(asked(runtime, 30))
        handle.result()
        assert handle.sequence.rows[0].tokens() == expected
        assert handle.sequence.accepted_draft_tokens == accepted and handle.sequence.rejected_draft_tokens == 0


def test_a_draft_model_proposes_as_far_as_its_context_reaches(
    make: Make, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond that, it has no rotations, which its kernels would read all the same."""
    config = ExLlamaV2Config(str(tiny_dir))
    config.max_seq_len, config.no_graphs = 300, True
    small = ExLlamaV2(config)
    small.load()
    ends: list[int] = []
    for name in ("decode", "prefill"):
        run = getattr(ModelRunner, name)

        def watched(self: ModelRunner, rows: Sequence[BatchRow], *rest: Any, run: Any = run) -> Any:
            ends.extend(row.end for row in rows if self.model is small)
            return run(self, rows, *rest)

        monkeypatch.setattr(ModelRunner, name, watched)
    runtime = make()
    draft = DraftModel(small, ExLlamaV2Cache(small, max_seq_len=4096), runtime.allocator.page_size, 380, 4)
    for length, reaches in ((280, True), (700, False)):
        ids = torch.randint(3, 350, (1, length), generator=torch.Generator().manual_seed(length))
        runtime.speculation.proposer = None
        expected = runtime.submit(Request([ids], GREEDY, max_new_tokens=40)).result()
        runtime.speculation.proposer = draft
        runtime.allocator.reset()
        handle = runtime.submit(Request([ids], GREEDY, max_new_tokens=40))
        assert handle.result().text == expected.text
        assert (handle.sequence.accepted_draft_tokens > 0) is reaches
    assert 296 <= max(ends) <= 300


def test_n_grams_propose_what_followed_before() -> None:
    index = NgramIndex(3)
    index.extend([1, 2, 3, 4, 5, 1, 2, 3])
    assert index.predict(2) == [4, 5] and index.predict(9) == [4, 5, 1, 2, 3]
    assert index.predict(2, [9, 5]) == [1, 2] and index.predict(2, [9]) == []
    index.truncate(5)
    assert index.tail == [3, 4, 5] and len(index) == 5
    # The continuation of 5 was truncated.
    assert index.predict(2) == []


def test_n_grams_of_the_prompt_are_found_again(make: Make) -> None:
    expected = output(make, 40)
    runtime = make()
    proposer = NgramProposer(2, 4)
    proposer.preload(expected)
    runtime.speculation.proposer = proposer
    handle = runtime.submit(asked(runtime, 40))
    handle.result()
    assert handle.sequence.rows[0].tokens() == expected
    assert handle.sequence.accepted_draft_tokens > 20


def test_proposals_shrink_with_the_batch() -> None:
    counts = [max_proposals(rows) for rows in range(1, 100)]
    assert counts == sorted(counts, reverse=True) and counts[0] > 8 and counts[-1] == 0
    assert all(rows * (1 + each) <= 64 for rows, each in enumerate(counts, 1) if each)


def test_forced_text_is_no_draft(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = make()
    found = passes(monkeypatch)
    handle: Handle = runtime.submit(asked(runtime, 40, "hello there, the quick brown fox"))
    assert handle.result().text == "hello there, the quick brown fox"
    assert len(found) < handle.sequence.new_tokens and max(map(max, found)) > 2
    assert handle.sequence.accepted_draft_tokens == handle.sequence.rejected_draft_tokens == 0


@pytest.mark.parametrize(("batch", "jumps"), [(21, True), (22, False)])
def test_forced_text_in_large_batches(make: Make, monkeypatch: pytest.MonkeyPatch, batch: int, jumps: bool) -> None:
    """If a pass has room for one more token per sequence, searching takes longer than the token saves."""
    runtime = make(size=24 * 256, max_batch_size=24)
    found = passes(monkeypatch)
    handles = [runtime.submit(asked(runtime, 40, "hello there")) for _ in range(batch)]
    assert {handle.result().text for handle in handles} == {"hello there"}
    assert any(len(sizes) == batch and max(sizes) > 1 for sizes in found) == jumps

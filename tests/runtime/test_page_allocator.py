"""Pages of the KV cache: none is lost, leaked or freed twice, and a cache hit has the same content as recomputation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.errors import GenerationError
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.runtime.page_allocator import PageAllocator

SIZE = 8


def check(allocator: PageAllocator, sequences: list[Any]) -> None:
    """Check the invariants that hold between two calls."""
    uses = Counter(page for sequence in sequences for page in sequence.pages)
    assert sorted(page.index for page in allocator.pages) == list(range(len(allocator.pages)))
    for page in allocator.pages:
        assert page.users == uses[page]
        assert len(page.tokens) <= allocator.page_size
        listed = page in allocator._children.get(page.parent, ())
        assert listed == bool(page.tokens)
    assert Counter(allocator.idle) == Counter(page for page in allocator.pages if not page.users)
    assert all(page.key == key for key, page in allocator._by_key.items())
    assert set().union(*allocator._children.values()) <= set(allocator.pages)
    for sequence in sequences:
        assert len(set(sequence.pages)) == len(sequence.pages)
        held = [token for page in sequence.pages for token in page.tokens]
        assert held[: sequence.position] == sequence.tokens()[: len(held)][: sequence.position]


class Machine(RuleBasedStateMachine):
    """Runs jobs with overlapping prompts on a cache of eight small pages."""

    model: ExLlamaV2
    tokenizer: ExLlamaV2Tokenizer
    drafts: bool

    def __init__(self) -> None:
        super().__init__()
        cache, second = (ExLlamaV2Cache(self.model, max_seq_len=8 * SIZE) for _ in range(2))
        draft = {"draft_model": self.model, "draft_cache": second} if self.drafts else {}
        self.generator = ExLlamaV2DynamicGenerator(self.model, cache, self.tokenizer, max_chunk_size=2 * SIZE, **draft)
        self.jobs: list[ExLlamaV2DynamicJob] = []
        self.streamed: dict[ExLlamaV2DynamicJob, tuple[list[int], list[torch.Tensor]]] = {}

    @rule(
        length=st.integers(1, 40),
        tail=st.lists(st.integers(3, 5), max_size=10),
        count=st.integers(1, 20),
        bans=st.booleans(),
        guided=st.booleans(),
    )
    def enqueue(self, length: int, tail: list[int], count: int, bans: bool, guided: bool) -> None:
        prompt = [10 + n % 7 for n in range(length)] + tail
        # With a guidance scale of 1, the second prompt takes pages but does not affect the output.
        prompts = [prompt, prompt[: 1 + length // 2]] if guided else [prompt]
        strings = [chr(c) for c in range(ord("a"), ord("m"))] if bans else None
        job = ExLlamaV2DynamicJob(
            [torch.tensor([each]) for each in prompts],
            count,
            gen_settings=ExLlamaV2Sampler.Settings.greedy(cfg_scale=1.0 if guided else None),
            banned_strings=strings,
            return_logits=True,
        )
        if sum(-(-(len(each) + count) // SIZE) for each in prompts) > 8:
            with pytest.raises(GenerationError, match="cannot be enqueued"):
                self.generator.enqueue(job)
            return
        self.generator.enqueue(job)
        self.jobs.append(job)
        self.streamed[job] = [], []

    @rule(times=st.integers(1, 4))
    def iterate(self, times: int) -> None:
        for _ in range(times):
            for result in self.generator.iterate():
                tokens, logits = self.streamed[result["job"]]
                if "token_ids" in result:
                    tokens += result["token_ids"][0].tolist()
                    logits += result["logits"][0].unbind()
                if result["eos"]:
                    self.finish(result["job"])

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        self.generator.cancel(job)
        self.jobs.remove(job)

    def finish(self, job: ExLlamaV2DynamicJob) -> None:
        self.jobs.remove(job)
        prompt = job.sequences[0].input_ids.torch()
        tokens, logits = self.streamed[job]
        fresh = self.model.forward(torch.cat([prompt, torch.tensor([tokens])], dim=1))
        expected = fresh[0, prompt.shape[1] - 1 : -1]
        torch.testing.assert_close(torch.stack(logits), expected, atol=1e-3, rtol=1e-3)

    @invariant()
    def pages_are_in_order(self) -> None:
        check(self.generator.runtime.allocator, [s for job in self.generator.active_jobs for s in job.sequences])
        assert self.generator.num_remaining_jobs() == len(self.jobs)

    def teardown(self) -> None:
        while self.generator.num_remaining_jobs():
            self.iterate(1)
        check(self.generator.runtime.allocator, [])


@pytest.mark.parametrize("drafts", [False, True])
def test_pages_are_kept_in_order(
    long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer, monkeypatch: pytest.MonkeyPatch, drafts: bool
) -> None:
    monkeypatch.setattr(Machine, "drafts", drafts, raising=False)
    monkeypatch.setattr("constrain.generator.dynamic.PAGED_PAGE_SIZE", SIZE)
    monkeypatch.setattr(Machine, "model", long_model, raising=False)
    monkeypatch.setattr(Machine, "tokenizer", tiny_tokenizer, raising=False)
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=15, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=checks
        ),
    )


@pytest.fixture
def cache(long_model: ExLlamaV2) -> ExLlamaV2Cache:
    return ExLlamaV2Cache(long_model, max_seq_len=6 * SIZE)


@pytest.fixture
def allocator(cache: ExLlamaV2Cache) -> PageAllocator:
    return PageAllocator(6, SIZE, lambda: [each.view(-1, SIZE, *each.shape[2:]) for each in cache.all_tensors()])


def fill(allocator: PageAllocator, prompt: list[int], positions: int) -> list[Any]:
    """Allocate pages for a prompt and fill them with it."""
    pages = allocator.allocate(prompt, -(-positions // SIZE))
    assert pages is not None
    allocator.commit(pages, prompt, 0)
    return pages


def test_the_least_recently_used_pages_are_overwritten_first(allocator: PageAllocator) -> None:
    texts = [[n] * 17 for n in range(3, 6)]
    for text in texts[:2]:
        allocator.release(fill(allocator, text, 18))
    allocator.release(fill(allocator, texts[0], 18))
    allocator.release(fill(allocator, texts[2], 18))
    kept = [sum(len(page.tokens) for page in allocator.pages if set(page.tokens) == {n}) for n in range(3, 6)]
    assert kept == [17, 0, 17]


def test_the_end_of_a_sequence_is_overwritten_before_its_beginning(allocator: PageAllocator) -> None:
    allocator.release(fill(allocator, list(range(100, 148)), 48))
    fill(allocator, [3], 2)
    left = sorted(token for page in allocator.pages if 3 not in page.tokens for token in page.tokens)
    assert left == list(range(100, 140))


def test_pages_of_running_sequences_are_never_taken(allocator: PageAllocator) -> None:
    running = fill(allocator, [3] * 20, 30)
    assert allocator.allocate([4] * 20, 4) is None
    assert allocator.allocate([3] * 20, 4) is not None
    allocator.release(running)
    assert all(page.users == (page in running[:2]) for page in running)

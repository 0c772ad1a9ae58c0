"""Confidence of tokens: equal to one slow forward pass of the whole sequence, however the tokens were decoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from request_kinds import EOS, WIDTH

from constrain.engine.bitmask import packed
from constrain.errors import ArgumentError
from constrain.filters import ExLlamaV2JSONSchemaFilter, combine
from constrain.filters.masks import RowMask, flags
from constrain.model import ExLlamaV2, ExLlamaV2Cache
from constrain.runtime import Handle, Request, Runtime, SamplingParams
from constrain.runtime.measurements import Measurements
from constrain.runtime.sampler.params import TokenBias
from constrain.runtime.speculative.ngram import NgramProposer
from constrain.tokenizer import ExLlamaV2Tokenizer

Make = Callable[..., Runtime]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "state": {"enum": ["open", "opened", "closed"]},
        "sure": {"type": "boolean"},
        "age": {"type": ["integer", "null"], "minimum": 0, "maximum": 200},
    },
    "required": ["name", "state", "sure", "age"],
    "additionalProperties": False,
}
WATCHED = RowMask(packed(range(40, 90), WIDTH // 32))
GREEDY = SamplingParams()
SHAPED = SamplingParams(temperature=1.7, top_k=0, repetition_penalty=1.3, frequency_penalty=0.4)


def ask(runtime: Runtime, seed: int = 0, **options: Any) -> Request:
    constraint = combine(
        [ExLlamaV2JSONSchemaFilter(runtime.model, runtime.tokenizer, SCHEMA)], runtime.tokenizer, WIDTH
    )
    given = {"sampling": GREEDY, "max_new_tokens": 90, "within_budget": True, "return_confidence": True, **options}
    prompt = [torch.tensor([[5, 6, 7 + seed]])]
    return Request(prompt, constraint=constraint, seed=seed, stop_tokens=frozenset([EOS]), **given)


def check(runtime: Runtime, handle: Handle, tolerance: float = 2e-5) -> None:
    """Compare with the masked softmax of the logits of one forward pass over prompt and output."""
    output, row = handle.output, handle.sequence.rows[0]
    ids = torch.tensor([row.tokens()])
    logits = runtime.model.forward(ids)[0, :, :WIDTH].cpu().double()
    matcher = ExLlamaV2JSONSchemaFilter(runtime.model, runtime.tokenizer, SCHEMA).matcher
    budget = (handle.sequence.request.max_new_tokens or 0) + 1
    for number, token in enumerate(output.tokens):
        mask = torch.from_numpy(flags(matcher.mask(budget - number), WIDTH).copy())
        position = logits[3 + number - 1]
        allowed = position.masked_fill(~mask, -torch.inf).log_softmax(0)
        assert token.confidence is not None
        assert token.confidence.logprob == pytest.approx(float(allowed[token.id]), abs=tolerance)
        removed = float(position.softmax(0)[~mask].sum())
        assert token.confidence.removed == pytest.approx(removed, abs=tolerance)
        assert math.copysign(1, token.confidence.removed) == 1  # "-0.0" would be written into records
        listed = mask if int(mask.sum()) <= 256 else mask & torch.isin(torch.arange(WIDTH), torch.arange(40, 90))
        if handle.sequence.request.watched_tokens is None and int(mask.sum()) > 256:
            listed = torch.zeros_like(mask)
        choices = token.confidence.choices(WIDTH)
        assert list(choices) == listed.nonzero().flatten().tolist()
        assert list(choices.values()) == pytest.approx(allowed[listed].exp().tolist(), abs=tolerance)
        assert matcher.accept(token.id)


def run(runtime: Runtime, requests: Sequence[Request]) -> list[Handle]:
    handles = [runtime.submit(each) for each in requests]
    for handle in handles:
        handle.result()
    return handles


@pytest.mark.parametrize("sampling", [GREEDY, SHAPED])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("jump_forward", [False, True])
def test_every_token_of_a_record(make: Make, sampling: SamplingParams, asynchronous: bool, jump_forward: bool) -> None:
    runtime = make(jump_forward=jump_forward)
    runtime.runner.is_asynchronous = asynchronous
    (handle,) = run(runtime, [ask(runtime, sampling=sampling, seed=3)])
    assert len(handle.output.tokens) > 20
    check(runtime, handle)


def test_batches(make: Make) -> None:
    """Other requests of the batch ask for nothing, for other settings, or for watched tokens."""
    runtime = make()
    plain = ask(runtime, return_confidence=False)
    others = [ask(runtime, seed, sampling=SHAPED, watched_tokens=WATCHED if seed % 2 else None) for seed in range(1, 5)]
    first, *handles = run(runtime, [plain, *others])
    assert all(token.confidence is None for token in first.output.tokens)
    for handle in handles:
        check(runtime, handle)


def test_drafts(make: Make) -> None:
    """Tokens that were proposed and accepted have the same confidence as without speculation."""
    runtime = make(proposer=NgramProposer(2, 4))
    expected = run(make(), [ask(runtime)])[0].sequence.rows[0].tokens()
    assert isinstance(runtime.speculation.proposer, NgramProposer)
    runtime.speculation.proposer.preload(expected)
    (handle,) = run(runtime, [ask(runtime)])
    assert handle.sequence.accepted_draft_tokens > 5
    check(runtime, handle)


def test_confidence_changes_no_token(make: Make) -> None:
    for sampling in (GREEDY, SHAPED):
        runtime = make()
        plain, measured = (
            run(runtime, [ask(runtime, seed=9, sampling=sampling, return_confidence=each)])[0] for each in (False, True)
        )
        assert plain.sequence.rows[0].tokens() == measured.sequence.rows[0].tokens()


@pytest.mark.parametrize(
    "changes",
    [
        {"guidance": 1.7},
        {"dry_multiplier": 9.0, "dry_allowed_length": 1},
        {"bias": TokenBias(torch.arange(WIDTH) % 5 - 2.0)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_that_change_logits_change_no_confidence(make: Make, changes: dict[str, Any]) -> None:
    """It is that of the model alone, also where a token is sampled from other logits."""
    runtime = make()
    plain, changed = ask(runtime, 3), ask(runtime, 3, sampling=GREEDY._replace(**changes), watched_tokens=WATCHED)
    if changed.sampling.guidance is not None:
        changed = replace(changed, prompt=[*changed.prompt, torch.tensor([[9, 8]])])
    expected, found = run(runtime, [plain, changed])
    assert found.sequence.rows[0].tokens() != expected.sequence.rows[0].tokens()
    check(runtime, found)


def test_hooks_exclude_confidence(make: Make) -> None:
    with pytest.raises(ArgumentError, match="confidence cannot be had with post_sampling_hooks"):
        ask(make(), hook=lambda token, *_: (token, True))


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", [GREEDY, SHAPED])
def test_on_a_gpu(
    on_gpu: tuple[ExLlamaV2, ExLlamaV2Tokenizer], sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is measured in the passes, whose matrix products round differently."""
    model, tokenizer = on_gpu
    monkeypatch.delattr(Measurements, "_measure")
    runtime = Runtime(model, ExLlamaV2Cache(model, max_seq_len=4096), tokenizer)
    watching = [ask(runtime, seed, sampling=sampling, watched_tokens=WATCHED) for seed in range(3)]
    plain, *handles = run(runtime, [ask(runtime, return_confidence=False), *watching])
    assert all(token.confidence is None for token in plain.output.tokens)
    for handle in handles:
        check(runtime, handle, tolerance=0.05)

"""Faithful sampling: weighted particles stand for the posterior of the model, given the constraint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from request_kinds import EOS, WIDTH

from constrain.errors import ArgumentError, BudgetError, GenerationError
from constrain.filters import ExLlamaV2RegexFilter, combine
from constrain.filters.engine import vocabulary_of
from constrain.model import ExLlamaV2
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.particles import _systematic
from constrain.runtime.sampler.params import UNSHAPED

Make = Callable[..., Runtime]
#: What the logits of the random model are divided by.
FLATNESS = 4
#: Grammars with few outputs, which the tiny model can write in many ways.
GRAMMARS = [
    "yes|no",
    "yes|no|yet",
    "(a|b)(c|d)",
    "hello|help|he",
    "x{1,4}",
    "true|false|null",
    "[abc]{2}",
    "(no )?(yes|thanks)",
    "1|12|123",
    "(red|green)!?",
    "a(bc|de)?",
    "-?[12]",
    '"(x|y)"',
    "(to|t)?op",
    "ab|ba|aab|bba",
    "the (quick|lazy|dog)",
    "caf(é|e)",
    "[01]{1,3}",
    "(x,)?y",
    "please|pleas|plea",
]


def ask(runtime: Runtime, pattern: str, seed: int = 0, **options: Any) -> Request:
    constraint = combine([ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, pattern)], runtime.tokenizer, WIDTH)
    given = {"sampling": UNSHAPED, "max_new_tokens": 24, "within_budget": True, "stop_tokens": frozenset([EOS])}
    return Request([torch.tensor([[5, 6, 7]])], constraint=constraint, seed=seed, **(given | options))


def enumerated(runtime: Runtime, pattern: str) -> tuple[dict[str, float], dict[str, float]]:
    """The probability of each text by the model alone, and by masked sampling, summed over all tokenizations."""
    vocabulary = vocabulary_of(runtime.tokenizer)
    matcher = ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, pattern).matcher
    alone: Counter[str] = Counter()
    masked: Counter[str] = Counter()
    open_ = [((), b"", matcher, 1.0, 1.0)]
    while open_:
        rows = torch.tensor([[5, 6, 7, *tokens] for tokens, *_ in open_])
        shares = (runtime.model.forward(rows)[:, -1, :WIDTH] / FLATNESS).double().softmax(-1).numpy()
        following = []
        for (tokens, text, at, p, q), row in zip(open_, shares, strict=True):
            mask = at.mask()
            assert mask is not None
            for token in np.flatnonzero([token in mask for token in range(WIDTH)]).tolist():
                share, local = p * row[token], q * row[token] / mask.mass(row)
                if token == EOS:
                    alone[text.decode()] += share
                    masked[text.decode()] += local
                    continue
                ahead = at.clone()
                assert ahead.accept(token)
                following.append(((*tokens, token), text + vocabulary.token_bytes(token), ahead, share, local))
        open_ = following
    return dict(alone), dict(masked)


def posterior(outputs: list[Any]) -> tuple[dict[str, float], float]:
    """The distribution of texts by weighted particles of several requests, and the mean weight."""
    masses: Counter[str] = Counter()
    for output in outputs:
        weights = [math.exp(each.log_weight) for each in output.particles]
        for each, weight in zip(output.particles, weights, strict=True):
            masses[each.text] += weight / sum(weights)
    mean = [np.mean([math.exp(each.log_weight) for each in output.particles]) for output in outputs]
    return {text: mass / len(outputs) for text, mass in masses.items()}, float(np.mean(mean))


def divergence(found: Mapping[str, float], expected: Mapping[str, float]) -> float:
    """The Kullback-Leibler divergence of a distribution from another, in nats."""
    total = sum(expected.values())
    return sum(share * math.log(share * total / expected[text]) for text, share in found.items() if share)


@pytest.fixture
def flat(model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the random model less sure: as it is, it gives some letters that are to be written 1e-8."""
    forward = model.head
    monkeypatch.setattr(model, "head", lambda *args: forward(*args) / FLATNESS)


@pytest.mark.usefixtures("flat")
@pytest.mark.parametrize("pattern", GRAMMARS)
def test_enumerated_posteriors(make: Make, pattern: str) -> None:
    """Closer to the posterior than plain masking, and close: the mean of 16 requests of 64 particles each."""
    runtime = make(16 * 1024)
    alone, masked = enumerated(runtime, pattern)
    requests = [ask(runtime, pattern, 1000 * number, faithful=True, particles=64) for number in range(16)]
    found, mean = posterior([runtime.submit(each).result() for each in requests])
    assert divergence(found, alone) <= 0.01
    assert divergence(found, alone) < divergence(masked, alone)
    assert mean == pytest.approx(sum(alone.values()), rel=0.15), "the mean weight is the probability of the language"


def test_the_same_seed_gives_the_same_particles(make: Make) -> None:
    """Alone, beside others, and with pages of any size; pages are given back."""
    runtime = make()
    first = runtime.submit(ask(runtime, "[abc]{1,9}", 5, faithful=True, particles=8)).result()
    assert len({each.log_weight for each in first.particles}) > 1 and len(runtime.allocator.idle) == 16
    runtime = make(page_size=16)
    handles = [runtime.submit(ask(runtime, "[abc]{1,9}", 5, faithful=True, particles=8))]
    handles += [runtime.submit(ask(runtime, "[abc]{1,40}", seed, max_new_tokens=50)) for seed in range(3)]
    second = handles[0].result()
    assert [each.text for each in second.particles] == [each.text for each in first.particles]
    weights = [each.log_weight for each in first.particles]
    assert [each.log_weight for each in second.particles] == pytest.approx(weights, abs=1e-5)


def test_long_outputs_over_many_pages(make: Make) -> None:
    """Weights equal those of a slow pass over the tokens, so that every fork has its own keys and values."""
    runtime = make(page_size=16)
    options = {"faithful": True, "particles": 6, "max_new_tokens": 60}
    output = runtime.submit(ask(runtime, "([abc]{8} ){5}", 1, **options)).result()
    matcher = ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, "([abc]{8} ){5}").matcher
    for each in output.particles:
        tokens = [token.id for token in each.tokens]
        logits = runtime.model.forward(torch.tensor([[5, 6, 7, *tokens]]))[0, 2:, :WIDTH].double()
        matcher.reset()
        for number, token in enumerate(each.tokens):
            mask, confidence = matcher.mask(60 - number), token.confidence
            assert mask is not None and confidence is not None and matcher.accept(token.id)
            share = mask.mass(logits[number].softmax(0).numpy())
            assert confidence.log_mass == pytest.approx(math.log(share), abs=1e-3)
    runtime.allocator.reset()  # no page is in use


def test_cancelled(make: Make) -> None:
    runtime = make()
    handle = runtime.submit(ask(runtime, "[abc]{20}", faithful=True, particles=4))
    runtime.step()
    runtime.step()
    handle.cancel()
    assert not runtime.has_work and len(runtime.allocator.idle) == len(runtime.allocator.pages)


def test_what_cannot_be(make: Make) -> None:
    runtime = make()
    with pytest.raises(ArgumentError, match="without sampling settings, stop_strings"):
        ask(runtime, "a", faithful=True, sampling=SamplingParams(top_k=3), stop_strings=["x"])
    with pytest.raises(ArgumentError, match="several particles need faithful=True"):
        ask(runtime, "a", particles=3)
    with pytest.raises(BudgetError):
        runtime.submit(ask(runtime, "a{9}", faithful=True, particles=2, max_new_tokens=2))
    with pytest.raises(GenerationError, match="pages"):
        runtime.submit(ask(runtime, "a", faithful=True, particles=200, max_new_tokens=600))
    runtime = make(max_batch_size=4)
    with pytest.raises(GenerationError, match="max_batch_size"):
        runtime.submit(ask(runtime, "a", faithful=True, particles=5))


def test_systematic_resampling_keeps_likely_particles() -> None:
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    counts = [_systematic(shares, uniform) for uniform in np.linspace(0, 0.999, 1000)]
    assert np.mean(counts, axis=0) == pytest.approx(4 * shares, abs=0.01)
    assert all(count.sum() == 4 and count[0] == 2 and count[1] >= 1 for count in counts)

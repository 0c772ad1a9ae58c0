"""Faithful sampling: weighted particles stand for the posterior of the model, given the constraint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from request_kinds import EOS, WIDTH

from constrain.errors import ArgumentError, BudgetError, FilterError, GenerationError
from constrain.filters import ExLlamaV2Filter, ExLlamaV2RegexFilter, combine
from constrain.filters.vocabularies import vocabulary_of
from constrain.model import ExLlamaV2
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.confidence import TokenConfidence
from constrain.runtime.sampler.params import UNSHAPED
from constrain.runtime.smc import particles
from constrain.runtime.smc.lineage import Lineage, _systematic, apportion, random_number
from constrain.runtime.speculative.ngram import NgramProposer

Make = Callable[..., Runtime]
#: Divisor of the logits of the random model.
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


def posterior(output: Any) -> tuple[dict[str, float], float]:
    """The distribution of texts by weighted particles, and the mean weight."""
    masses: Counter[str] = Counter()
    weights = [math.exp(each.log_weight) for each in output.particles]
    for each, weight in zip(output.particles, weights, strict=True):
        masses[each.text] += weight / sum(weights)
    return dict(masses), float(np.mean(weights))


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
    """Each request of 64 particles is close to the posterior, and closer than plain masking."""
    runtime = make(16 * 1024)
    alone, masked = enumerated(runtime, pattern)
    for seed in range(4):
        found, mean = posterior(runtime.submit(ask(runtime, pattern, seed, faithful=True, particles=64)).result())
        assert divergence(found, alone) <= 0.01
        assert divergence(found, alone) < divergence(masked, alone)
        assert mean == pytest.approx(sum(alone.values()), rel=0.05), (
            "the mean weight is the probability of the language"
        )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_same_seed_gives_the_same_particles(
    make: Make, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, beside others that are drafted, with passes queued ahead, with pages of any size, which are given back."""
    counters: list[int] = []
    monkeypatch.setattr(
        particles, "random_number", lambda seed, counter: counters.append(counter) or random_number(seed, counter)
    )
    runtime = make()
    first = runtime.submit(ask(runtime, "[abc]{9}|x", 3, faithful=True, particles=8)).result()
    assert len({each.log_weight for each in first.particles}) > 1 and len(runtime.allocator.idle) == 16
    assert counters == list(range(len(counters))) and len(counters) > 1, "each resampling has a number of its own"
    runtime = make(page_size=16, proposer=NgramProposer(3, 3))
    runtime.runner.is_asynchronous = asynchronous
    handles = [runtime.submit(ask(runtime, "[abc]{9}|x", 3, faithful=True, particles=8))]
    handles += [runtime.submit(ask(runtime, "[abc]{1,40}", seed, max_new_tokens=50)) for seed in range(3)]
    second = handles[0].result()
    assert [each.text for each in second.particles] == [each.text for each in first.particles]
    weights = [each.log_weight for each in first.particles]
    assert [each.log_weight for each in second.particles] == pytest.approx(weights, abs=1e-5)


@pytest.mark.parametrize("length", [1, 3, 15, 16, 17, 32])
def test_forks_have_keys_and_values_of_their_own(make: Make, length: int) -> None:
    """Weights equal those of a slow pass over the tokens, wherever the prompt ends in a page, and over many pages."""
    runtime, pattern, prompt = make(page_size=16), "([abc]{8} ){3}", list(range(5, 5 + length))
    options = {"faithful": True, "particles": 6, "max_new_tokens": 40}
    request = replace(ask(runtime, pattern, 1, **options), prompt=[torch.tensor([prompt])])
    for _ in range(2):  # the second time, the prompt is in the prefix cache
        output = runtime.submit(request).result()
        matcher = ExLlamaV2RegexFilter(runtime.model, runtime.tokenizer, pattern).matcher
        for each in output.particles:
            tokens = [token.id for token in each.tokens]
            logits = runtime.model.forward(torch.tensor([[*prompt, *tokens]]))[0, length - 1 :, :WIDTH].double()
            matcher.reset()
            for number, token in enumerate(each.tokens):
                mask, confidence = matcher.mask(40 - number), token.confidence
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


class Stateful(ExLlamaV2RegexFilter):
    """A filter that cannot be copied: it has state that its base class knows nothing of."""

    def next(self) -> Any:
        return super().next()


class Biasing(ExLlamaV2Filter):
    """A filter that adds to logits."""

    def begin(self, prefix_str: str = "") -> None: ...

    def feed(self, token: Any) -> None: ...

    def next(self) -> Any:
        return None, set()

    def clone(self, c: Any = None) -> Biasing:
        return Biasing(self.model, self.tokenizer)

    def can_mask_logits(self) -> bool:
        return True

    def prepare_logit_mask(self) -> bool:
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        logits[..., 65:] += 1.0
        return logits


class Failing(Biasing):
    """A filter that raises once two tokens are there."""

    length = 0

    def clone(self, c: Any = None) -> Failing:
        other = Failing(self.model, self.tokenizer)
        other.length = self.length
        return other

    def feed(self, token: Any) -> None:
        self.length += 1
        if self.length == 2:
            raise ValueError("two are too many")

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


@pytest.mark.parametrize(
    ("make_filter", "message"),
    [
        (lambda *args: Stateful(*args, "a+"), r"Stateful: has no clone\(\) of its own"),
        (Biasing, "adds to logits"),
        (Failing, "two are too many"),
    ],
)
def test_filters_that_cannot_be_faithful(make: Make, make_filter: Callable[..., Any], message: str) -> None:
    """They end their own request only, and give back its pages."""
    runtime = make()
    constraint = combine([make_filter(runtime.model, runtime.tokenizer)], runtime.tokenizer, WIDTH)
    failing = runtime.submit(
        Request([torch.tensor([[5, 6]])], UNSHAPED, constraint=constraint, faithful=True, particles=3, max_new_tokens=9)
    )
    other = runtime.submit(ask(runtime, "[ab]{4}"))
    with pytest.raises(FilterError, match=message):
        failing.result()
    assert len(other.result().text) == 4
    assert not runtime.has_work and len(runtime.allocator.idle) == len(runtime.allocator.pages)


def test_without_a_constraint_all_weigh_the_same(make: Make) -> None:
    runtime = make()
    options: dict[str, Any] = {"stop_tokens": frozenset([EOS]), "max_new_tokens": 6}
    request = Request([torch.tensor([[5, 6, 7]])], UNSHAPED, faithful=True, particles=8, **options)
    output = runtime.submit(request).result()
    assert len({each.text for each in output.particles}) > 4
    # Two that begin alike stand for what the model gives to their beginnings.
    assert [each.log_weight for each in output.particles] == pytest.approx([0] * 8, abs=0.7)
    assert np.mean([math.exp(each.log_weight) for each in output.particles]) == pytest.approx(1, abs=0.1)


def confidence(logprob: float, log_mass: float) -> TokenConfidence:
    return TokenConfidence(logprob, log_mass, None, None, 0.0, np.zeros(0, np.float32))


def test_equal_particles_sample_together() -> None:
    """Numbers are spread evenly over [0, 1), and what is sure to be taken gets its exact weight."""
    lineage = Lineage(-1.0)
    lineage.size = 8
    numbers = [lineage.uniform(place, 5, 9) for place in range(8)]
    assert [int(8 * number) for number in numbers if number is not None] == list(range(8))
    assert len({round(8 * number % 1, 9) for number in numbers if number is not None}) == 1
    likely, rare = (lineage.after(token, confidence(math.log(share), -2.0)) for token, share in ((1, 0.9), (2, 0.1)))
    likely.size, rare.size = 7, 1
    assert likely.log_weight == pytest.approx(-3 + math.log(8 * 0.9 / 7))
    assert rare.log_weight == -3, "it stands for others that are as rare, and were not taken"
    assert rare.uniform(0, 5, 9) is None, "alone, it uses the number of its own seed"


def test_complete_outputs_need_one_particle() -> None:
    """The weights of all lineages are kept: exactly, or on average over the random numbers."""
    ended, running, rare, lost = (Lineage(0.0) for _ in range(4))
    lineages = [running, ended, ended, rare, running, ended, ended, lost]
    shares = np.array([0.2, 0.1, 0.1, 0.03, 0.2, 0.1, 0.1, 0.17])
    has_ended = [each is not running for each in lineages]
    found: Counter[Lineage] = Counter()
    kept: set[bool] = set()
    numbers = np.linspace(0, 0.999, 1000)
    for number in numbers:
        copies, weights = apportion(lineages, shares, has_ended, number)
        assert sum(copies) == 8 and copies[1] == 1 and not any(copies[place] for place in (2, 5, 6))
        assert weights[ended] == pytest.approx(0.4)
        kept.add(copies[3] > 0)
        for lineage, count in zip(lineages, copies, strict=True):
            found[lineage] += count * weights[lineage] / len(numbers)
    assert kept == {False, True}, "an output of less than the weight of a particle is kept by chance"
    expected = {ended: 0.4, running: 0.4, rare: 0.03, lost: 0.17}
    assert {each: found[each] for each in expected} == pytest.approx(expected, abs=1e-3)


def test_systematic_resampling_keeps_likely_particles() -> None:
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    counts = [_systematic(shares, uniform, 4) for uniform in np.linspace(0, 0.999, 1000)]
    assert np.mean(counts, axis=0) == pytest.approx(4 * shares, abs=0.01)
    assert all(count.sum() == 4 and count[0] == 2 and count[1] >= 1 for count in counts)

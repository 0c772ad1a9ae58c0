"""The sampler as a whole: samples, order of steps, bans, filters, healing, results."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from constrain.errors import DeadEnd, FilterError, GenerationError
from constrain.filters import ExLlamaV2Filter
from constrain.generator import ExLlamaV2Sampler

SIZE, WIDTH, EOS = 60, 64, 59
EMPTY = torch.empty((1, 0), dtype=torch.long)
GREEDY = ExLlamaV2Sampler.Settings.greedy()
PLAIN: dict[str, Any] = {"temperature": 1.0, "token_repetition_penalty": 1.0, "top_k": 0, "top_p": 0.0}


class Fixed:
    """Always allows the same tokens."""

    def __init__(self, allowed: Any, ends: Any = ()) -> None:
        self.result = (allowed, ends)

    def begin(self, prefix_str: str) -> None: ...

    def feed(self, token: torch.Tensor) -> None: ...

    def next(self) -> Any:
        return self.result


def plain(**settings: Any) -> Any:
    return ExLlamaV2Sampler.Settings(**{**PLAIN, **settings})


def ramp(rows: int = 1) -> torch.Tensor:
    """Logits that rise with the id."""
    return torch.linspace(-3, 3, WIDTH).repeat(rows, 1, 1).clone()


def logits_of(probs: dict[int, float], rows: int = 1) -> torch.Tensor:
    logits = torch.full((rows, 1, WIDTH), -torch.inf)
    for i, p in probs.items():
        logits[:, 0, i] = np.log(p)
    return logits


def sample(letters: Any, logits: torch.Tensor, settings: Any, r: float = 0.5, **arguments: Any) -> Any:
    return ExLlamaV2Sampler.sample(logits, settings, EMPTY, r, letters, **arguments)


def test_the_result_has_the_published_form(letters: Any) -> None:
    tokens, top_tokens, top_probs, probs, end = sample(letters, ramp(), plain())
    assert (tokens.shape, tokens.dtype) == ((1, 1), torch.int64)
    assert (probs.shape, probs.dtype) == ((1, 1), torch.float32)
    assert top_tokens.is_meta
    assert top_probs.is_meta
    assert end is False
    _, top_tokens, top_probs, _, _ = sample(letters, ramp(3), plain(), return_top_tokens=4)
    assert top_tokens.shape == top_probs.shape == (3, 1, 4)
    assert top_tokens[0, 0].tolist() == [59, 58, 57, 56]


def test_the_number_chooses_a_token_by_shares_in_the_order_of_ids(letters: Any) -> None:
    probs = {7: 0.5, 3: 0.3, 5: 0.2}
    sampled = [int(sample(letters, logits_of(probs), plain(), r)[0]) for r in (0.0, 0.29, 0.31, 0.49, 0.51, 1 - 1e-16)]
    assert sampled == [3, 3, 5, 5, 7, 7]
    assert float(sample(letters, logits_of(probs), plain(), 0.2)[3]) == pytest.approx(0.3)


def test_draws_follow_the_distribution(letters: Any) -> None:
    numbers = random.Random(1)
    counts = np.zeros(3)
    for _ in range(2000):
        counts[int(sample(letters, logits_of({0: 0.6, 1: 0.3, 2: 0.1}), plain(), numbers.random())[0])] += 1
    np.testing.assert_allclose(counts / 2000, [0.6, 0.3, 0.1], atol=0.03)


@pytest.mark.parametrize(("skew", "expected"), [(0.0, 1), (1.0, 2), (-1.0, 0)])
def test_skew_bends_the_number(letters: Any, skew: float, expected: int) -> None:
    # 0.6 becomes 0.6 ** exp(-1) = 0.83, or 0.6 ** exp(1) = 0.25
    assert int(sample(letters, logits_of({0: 0.4, 1: 0.35, 2: 0.25}), plain(skew=skew), 0.6)[0]) == expected


def test_rows_are_sampled_apart_but_reproducibly(letters: Any) -> None:
    first = sample(letters, torch.zeros(8, 1, WIDTH), plain(), 0.3)[0]
    assert len(set(first.flatten().tolist())) > 3
    assert torch.equal(first, sample(letters, torch.zeros(8, 1, WIDTH), plain(), 0.3)[0])
    assert int(first[0]) == int(sample(letters, torch.zeros(1, 1, WIDTH), plain(), 0.3)[0])


def test_greedy_takes_the_first_of_the_largest(letters: Any) -> None:
    logits = torch.zeros(2, 1, WIDTH)
    logits[0, 0, [9, 20]] = 5.0
    logits[1, 0, [30, 31, 62]] = 5.0
    tokens, _, _, probs, _ = sample(letters, logits, GREEDY)
    assert tokens.tolist() == [[9], [30]]
    assert probs.tolist() == [[1.0], [1.0]]


def test_columns_beyond_the_vocabulary_are_never_sampled(letters: Any) -> None:
    assert int(sample(letters, ramp(), GREEDY)[0]) == SIZE - 1


def test_blocked_tokens_lose_to_all_others_but_not_to_nothing(letters: Any) -> None:
    assert int(sample(letters, ramp(), GREEDY, blocked_tokens=[59, 58])[0]) == 57
    assert int(sample(letters, logits_of({4: 1.0}), GREEDY, blocked_tokens=[4])[0]) == 4


def test_penalties_come_before_bans_before_bias(letters: Any) -> None:
    sequence = torch.tensor([[5]])
    bias = torch.full((WIDTH,), 2.0)
    logits = torch.full((1, 1, WIDTH), 4.0)
    settings = plain(token_repetition_penalty=2.0, token_bias=bias)
    ExLlamaV2Sampler.sample(logits, settings, sequence, 0.5, letters, blocked_tokens=[6])
    assert float(logits[0, 0, 5]) == 4.0 / 2.0 + 2.0
    assert float(logits[0, 0, 6]) == pytest.approx(-1e30)


def test_fewer_candidates_than_asked_for_are_filled_up(letters: Any) -> None:
    _, tokens, probs, _, _ = sample(letters, logits_of({0: 0.7, 2: 0.3}), plain(), return_top_tokens=5)
    assert tokens[0, 0].tolist() == [0, 2, 1, 3, 4]
    assert probs[0, 0].tolist() == pytest.approx([0.7, 0.3, 0, 0, 0])


def test_top_tokens_come_in_order_after_every_step(letters: Any) -> None:
    settings = plain(xtc_probability=0.9, xtc_threshold=0.15, xtc_ignore_tokens=frozenset())
    _, tokens, probs, _, _ = sample(letters, logits_of({0: 0.5, 1: 0.3, 2: 0.2}), settings, return_top_tokens=3)
    assert probs[0, 0].tolist() == sorted(probs[0, 0].tolist(), reverse=True)
    assert tokens[0, 0].tolist() == [2, 0, 1]


def test_healing_admits_what_begins_like_the_token(letters: Any) -> None:
    _, tokens, probs, _, _ = sample(letters, ramp(), plain(), prefix_token=torch.tensor([[0]]), return_top_tokens=4)
    assert tokens[0, 0].tolist() == [53, 52, 0, 1]
    assert probs[0, 0, 3] == 0.0


def test_filters_and_healing_both_hold(letters: Any) -> None:
    arguments = {"prefix_token": torch.tensor([[0]]), "filters": [Fixed({52, 0, 57})]}
    assert int(sample(letters, ramp(), GREEDY, **arguments)[0]) == 52


def test_filters_constrain_the_draw(letters: Any) -> None:
    tokens, _, _, _, end = sample(letters, ramp(), GREEDY, filters=[Fixed([3, 8, 9]), Fixed({8, 3, 11}, [3])])
    assert (int(tokens), end) == (8, False)
    tokens, _, _, _, end = sample(letters, ramp(), GREEDY, filters=[Fixed([3, 8, 9], {8})])
    assert (int(tokens), end) == (9, False)
    tokens, _, _, _, end = sample(letters, ramp(), plain(), 0.1, filters=[Fixed([3, 4], {3, 4}), Fixed(None)])
    assert end is True


class Favouring(ExLlamaV2Filter):
    """Adds to the logit of a token."""

    def begin(self, prefix_str: str | None) -> None: ...

    def feed(self, token: torch.Tensor) -> None: ...

    def can_mask_logits(self) -> bool:
        return True

    def prepare_logit_mask(self) -> bool:
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.index_fill(0, torch.tensor([5]), 20.0)


def test_filters_may_add_to_logits(letters: Any) -> None:
    assert int(sample(letters, ramp(), GREEDY, filters=[Favouring(None, letters)])[0]) == 5
    allowed = [Favouring(None, letters), Fixed({3, 4})]
    assert int(sample(letters, ramp(), GREEDY, filters=allowed)[0]) == 4


def test_the_only_allowed_token_is_certain_whatever_bans_say(letters: Any) -> None:
    settings = plain()
    settings.disallow_tokens(letters, [7])
    tokens, top, _, probs, end = sample(letters, ramp(), settings, blocked_tokens=[7], filters=[Fixed({7}, {7})])
    assert (tokens.tolist(), probs.tolist(), end) == ([[7]], [[1.0]], True)
    assert top.is_meta


def test_the_end_is_preferred_where_filters_allow_it(letters: Any) -> None:
    assert int(sample(letters, ramp(), plain(), 0.0, filters=[Fixed({1, EOS})], filter_prefer_eos=True)[0]) == EOS
    assert int(sample(letters, ramp(), plain(), filters=[Fixed({1, 2})], filter_prefer_eos=True)[0]) in (1, 2)


def test_filters_that_allow_nothing_are_named(letters: Any) -> None:
    with pytest.raises(DeadEnd, match="Fixed"):
        sample(letters, ramp(), plain(), filters=[Fixed(set())])
    with pytest.raises(FilterError, match="int"):
        sample(letters, ramp(), plain(), filters=[5])
    assert int(sample(letters, ramp(), GREEDY)[0]) == SIZE - 1


def test_filters_are_for_one_sequence_or_a_guided_pair(letters: Any) -> None:
    with pytest.raises(GenerationError, match="the batch has 3 rows"):
        sample(letters, ramp(3), plain(), filters=[Fixed({1})])
    assert sample(letters, ramp(2), plain(cfg_scale=1.5), filters=[Fixed({1})])[0].tolist() == [[1]]


@pytest.mark.parametrize("settings", [GREEDY, plain()])
def test_logits_that_leave_nothing_are_an_error(letters: Any, settings: Any) -> None:
    for logits in (torch.full((1, 1, WIDTH), -torch.inf), torch.full((1, 1, WIDTH), torch.nan)):
        with pytest.raises(GenerationError, match="no token can be sampled"):
            sample(letters, logits, settings)


def test_settings_are_read_at_every_step(letters: Any) -> None:
    settings = plain()
    sample(letters, ramp(), settings)
    settings.top_k = 1
    assert int(sample(letters, ramp(), settings, 0.0)[0]) == int(sample(letters, ramp(), settings, 0.99)[0]) == SIZE - 1


def test_mirostat_keeps_a_state_for_each_row(letters: Any) -> None:
    settings = plain(mirostat=True)
    sample(letters, ramp(3), settings)
    assert settings.mirostat_mu is not None
    assert len(settings.mirostat_mu) == 3

"""Every step of sampling against a statement of its formula in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from constrain.errors import GenerationError
from constrain.generator import ExLlamaV2Sampler

SIZE, WIDTH = 60, 64
OFF: dict[str, Any] = {"temperature": 1.0, "token_repetition_penalty": 1.0, "top_k": 0, "top_p": 0.0}
EMPTY = torch.empty((1, 0), dtype=torch.long)
Floats = Any


def random_logits(seed: int = 0, scale: float = 2.0) -> Floats:
    return np.random.default_rng(seed).normal(0, scale, WIDTH)


def softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max())
    return e / e.sum()


def distribution(tokenizer: Any, logits: Floats, sequence: list[int] | None = None, **settings: Any) -> Floats:
    """The final probabilities of all ids, as the sampler returns them."""
    _, tokens, probs, _, _ = ExLlamaV2Sampler.sample(
        torch.tensor(logits, dtype=torch.float32).reshape(1, 1, WIDTH),
        ExLlamaV2Sampler.Settings(**{**OFF, **settings}),
        EMPTY if sequence is None else torch.tensor([sequence]),
        0.5,
        tokenizer,
        return_top_tokens=WIDTH,
    )
    result = np.zeros(WIDTH)
    result[tokens[0, 0].numpy()] = probs[0, 0].numpy()
    return result


def plain(logits: Floats, temperature: float = 1.0) -> Floats:
    """Softmax over the ids that have a token."""
    p = np.zeros(WIDTH)
    p[:SIZE] = softmax(logits[:SIZE] / temperature)
    return p


def kept(p: Floats, condition: Callable[[Floats], Floats]) -> Floats:
    """The candidates that meet a condition, and the most likely one, renormalised."""
    keep = condition(p)
    keep[p.argmax()] = True
    return p * keep / (p * keep).sum()


def close(actual: Floats, expected: Floats) -> None:
    np.testing.assert_allclose(actual, expected, atol=2e-6)


def test_neutral_settings_leave_the_softmax_of_the_vocabulary(letters: Any) -> None:
    close(distribution(letters, random_logits()), plain(random_logits()))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature(letters: Any, temperature: float) -> None:
    close(distribution(letters, random_logits(), temperature=temperature), plain(random_logits(), temperature))


def test_temperature_near_zero_is_greedy(letters: Any) -> None:
    expected = np.eye(WIDTH)[random_logits()[:SIZE].argmax()]
    close(distribution(letters, random_logits(), temperature=0.009), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_smoothing(letters: Any, temperature: float) -> None:
    x = random_logits()[:SIZE]
    expected = np.zeros(WIDTH)
    expected[:SIZE] = softmax(-0.4 * (x - x.max()) ** 2 / temperature)
    close(distribution(letters, random_logits(), smoothing_factor=0.4, temperature=temperature), expected)


@pytest.mark.parametrize("k", [1, 5, 63, 64, 100])
def test_top_k(letters: Any, k: int) -> None:
    p = plain(random_logits())
    close(distribution(letters, random_logits(), top_k=k), kept(p, lambda p: p >= np.sort(p)[-min(k, WIDTH)]))


@pytest.mark.parametrize("threshold", [0.05, 0.5, 0.9, 0.999])
def test_top_p(letters: Any, threshold: float) -> None:
    def smallest_set(p: Floats) -> Floats:
        keep, total = np.zeros(WIDTH, dtype=bool), 0.0
        for i in np.argsort(-p):
            keep[i] = True
            total += p[i]
            if total >= threshold:
                return keep
        return keep

    close(distribution(letters, random_logits(), top_p=threshold), kept(plain(random_logits()), smallest_set))


@pytest.mark.parametrize("factor", [0.1, 0.9])
def test_top_a(letters: Any, factor: float) -> None:
    expected = kept(plain(random_logits()), lambda p: p >= factor * p.max() ** 2)
    close(distribution(letters, random_logits(), top_a=factor), expected)


@pytest.mark.parametrize("factor", [0.05, 0.5])
def test_min_p(letters: Any, factor: float) -> None:
    expected = kept(plain(random_logits()), lambda p: p >= factor * p.max())
    close(distribution(letters, random_logits(), min_p=factor), expected)


@pytest.mark.parametrize("threshold", [0.2, 0.9, 0.99])
def test_tail_free(letters: Any, threshold: float) -> None:
    p = plain(random_logits())[:SIZE]
    order = np.argsort(-p)
    second = np.abs(np.diff(p[order], n=2))
    count = 1 + int((np.cumsum(second / second.sum()) <= threshold).sum())
    expected = np.zeros(WIDTH)
    expected[order[:count]] = p[order[:count]] / p[order[:count]].sum()
    close(distribution(letters, random_logits(), tfs=threshold), expected)


@pytest.mark.parametrize("logits", [[1.0, 0.5], [1.0, 1.0, 1.0]])
def test_tail_free_without_a_curve_keeps_all(letters: Any, logits: list[float]) -> None:
    x = np.full(WIDTH, -np.inf)
    x[: len(logits)] = logits
    close(distribution(letters, x, tfs=0.5), np.pad(softmax(np.array(logits)), (0, WIDTH - len(logits))))


@pytest.mark.parametrize("threshold", [0.2, 0.7, 0.95])
def test_typical(letters: Any, threshold: float) -> None:
    p = plain(random_logits())
    q = p[:SIZE]
    distance = np.abs(-np.log(q) - -(q * np.log(q)).sum())
    keep, total = np.zeros(WIDTH, dtype=bool), 0.0
    for i in np.argsort(distance):
        keep[i] = True
        total += q[i]
        if total >= threshold:
            break
    close(distribution(letters, random_logits(), typical=threshold), p * keep / (p * keep).sum())


def test_typical_may_leave_out_the_most_likely(letters: Any) -> None:
    x = np.full(WIDTH, -np.inf)
    x[:21] = [np.log(0.4), *[np.log(0.03)] * 20]
    assert distribution(letters, x, typical=0.5)[0] == 0.0


@pytest.mark.parametrize("truncation", ["top_p", "min_p", "tfs", "typical"])
@pytest.mark.parametrize("off", [0, 1.0, 1.5])
def test_truncations_are_off_at_0_and_from_1(letters: Any, truncation: str, off: float) -> None:
    close(distribution(letters, random_logits(), **{truncation: off}), plain(random_logits()))


def test_truncations_follow_each_other_in_order_each_on_the_rest(letters: Any) -> None:
    together = {"top_k": 30, "top_p": 0.95, "top_a": 0.3, "min_p": 0.05, "tfs": 0.97, "typical": 0.9}
    p = plain(random_logits())
    for setting, value in together.items():
        logits = np.where(p > 0, np.log(np.maximum(p, 1e-30)), -np.inf)
        p = distribution(letters, logits, **{setting: value})
    close(distribution(letters, random_logits(), **together), p)
    assert 1 < (p > 0).sum() < 30


def test_late_temperature(letters: Any) -> None:
    p = kept(plain(random_logits()), lambda p: p >= 0.1 * p.max())
    expected = p ** (1 / 0.5) / (p ** (1 / 0.5)).sum()
    close(distribution(letters, random_logits(), temperature=0.5, temperature_last=True, min_p=0.1), expected)


def test_late_temperature_of_zero_is_greedy(letters: Any) -> None:
    expected = np.eye(WIDTH)[random_logits()[:SIZE].argmax()]
    close(distribution(letters, random_logits(), temperature=0.0, temperature_last=True), expected)


@pytest.mark.parametrize("exponent", [1.0, 0.5])
def test_dynamic_temperature_follows_the_entropy_after_the_early_one(letters: Any, exponent: float) -> None:
    p = plain(random_logits(), 0.7)[:SIZE]
    share = -(p * np.log(p)).sum() / np.log(SIZE)
    late = 0.5 + (1.5 - 0.5) * share**exponent
    expected = np.pad(p ** (1 / late) / (p ** (1 / late)).sum(), (0, WIDTH - SIZE))
    settings = {"temperature": 0.7, "min_temp": 0.5, "max_temp": 1.5, "temp_exponent": exponent}
    close(distribution(letters, random_logits(), **settings), expected)


def test_dynamic_temperature_needs_a_range(letters: Any) -> None:
    close(distribution(letters, random_logits(), min_temp=0.5, max_temp=0.5), plain(random_logits()))


XTC = np.full(WIDTH, -np.inf)
XTC[:6] = np.log([0.05, 0.4, 0.25, 0.15, 0.1, 0.05])


@pytest.mark.parametrize(
    ("protected", "removed"), [((), [1, 2, 3]), ((1,), [2, 3]), ((1, 2, 3), []), ((4,), [1, 2]), ((1, 2, 3, 4), [])]
)
def test_xtc_in_expectation(letters: Any, protected: tuple[int, ...], removed: list[int]) -> None:
    p = np.exp(XTC)
    share = p[removed].sum()
    expected = p * (1 + 0.5 * share / (1 - share))
    expected[removed] = p[removed] * (1 - 0.5)
    settings = {"xtc_probability": 0.5, "xtc_threshold": 0.09, "xtc_ignore_tokens": frozenset(protected)}
    close(distribution(letters, XTC, **settings), expected)


def test_xtc_protects_line_breaks_and_special_tokens(letters: Any) -> None:
    assert ExLlamaV2Sampler.get_default_xtc_mask_tokens(letters) == frozenset({55, 58, 59})
    mask = ExLlamaV2Sampler.get_xtc_mask_tensor(letters, WIDTH, [55, 58, 59])
    assert torch.nonzero(~mask).flatten().tolist() == [55, 58, 59]
    x = np.full(WIDTH, -np.inf)
    x[[55, 0, 1]] = np.log([0.5, 0.3, 0.2])
    p = distribution(letters, x, xtc_probability=1.0, xtc_threshold=0.1)
    close(p[[55, 0, 1]], [0.5 / 0.7, 0.0, 0.2 / 0.7])


def penalised(x: Floats, sequence: list[int], s: dict[str, float]) -> Floats:
    """As the rule is told: walk from the end, in full for ``range`` tokens, fading over ``decay`` more."""
    x, seen = x.copy(), set()
    full, decay = int(s.get("range", -1)), int(s.get("decay", 0))
    full = len(sequence) if full < 0 else full
    for distance, token in enumerate(reversed(sequence)):
        weight = 1.0 if distance < full else 1.0 - (distance - full) / decay if distance < full + decay else 0.0
        if weight == 0.0:
            break
        if token not in seen:
            factor = 1 + (s.get("repetition", 1.0) - 1) * weight
            x[token] = x[token] / factor if x[token] > 0 else x[token] * factor
            x[token] -= s.get("presence", 0.0) * weight
        x[token] -= s.get("frequency", 0.0) * weight
        seen.add(token)
    return x


@pytest.mark.parametrize(
    "s",
    [
        {"repetition": 1.3},
        {"repetition": 0.8},
        {"presence": 0.7},
        {"frequency": 0.3},
        {"repetition": 1.3, "presence": 0.7, "frequency": -0.3},
        {"repetition": 1.3, "frequency": 0.3, "range": 5},
        {"repetition": 1.3, "presence": 0.7, "frequency": 0.3, "range": 5, "decay": 4},
        {"repetition": 1.3, "presence": 0.7, "frequency": 0.3, "range": 0, "decay": 10},
        {"repetition": 1.3, "range": 10, "decay": 40},
        {"repetition": 1.3, "range": 0},
    ],
)
def test_penalties(letters: Any, s: dict[str, float]) -> None:
    sequence = [3, 4, 5, 3, 6, 7, 7, 8, 3, 9, 10, 9]
    names = {"repetition": "token_repetition_penalty", "range": "token_repetition_range"}
    names |= {"decay": "token_repetition_decay", "presence": "token_presence_penalty"}
    names |= {"frequency": "token_frequency_penalty"}
    actual = distribution(letters, random_logits(), sequence, **{names[key]: value for key, value in s.items()})
    close(actual, plain(penalised(random_logits(), sequence, s)))


def test_penalties_pass_over_ids_beyond_the_logits(letters: Any) -> None:
    sequence = [1_000_000_000, 3, -1, 1_000_000_001]
    actual = distribution(letters, random_logits(), sequence, token_repetition_penalty=1.5)
    close(actual, plain(penalised(random_logits(), [3], {"repetition": 1.5})))


def dry(x: Floats, sequence: list[int], breakers: set[int], s: dict[str, Any]) -> Floats:
    """As the rule is told: the longest end of the sequence that occurred before, and what followed it each time."""
    x = x.copy()
    for length in range(min(s["dry_max_ngram"], len(sequence) - 1), s["dry_allowed_length"] - 1, -1):
        end = sequence[-length:]
        following = [
            sequence[i + length]
            for i in range(len(sequence) - length)
            if sequence[i : i + length] == end and not breakers & {*end, sequence[i + length]}
        ]
        if following:
            for token in following:
                x[token] -= s["dry_multiplier"] * s["dry_base"] ** (length - s["dry_allowed_length"])
            return x
    return x


@pytest.mark.parametrize("seed", range(12))
def test_dry(letters: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    sequence = random.integers(0, 4, 40).tolist()
    s = {
        "dry_multiplier": 0.8,
        "dry_base": 1.5,
        "dry_allowed_length": int(random.integers(1, 4)),
        "dry_max_ngram": int(random.integers(3, 8)),
        "dry_sequence_breakers": {3} if seed % 3 == 0 else {57},
    }
    breakers = s["dry_sequence_breakers"]
    assert isinstance(breakers, set)
    expected = dry(random_logits(), sequence, breakers, s)
    close(distribution(letters, random_logits(), sequence, **s), plain(expected))


def test_dry_looks_back_no_further_than_its_range(letters: Any) -> None:
    sequence = [0, 1, 2, 9, 9, 9, 9, 0, 1]
    far = {"dry_multiplier": 1.0, "dry_allowed_length": 2, "dry_max_ngram": 3, "dry_sequence_breakers": set[int]()}
    assert distribution(letters, random_logits(), sequence, **far)[2] < plain(random_logits())[2]
    close(distribution(letters, random_logits(), sequence, dry_range=4, **far), plain(random_logits()))


def test_dry_refuses_a_range_within_its_longest_ngram(letters: Any) -> None:
    with pytest.raises(GenerationError, match="dry_range=20 must be 0 or more than dry_max_ngram=20"):
        distribution(letters, random_logits(), [1, 2, 3], dry_multiplier=1.0, dry_range=20)


def test_dry_breaks_at_punctuation_and_special_tokens(letters: Any) -> None:
    expected = {54, 55, 58, 59}
    assert ExLlamaV2Sampler.get_dry_default_sequence_breaker_tokens(letters) == expected
    sequence = [1, 54, 2, 1, 54]
    settings = ExLlamaV2Sampler.Settings(**OFF, dry_multiplier=1.0)
    logits = torch.zeros((1, 1, WIDTH))
    ExLlamaV2Sampler.apply_dry(settings, letters, torch.tensor([sequence]), logits)
    assert not logits.any()
    assert settings.dry_sequence_breakers == expected


def test_bias_is_added(letters: Any) -> None:
    bias = torch.linspace(-3, 3, WIDTH)
    actual = distribution(letters, random_logits(), token_bias=bias)
    close(actual, plain(random_logits() + bias.numpy()))


def test_a_bias_of_the_wrong_length_is_refused(letters: Any) -> None:
    with pytest.raises(GenerationError, match=r"token_bias must have shape \(64,\), not \(60,\)"):
        distribution(letters, random_logits(), token_bias=torch.zeros(60))


def test_guidance_mixes_two_rows(letters: Any) -> None:
    x, y = random_logits(1), random_logits(2)
    logits = torch.tensor(np.stack([x, y]), dtype=torch.float32).unsqueeze(1)
    settings = ExLlamaV2Sampler.Settings(**OFF, cfg_scale=1.7)
    tokens, top_tokens, top_probs, _, _ = ExLlamaV2Sampler.sample(
        logits.clone(), settings, EMPTY, 0.3, letters, return_top_tokens=5
    )
    expected = plain(1.7 * np.log(softmax(x)) + (1 - 1.7) * np.log(softmax(y)))
    assert tokens.shape == (1, 1)
    assert top_tokens[0, 0].tolist() == np.argsort(-expected)[:5].tolist()
    close(top_probs[0, 0].numpy(), np.sort(expected)[::-1][:5])
    with pytest.raises(GenerationError, match="cfg_scale needs a batch of 2"):
        ExLlamaV2Sampler.sample(logits[:1], settings, EMPTY, 0.3, letters)


def test_mirostat(letters: Any) -> None:
    settings = ExLlamaV2Sampler.Settings(**OFF, mirostat=True, mirostat_tau=2.0, mirostat_eta=0.3)
    mu = 4.0
    for step in range(6):
        logits = random_logits(step)
        expected = kept(plain(logits), lambda p, mu=mu: p >= 2.0**-mu)  # type: ignore[misc]
        token, tokens, probs, prob, _ = ExLlamaV2Sampler.sample(
            torch.tensor(logits, dtype=torch.float32).reshape(1, 1, WIDTH),
            settings,
            EMPTY,
            0.37,
            letters,
            return_top_tokens=WIDTH,
        )
        result = np.zeros(WIDTH)
        result[tokens[0, 0].numpy()] = probs[0, 0].numpy()
        close(result, expected)
        close(float(prob), expected[int(token)])
        mu += 0.3 * (2.0 + np.log2(expected[int(token)]))
        assert settings.mirostat_mu == pytest.approx([mu], abs=1e-5)

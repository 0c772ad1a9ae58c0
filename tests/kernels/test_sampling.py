"""Sampling and penalties: the reference against its definition, and on a GPU the kernels against the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from constrain.errors import BitmaskError
from constrain.kernels import (
    ChosenRows,
    PenaltyParameters,
    PenaltyScratch,
    SamplingTensors,
    StepTokens,
    TokenPages,
    TopTokens,
    apply_bitmask,
    enter_tokens,
    penalise,
    penalise_row,
    philox_uniform,
    sample,
)
from constrain.kernels.sampling import sample_torch

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.005},
    {"temperature": 0.3},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 50, "temperature": 0.8},
    {"top_k": 10_000_000},
    {"top_p": 0.1},
    {"top_p": 0.9},
    {"top_p": 0.9999},
    {"top_p": 1.0},
    {"min_p": 0.02},
    {"min_p": 0.9},
    {"top_k": 50, "top_p": 0.8, "temperature": 0.8},
    {"top_k": 3, "top_p": 0.5, "min_p": 0.2, "temperature": 1.5},
    {"top_p": 0.95, "min_p": 0.05},
    {"top_k": 300, "min_p": 0.01, "temperature": 1.2},
    {"top_k": 2000, "top_p": 0.99, "temperature": 1.7},
    {"top_p": 0.7, "temperature": 0.2},
]


def plain_tensors(rows: int, settings: dict[str, Any], seed: int = 0) -> SamplingTensors:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 0.0, "min_p": 0.0} | settings
    return SamplingTensors(
        torch.full((rows,), values["temperature"]),
        torch.full((rows,), values["top_k"], dtype=torch.int),
        torch.full((rows,), values["top_p"]),
        torch.full((rows,), values["min_p"]),
        torch.arange(rows) * 7919 + seed,
        torch.full((rows,), 11, dtype=torch.int),
    )


def each(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of a dataclass with all of its tensors changed."""
    return replace(values, **{name: change(x) for name, x in vars(values).items() if x is not None})


def on_device(values: Any, device: torch.device) -> Any:
    return each(values, lambda x: x.to(device))


def truncated_probabilities(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> torch.Tensor:
    """Probabilities of the tokens of one row ``[width]`` that are kept, float64 ``[width]``, zero for the others."""
    values, ids = logits.double().masked_fill(~logits.isfinite(), -torch.inf).sort(descending=True, stable=True)
    if temperature < 0.01 or top_k == 1:
        return torch.nn.functional.one_hot(ids[0], len(logits)).double()
    probs = (values / temperature).softmax(0)
    if 0 < top_k < len(probs):
        probs[top_k:] = 0
    if 0 < top_p < 1:
        probs[probs.cumsum(0) - probs >= top_p * probs.sum()] = 0
    if 0 < min_p < 1:
        probs[probs < min_p * probs[0]] = 0
    return torch.zeros_like(probs).index_copy_(0, ids, probs / probs.sum())


def top_probabilities(logits: torch.Tensor, values: SamplingTensors) -> torch.Tensor:
    """Probabilities of all tokens as :func:`sample` returns them, float32 ``[rows, width]``."""
    rows, width = logits.shape
    top = TopTokens(torch.zeros(rows, width).long(), torch.zeros(rows, width), torch.ones(rows).int())
    sample(logits, values, top=top)
    return torch.zeros(rows, width).scatter(1, top.ids, top.probabilities)


def test_philox_gives_the_published_numbers() -> None:
    zero = torch.zeros(1, dtype=torch.long)
    assert philox_uniform(zero, zero.int()).tolist() == [0xE169C58D_6627E8D5 / 2**64]


def philox(seed: int, position: int) -> int:
    """Compute Philox 4x32-10 literally, with integers of any size."""
    word = 0xFFFFFFFF
    counter, key = [position & word, position >> 32 & word, 0, 0], [seed & word, seed >> 32 & word]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & word, a >> 32 ^ counter[3] ^ key[1], a & word]
        key = [key[0] + 0x9E3779B9 & word, key[1] + 0xBB67AE85 & word]
    return counter[1] << 32 | counter[0]


def philox_arguments() -> tuple[torch.Tensor, torch.Tensor]:
    seeds = torch.randint(-(2**63), 2**63 - 1, (500,), generator=torch.Generator().manual_seed(3))
    positions = torch.randint(-(2**31), 2**31, (500,), generator=torch.Generator().manual_seed(4)).int()
    seeds[:3] = torch.tensor([0, -1, 2**63 - 1])
    return seeds, positions


def test_random_numbers_are_those_of_philox() -> None:
    seeds, positions = philox_arguments()
    expected = [philox(*each) / 2**64 for each in zip(seeds.tolist(), positions.tolist(), strict=True)]
    assert philox_uniform(seeds, positions).tolist() == expected


@pytest.mark.gpu
def test_random_numbers_on_a_gpu(cuda: torch.device) -> None:
    seeds, positions = philox_arguments()
    actual = philox_uniform(seeds.to(cuda), positions.to(cuda))
    assert torch.equal(actual.cpu(), philox_uniform(seeds, positions))


def test_truncations() -> None:
    logits = torch.cat((torch.tensor([0.5, 0.1, 0.2, 0.2]).log(), torch.tensor([-torch.inf, torch.nan])))
    expected: list[tuple[dict[str, Any], list[float]]] = [
        ({"top_k": 2}, [5 / 7, 0, 2 / 7, 0]),  # of equal logits, the first is more likely
        ({"top_k": 3}, [5 / 9, 0, 2 / 9, 2 / 9]),
        ({"top_p": 0.6}, [5 / 7, 0, 2 / 7, 0]),
        ({"top_p": 0.71}, [5 / 9, 0, 2 / 9, 2 / 9]),
        ({"min_p": 0.3}, [5 / 9, 0, 2 / 9, 2 / 9]),
        ({"top_k": 2, "top_p": 0.72}, [5 / 7, 0, 2 / 7, 0]),
        ({"top_k": 2, "top_p": 0.7}, [1, 0, 0, 0]),
        ({"temperature": 0.5}, [25 / 34, 1 / 34, 4 / 34, 4 / 34]),
        ({"temperature": 0.001}, [1, 0, 0, 0]),
    ]
    for settings, probs in expected:
        values = {"temperature": 1.0, "top_k": 0, "top_p": 0.0, "min_p": 0.0} | settings
        kept = truncated_probabilities(logits, **values)
        assert torch.allclose(kept, torch.tensor([*probs, 0, 0], dtype=torch.double), atol=1e-6), settings
        assert torch.allclose(top_probabilities(logits[None], plain_tensors(1, settings))[0].double(), kept)


def test_tokens_follow_the_probabilities_and_the_seeds() -> None:
    logits = torch.randn(9, generator=torch.Generator().manual_seed(0)).expand(4000, -1)
    tokens, probs = sample(logits, plain_tensors(4000, {"top_k": 4}))
    kept = truncated_probabilities(logits[0], 1.0, 4, 0.0, 0.0)
    shares = tokens.bincount(minlength=9) / 4000
    assert torch.allclose(shares.double(), kept, atol=0.03)
    assert torch.allclose(probs.double(), kept[tokens])
    again, _ = sample(logits[:100], plain_tensors(100, {"top_k": 4}))
    assert torch.equal(again, tokens[:100])
    assert not torch.equal(sample(logits, plain_tensors(4000, {"top_k": 4}, seed=1))[0], tokens)


def test_a_row_without_a_logit() -> None:
    tokens, probs = sample(torch.full((1, 5), -torch.inf), plain_tensors(1, {}))
    assert tokens.tolist() == [-1] and probs.tolist() == [0.0]


def masks(width: int) -> torch.Tensor:
    """Rows of bits: of no token, of one, of few that are next to each other, of some, of half, of all."""
    random = torch.Generator().manual_seed(width)
    allowed = torch.rand(6, width, generator=random) < torch.tensor([0, 0, 0, 0.01, 0.5, 1]).unsqueeze(1)
    allowed[1, width // 2], allowed[2, width // 3 : width // 3 + 70] = True, True
    bits = np.packbits(allowed.numpy(), axis=1, bitorder="little")
    return torch.from_numpy(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4))).view(np.int32))


CHOSEN = torch.tensor([4, -1, 3, 0, 2, 1, 5, 4], dtype=torch.int)


def test_sampling_under_masks() -> None:
    width, random = 1003, torch.Generator().manual_seed(4)
    logits = torch.randn(8, width, generator=random)
    masked = logits.clone()
    apply_bitmask(masked, masks(width), CHOSEN)
    before = logits.clone()
    tokens, probs = sample(logits, plain_tensors(8, {"top_k": 9}), allowed=ChosenRows(masks(width), CHOSEN))
    assert torch.equal(logits, before)
    assert all(map(torch.equal, (tokens, probs), sample(masked, plain_tensors(8, {"top_k": 9}))))
    assert tokens[3] == -1 and tokens[5] == width // 2 and probs[5] == 1.0
    by_row = sample(logits[:6], plain_tensors(6, {}), allowed=ChosenRows(masks(width)))[0]
    assert by_row[0] == -1 and by_row[1] == width // 2


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_few_allowed_tokens_are_sampled_as_among_all(settings: dict[str, Any]) -> None:
    """Only as many candidates are sorted as masks allow; equal logits count in the order of ids all the same."""
    width, chosen = 1003, torch.tensor([3, 0, 2, 1, 3, 2], dtype=torch.int)
    logits = torch.randn(6, width, generator=torch.Generator().manual_seed(5)).mul(4).round() / 4
    masked = logits.clone()
    apply_bitmask(masked, masks(width), chosen)
    values = plain_tensors(6, settings)
    tokens, probs = sample(logits, values, allowed=ChosenRows(masks(width), chosen))
    expected, chances = sample(masked, values)
    assert torch.equal(tokens, expected) and torch.allclose(probs, chances)
    top, expected_top = (TopTokens(torch.zeros(6, 9).long(), torch.zeros(6, 9), torch.full((6,), 9)) for _ in range(2))
    sample(logits, values, allowed=ChosenRows(masks(width), chosen), top=top)
    sample(masked, values, top=expected_top)
    assert torch.equal(top.ids, expected_top.ids) and torch.allclose(top.probabilities, expected_top.probabilities)


def test_masks_have_to_fit() -> None:
    with pytest.raises(BitmaskError, match=r"bits must be int32 \[2, 4\]"):
        sample(torch.zeros(2, 100), plain_tensors(2, {}), allowed=ChosenRows(torch.zeros(2, 3, dtype=torch.int)))


PENALTIES = [
    (1.2, -1, 0, 0.0, 0.0, 0),
    (1.0, -1, 0, 0.3, 0.5, 3),
    (1.5, 20, 40, 0.1, 0.2, 60),
    (1.1, 0, 64, 0.0, 0.3, 9),
]


def penalty_parameters(rows: list[tuple[float, int, int, float, float, int]]) -> PenaltyParameters:
    repetition, ranges, decays, frequency, presence, starts = zip(*rows, strict=True)
    return PenaltyParameters(
        torch.tensor(repetition),
        torch.tensor(ranges, dtype=torch.int),
        torch.tensor(decays, dtype=torch.int),
        torch.tensor(frequency),
        torch.tensor(presence),
        torch.tensor(starts, dtype=torch.int),
    )


def sequences(width: int) -> tuple[torch.Tensor, TokenPages, torch.Tensor]:
    random = torch.Generator().manual_seed(width)
    ids = torch.randint(-2, width + 2, (24, 16), generator=random, dtype=torch.int)
    ids[:, ::3] = ids[:, :1].abs() % width
    table = torch.randperm(24, generator=random).view(4, 6).int()
    lengths = torch.tensor([90, 7, 81, 60], dtype=torch.int)
    return torch.randn(4, width, generator=random) * 4, TokenPages(ids, table), lengths


def test_penalties_of_every_row() -> None:
    logits, text, lengths = sequences(50)
    expected = logits.clone()
    pages = text.tokens.long()[text.block_table.long()]
    for row, row_pages, length, values in zip(expected, pages, lengths.tolist(), PENALTIES, strict=True):
        penalise_row(row, torch.cat(list(row_pages))[:length], *values)
    penalise(logits, text, lengths, penalty_parameters(PENALTIES))
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("start", [0, 1, 3, 4, 6, 9])
def test_first_tokens_count_for_repetition_only(start: int) -> None:
    ids = torch.tensor([1, 2, 1, 3, 2, 1])
    actual, expected = torch.zeros(4), torch.zeros(4)
    penalise_row(actual, ids, 1.0, -1, 0, 0.25, 1.0, start)
    for idx in range(4):
        count = ids[start:].tolist().count(idx)
        expected[idx] = -0.25 * count - (count > 0)
    torch.testing.assert_close(actual, expected)
    actual, expected = torch.ones(4), torch.ones(4)
    penalise_row(actual, ids, 2.0, -1, 0, 0.0, 0.0, start)
    penalise_row(expected, ids, 2.0, -1, 0, 0.0, 0.0)
    torch.testing.assert_close(actual, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [50, 128_256])
def test_penalties_on_a_gpu(width: int, cuda: torch.device) -> None:
    logits, text, lengths = sequences(width)
    values = penalty_parameters(PENALTIES)
    scratch = PenaltyScratch()
    for _ in range(2):  # the second time with the scratch that the first has left
        actual, expected = logits.to(cuda), logits.clone()
        penalise(expected, text, lengths, values)
        penalise(actual, on_device(text, cuda), lengths.to(cuda), on_device(values, cuda), scratch)
        torch.testing.assert_close(actual.cpu(), expected, atol=1e-5, rtol=1e-5)


def step_tokens(device: torch.device) -> tuple[StepTokens, TokenPages, torch.Tensor]:
    given = torch.tensor([7, ~2, 9, ~0, 5], dtype=torch.int, device=device)
    past = torch.tensor([0, 17, -1, 16, 31], dtype=torch.int, device=device)
    out = torch.full((2, 5), -7, dtype=torch.int, device=device)
    table = torch.tensor([[3, 0], [1, 4], [0, 0], [2, 5], [6, 7]], dtype=torch.int, device=device)
    text = TokenPages(torch.zeros(8, 16, dtype=torch.int, device=device), table)
    return StepTokens(given, past, *out), text, torch.tensor([-1, 30, 40], device=device)


def check_step_tokens(device: torch.device) -> None:
    step, text, sampled = step_tokens(device)
    enter_tokens(step, sampled, text)
    assert step.ids.tolist() == [7, 40, 0, 0, 5]  # of an idle row, and of one without a token, 0
    assert step.lengths.tolist() == [1, 18, 0, 17, 32]
    written = text.tokens.nonzero().tolist()
    assert [(page, slot, int(text.tokens[page, slot])) for page, slot in written] == [(3, 0, 7), (4, 1, 40), (7, 15, 5)]
    # A second call continues with sampled tokens.
    assert step.given.tolist() == [~0, ~1, 9, ~3, ~4] and step.past.tolist() == [1, 18, -1, 17, 32]


def test_tokens_of_a_step() -> None:
    check_step_tokens(torch.device("cpu"))


@pytest.mark.gpu
def test_tokens_of_a_step_on_a_gpu(cuda: torch.device) -> None:
    check_step_tokens(cuda)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sampling_on_a_gpu(settings: dict[str, Any], dtype: torch.dtype, cuda: torch.device) -> None:
    random = torch.Generator().manual_seed(1)
    # Rounded to bfloat16, many logits are equal.
    logits = (torch.randn(24, 32_003, generator=random) * 2.5).to(dtype).float()
    logits[:, ::7] = -torch.inf
    logits[0, 1:], logits[1] = -torch.inf, 2.0
    values = plain_tensors(24, settings)
    expected, probs = sample_torch(logits, values)
    tokens, actual = (x.cpu() for x in sample(logits.to(cuda), on_device(values, cuda)))
    # A sum that all but equals its bound, or a random number that all but equals a sum, may fall to either side.
    assert int((tokens != expected).sum()) <= 1
    same = tokens == expected
    torch.testing.assert_close(actual[same], probs[same], atol=1e-6, rtol=2e-3)
    alone, _ = sample(logits[5:7].to(cuda), on_device(each(values, lambda x: x[5:7]), cuda))
    assert torch.equal(alone.cpu(), tokens[5:7])


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("spread", [0.0, 0.02, 3.0])
def test_a_row_does_not_depend_on_the_number_of_rows(
    settings: dict[str, Any], spread: float, cuda: torch.device
) -> None:
    """Fewer rows have more blocks each; logits of little spread exceed the list of tokens that may be sampled."""
    logits = (torch.randn(140, 50_257, generator=torch.Generator().manual_seed(4)) * spread).to(cuda)
    values = on_device(plain_tensors(140, settings), cuda)
    tokens, probabilities = sample(logits, values)
    for count in 1, 12, 24, 40, 100:
        part = sample(logits[:count], on_device(each(values, lambda x, count=count: x[:count]), cuda))
        assert torch.equal(part[0], tokens[:count])
        assert torch.equal(part[1], probabilities[:count])


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("width", [33, 32_003, 128_256])
def test_sampling_under_masks_on_a_gpu(settings: dict[str, Any], width: int, cuda: torch.device) -> None:
    logits = torch.randn(8, width, generator=torch.Generator().manual_seed(5)) * 2.5
    bits, values = masks(width), on_device(plain_tensors(8, settings), cuda)
    masked = logits.to(cuda)
    apply_bitmask(masked, bits.to(cuda), CHOSEN.to(cuda))
    expected = sample(masked, values)
    # Logits of excluded tokens are not read.
    poisoned = logits.masked_fill(masked.cpu() == -torch.inf, 1e30)
    actual = sample(poisoned.to(cuda), values, allowed=ChosenRows(bits.to(cuda), CHOSEN.to(cuda)))
    assert all(map(torch.equal, actual, expected))


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_million_tokens(settings: dict[str, Any], cuda: torch.device) -> None:
    """Pearson's chi-square statistic, for which its normal approximation (Wilson and Hilferty 1931) is close enough."""
    logits = torch.randn(3000, generator=torch.Generator().manual_seed(2)) * 2
    count = 1_000_000
    counts = torch.zeros(3000, dtype=torch.long)
    for seed in range(10):
        rows = logits.to(cuda).expand(count // 10, -1)
        tokens, _ = sample(rows, on_device(plain_tensors(count // 10, settings, seed << 40), cuda))
        counts += tokens.cpu().bincount(minlength=3000)
    values = {"temperature": 1.0, "top_k": 0, "top_p": 0.0, "min_p": 0.0} | settings
    expected = truncated_probabilities(logits, **values) * count
    assert not counts[expected == 0].any()
    often = expected >= 5
    seen = torch.cat((counts[often], counts[~often].sum().view(1))).double()
    wanted = torch.cat((expected[often], expected[~often].sum().view(1)))
    statistic = float(((seen - wanted).square() / wanted.clamp(min=1e-9)).sum())
    freedom = max(1, int(often.sum()) - 1 + int(wanted[-1] > 0))
    deviation = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    assert deviation < 4.1  # p > 1e-3 after Bonferroni's correction for 20 settings

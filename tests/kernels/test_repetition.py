"""DRY penalties: the reference against its definition, and on a GPU the kernel against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from constrain.errors import BitmaskError
from constrain.kernels import ChosenRows, DryTensors, TokenPages, apply_dry
from constrain.kernels.repetition import dry_penalties

WIDTH = 40


def expected_penalties(sequence: list[int], breakers: set[int], s: dict[str, Any]) -> dict[int, float]:
    """Compute DRY literally: find the longest suffix that occurred earlier, and the tokens that followed it."""
    sequence = sequence[-s["range"] :] if s["range"] else sequence
    penalties: dict[int, float] = {}
    for length in range(min(s["max_ngram"], len(sequence) - 1), max(s["allowed_length"], 1) - 1, -1):
        end = sequence[-length:]
        following = [
            sequence[i + length]
            for i in range(len(sequence) - length)
            if sequence[i : i + length] == end and not breakers & {*end, sequence[i + length]}
        ]
        if following:
            for token in following:
                penalty = s["multiplier"] * s["base"] ** (length - s["allowed_length"])
                penalties[token] = penalties.get(token, 0.0) + penalty
            break
    return penalties


def random_rows(count: int) -> tuple[list[list[int]], list[set[int]], list[dict[str, Any]]]:
    """Sequences of few different tokens, some of them outside of the width; breakers; and settings."""
    random = np.random.default_rng(count)
    sequences = [random.integers(0, random.integers(1, 5), random.integers(0, 90)).tolist() for _ in range(count)]
    for i, sequence in enumerate(sequences):
        if i % 5 == 0 and sequence:
            sequence[len(sequence) // 2] = [-3, WIDTH, 1_000_000][i % 3]
    breakers = [{3, 7} if i % 3 else set[int]() for i in range(count)]
    settings = [
        {
            "multiplier": float(random.choice([0.8, 1.0, 0.0], p=[0.5, 0.4, 0.1])),
            "base": float(random.choice([1.5, 1.75])),
            "allowed_length": int(random.integers(0, 4)),
            "max_ngram": int(random.integers(0, 12)),
            "range": int(random.choice([0, 0, 15, 200])),
        }
        for _ in range(count)
    ]
    return sequences, breakers, settings


def paged(sequences: list[list[int]], page_size: int = 8) -> tuple[TokenPages, torch.Tensor]:
    blocks = max(1, -(-max(map(len, sequences)) // page_size))
    table = torch.randperm(len(sequences) * blocks, generator=torch.Generator().manual_seed(1)).view(-1, blocks).int()
    tokens = torch.full((len(sequences) * blocks, page_size), 1, dtype=torch.int)
    for row, sequence in enumerate(sequences):
        for i, token in enumerate(sequence):
            tokens[table[row, i // page_size], i % page_size] = token
    return TokenPages(tokens, table), torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int)


def dry_tensors(settings: list[dict[str, Any]]) -> DryTensors:
    floats, integers = (
        [torch.tensor([s[name] for s in settings], dtype=dtype) for name in names]
        for names, dtype in (
            (("multiplier", "base"), torch.float),
            (("allowed_length", "max_ngram", "range"), torch.int),
        )
    )
    return DryTensors(*floats, *integers)


def breaker_rows(breakers: list[set[int]]) -> ChosenRows:
    """Two rows of bits, of which sequences without breakers choose none."""
    bits = torch.zeros(2, (WIDTH + 31) // 32, dtype=torch.int)
    bits[1, 0] = 1 << 3 | 1 << 7
    return ChosenRows(bits, torch.tensor([1 if each else -1 for each in breakers], dtype=torch.int))


def test_penalties_are_those_of_the_rule() -> None:
    sequences, breakers, settings = random_rows(200)
    text, lengths = paged(sequences)
    logits = torch.randn(len(sequences), WIDTH, generator=torch.Generator().manual_seed(0))
    expected = logits.clone()
    penalised = 0
    for row, sequence, own, s in zip(expected, sequences, breakers, settings, strict=True):
        outside = {token for token in sequence if not 0 <= token < WIDTH}
        for token, penalty in expected_penalties(sequence, own | outside, s).items():
            row[token] -= penalty
            penalised += 1
    apply_dry(logits, text, lengths, dry_tensors(settings), breaker_rows(breakers))
    torch.testing.assert_close(logits, expected)
    assert penalised > 100


def test_one_sequence() -> None:
    sequence = np.array([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3])
    no_breakers = np.zeros(len(sequence), dtype=bool)
    assert dry_penalties(sequence, no_breakers, 2, 20, 1.0, 2.0) == {4: 2.0, 5: 2.0}
    assert dry_penalties(sequence, sequence == 2, 1, 20, 1.0, 2.0) == {4: 1.0, 5: 1.0}
    assert dry_penalties(sequence, sequence == 3, 1, 20, 1.0, 2.0) == {}
    assert dry_penalties(sequence, no_breakers, 4, 20, 1.0, 2.0) == {}


def test_without_breakers() -> None:
    text, lengths = paged([[3, 7, 3, 7, 3]])
    logits = torch.zeros(1, WIDTH)
    settings = {"multiplier": 1.0, "base": 2.0, "allowed_length": 1, "max_ngram": 20, "range": 0}
    apply_dry(logits, text, lengths, dry_tensors([settings]))
    assert logits.nonzero().tolist() == [[0, 7]] and logits[0, 7] == -4


def test_breakers_have_to_fit() -> None:
    sequences, _, settings = random_rows(2)
    text, lengths = paged([*sequences])
    with pytest.raises(BitmaskError, match=r"bits must be int32 \[2, 2\]"):
        rows = ChosenRows(torch.zeros(2, 1, dtype=torch.int))
        apply_dry(torch.zeros(2, WIDTH), text, lengths, dry_tensors(settings), rows)


@pytest.mark.gpu
def test_penalties_on_a_gpu(cuda: torch.device) -> None:
    sequences, breakers, settings = random_rows(200)
    random = np.random.default_rng(0)
    sequences[7] = random.integers(0, 3, 9000).tolist()
    sequences[11] = [2] * 3000
    breakers[7] = breakers[11] = set()
    settings[7] = settings[11] = {
        "multiplier": 1.0, "base": 1.1, "allowed_length": 2, "max_ngram": 50, "range": 0,
    }  # fmt: skip
    text, lengths = paged(sequences)
    logits = torch.randn(len(sequences), WIDTH, generator=torch.Generator().manual_seed(0))
    actual, tensors, rows = logits.to(cuda), dry_tensors(settings), breaker_rows(breakers)
    apply_dry(logits, text, lengths, tensors, rows)
    apply_dry(
        actual,
        TokenPages(text.tokens.to(cuda), text.block_table.to(cuda)),
        lengths.to(cuda),
        DryTensors(*(x.to(cuda) for x in vars(tensors).values())),
        ChosenRows(*(x.to(cuda) for x in rows if x is not None)),
    )
    torch.testing.assert_close(actual.cpu(), logits, atol=1e-5, rtol=1e-4)

"""Packing, written down bit by bit, against the unpacking of whole tensors."""

from __future__ import annotations

import pytest
import torch

from constrain.kernels import dequantize_exl2, dequantize_gptq


def random(low: int, high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def packed(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Numbers ``[rows, n]`` as a stream of bits down each column, in int32 words."""
    rows, columns = numbers.shape
    words = [[0] * columns for _ in range(rows * bits // 32)]
    for column in range(columns):
        for place in range(rows * bits):
            bit = int(numbers[place // bits, column]) >> place % bits & 1
            words[place // 32][column] |= bit << place % 32
    return torch.tensor(words, dtype=torch.int64).to(torch.int32)


def packed_nibbles(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers ``[g, n]`` of four bits, eight to a word along each row."""
    words = sum(numbers[:, i::8] << 4 * i for i in range(8))
    assert isinstance(words, torch.Tensor)
    return words.to(torch.int32)


#: Bits and rows of each group: every width by itself, and several with a last group that is shorter.
EXL2 = [[(bits, 64)] for bits in (2, 3, 4, 5, 6, 8)] + [[(8, 32), (6, 64), (5, 32), (3, 64), (2, 64), (2, 16)]]


@pytest.mark.parametrize("groups", EXL2, ids=str)
def test_exl2(groups: list[tuple[int, int]]) -> None:
    columns, inputs = 32, sum(rows for _, rows in groups)
    numbers = [random(0, 1 << bits, rows, columns, seed=i) for i, (bits, rows) in enumerate(groups)]
    words = [packed(q, bits) for q, (bits, _) in zip(numbers, groups, strict=True)]
    starts = [sum(len(earlier) for earlier in words[:i]) for i in range(len(words))]
    codes = random(0, 16, len(groups), columns, seed=7)
    maximum = (torch.rand(len(groups), generator=torch.Generator().manual_seed(3)) + 0.1).half()
    perm = torch.randperm(inputs, generator=torch.Generator().manual_seed(5))
    inverse = perm.argsort()

    expected = torch.empty(columns, inputs)
    row = 0
    for g, ((bits, rows), q) in enumerate(zip(groups, numbers, strict=True)):
        for i in range(rows):
            for c in range(columns):
                scale = float((codes[g, c] + 1) ** 2) * float(maximum[g]) / 256
                expected[c, perm[row + i]] = (int(q[i, c]) - 2 ** (bits - 1)) * scale
        row += rows
    found = dequantize_exl2(
        torch.cat(words), [bits for bits, _ in groups], starts, packed_nibbles(codes), maximum, inverse
    )
    assert found.dtype == torch.half and found.shape == (columns, inputs)
    torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=0)


@pytest.mark.parametrize("zero_offset", [0, 1])
@pytest.mark.parametrize("ordered", [False, True])
def test_gptq(zero_offset: int, ordered: bool) -> None:
    columns, inputs, size = 16, 48, 16
    numbers, zeros = random(0, 16, inputs, columns), random(0, 16, inputs // size, columns, seed=1)
    scales = torch.rand(inputs // size, columns, generator=torch.Generator().manual_seed(2)).half()
    groups = torch.arange(inputs) // size
    if ordered:
        groups = groups[torch.randperm(inputs, generator=torch.Generator().manual_seed(4))]
    expected = torch.empty(columns, inputs)
    for k in range(inputs):
        for c in range(columns):
            zero = int(zeros[groups[k], c]) + zero_offset
            expected[c, k] = (int(numbers[k, c]) - zero) * float(scales[groups[k], c])
    found = dequantize_gptq(packed(numbers, 4), packed_nibbles(zeros), scales, groups, zero_offset)
    assert found.dtype == torch.half
    torch.testing.assert_close(found.float(), expected, rtol=1e-3, atol=0)

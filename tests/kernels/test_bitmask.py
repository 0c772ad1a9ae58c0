from __future__ import annotations

import numpy as np
import pytest
import torch

from constrain.errors import BitmaskError
from constrain.kernels import apply_bitmask
from constrain.kernels.bitmask import apply_bitmask_reference

WIDTHS = [1, 31, 32, 33, 64, 1000, 4096]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def sample(rows: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * width)
    words = (width + 31) // 32
    bits = torch.randint(-(2**31), 2**31, (rows, words), dtype=torch.int64, generator=generator).to(torch.int32)
    return torch.randn(rows, width, generator=generator).to(dtype), bits


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_exactly_the_tokens_without_a_bit_are_excluded(width: int, dtype: torch.dtype) -> None:
    logits, bits = sample(3, width, dtype)
    before = logits.clone()
    apply_bitmask(logits, bits)
    words = bits.numpy().view(np.uint32)
    for row, token in np.ndindex(3, width):
        allowed = int(words[row, token // 32]) >> (token % 32) & 1
        assert logits[row, token] == (before[row, token] if allowed else -torch.inf)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_reference_excludes_the_same(width: int) -> None:
    logits, bits = sample(3, width, torch.float32)
    expected = logits.clone()
    apply_bitmask(logits, bits)
    apply_bitmask_reference(expected, bits)
    assert torch.equal(logits, expected)


def test_rows_of_something_larger() -> None:
    logits, bits = sample(4, 100, torch.float32)
    whole = logits.clone()
    apply_bitmask(logits, bits)
    padded = torch.zeros(4, 128)
    padded[:, :100] = whole
    apply_bitmask(padded[1:3, :100], bits[1:3])
    assert torch.equal(padded[1:3, :100], logits[1:3])
    assert torch.equal(padded[0, :100], whole[0]) and not padded[:, 100:].any()


def check_chosen_rows(device: torch.device) -> None:
    logits, bits = (each.to(device) for each in sample(4, 100, torch.float32))
    chosen = torch.tensor([2, -1, 2, 0], dtype=torch.int32, device=device)
    expected = logits.clone()
    for row, choice in enumerate(chosen.tolist()):
        if choice >= 0:
            apply_bitmask_reference(expected[row : row + 1], bits[choice : choice + 1])
    masked = logits.clone()
    apply_bitmask(masked, bits, chosen)
    assert torch.equal(masked, expected)
    apply_bitmask_reference(logits, bits, chosen)
    assert torch.equal(logits, expected)


def test_rows_that_are_chosen() -> None:
    check_chosen_rows(torch.device("cpu"))


@pytest.mark.gpu
def test_rows_that_are_chosen_on_a_gpu(cuda: torch.device) -> None:
    check_chosen_rows(cuda)


def test_nothing_to_do() -> None:
    apply_bitmask(torch.zeros(0, 32), torch.zeros(0, 1, dtype=torch.int32))


@pytest.mark.parametrize(
    ("logits", "bits", "message"),
    [
        (torch.zeros(2, 33), torch.zeros(2, 1, dtype=torch.int32), r"bits must be int32 \[2, 2\], not .* \[2, 1\]"),
        (torch.zeros(2, 32), torch.zeros(2, 1, dtype=torch.int64), r"not torch.int64"),
        (torch.zeros(32), torch.zeros(1, 1, dtype=torch.int32), r"\[rows, width\]"),
        (torch.zeros(1, 32, dtype=torch.long), torch.zeros(1, 1, dtype=torch.int32), r"must be float"),
        (torch.zeros(64, 2).T, torch.zeros(2, 2, dtype=torch.int32), r"contiguous"),
        (torch.zeros(1, 32), torch.zeros(1, 1, dtype=torch.int32, device="meta"), r"bits are on meta"),
    ],
)
def test_invalid_arguments_are_refused(logits: torch.Tensor, bits: torch.Tensor, message: str) -> None:
    with pytest.raises(BitmaskError, match=message):
        apply_bitmask(logits, bits)


def test_a_choice_that_does_not_fit_is_refused() -> None:
    logits, bits = sample(2, 32, torch.float32)
    with pytest.raises(BitmaskError, match=r"chosen must be int32 \[2\]"):
        apply_bitmask(logits, bits, torch.tensor([0, 1]))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [*WIDTHS, 152_064])
def test_the_kernel_equals_the_reference(width: int, dtype: torch.dtype) -> None:
    logits, bits = sample(5, width, dtype)
    on_device = torch.zeros(5, width + 3, dtype=dtype, device="cuda")
    on_device[:, :width] = logits.cuda()
    apply_bitmask_reference(logits, bits)
    apply_bitmask(on_device[:, :width], bits.cuda())
    assert torch.equal(on_device[:, :width].cpu(), logits)
    assert not on_device[:, width:].any()

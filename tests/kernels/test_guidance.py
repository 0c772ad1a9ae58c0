"""Guidance and biases: against their formulas in float64, on the CPU and on a GPU."""

from __future__ import annotations

import pytest
import torch

from constrain.kernels import add_bias, apply_guidance
from constrain.kernels.graphs import Graph

CPU = torch.device("cpu")
ON_GPU = [(50, 0), (32_003, 5), (128_256, 0)]


def check_guidance(device: torch.device, width: int, gap: int) -> None:
    logits = (torch.randn(6, width + gap, generator=torch.Generator().manual_seed(0)) * 3)[:, :width]
    partner, scale = [4, -1, 5, 4, -1, -1], [1.5, 9.0, 0.0, 1.0, 9.0, 9.0]
    log_probs, expected = logits.double().log_softmax(1), logits.double()
    for row, other in enumerate(partner):
        if other >= 0:
            expected[row] = scale[row] * log_probs[row] + (1 - scale[row]) * log_probs[other]
    actual = logits.to(device)
    apply_guidance(actual, torch.tensor(partner, device=device).int(), torch.tensor(scale, device=device))
    torch.testing.assert_close(actual.cpu().double(), expected, atol=1e-4, rtol=1e-5)
    untouched = [1, 4, 5]
    assert torch.equal(actual.cpu()[untouched], logits[untouched])


def check_bias(device: torch.device, width: int, gap: int) -> None:
    logits = torch.randn(5, width + gap, generator=torch.Generator().manual_seed(0))[:, :width]
    pool = torch.randn(3, width, generator=torch.Generator().manual_seed(1))
    pool[1, ::3] = -torch.inf
    chosen = [1, -1, 0, 1, 2]
    expected = torch.stack([row if i < 0 else row + pool[i] for row, i in zip(logits, chosen, strict=True)])
    actual = logits.to(device)
    add_bias(actual, pool.to(device), torch.tensor(chosen, device=device).int())
    assert torch.equal(actual.cpu(), expected)


def test_guidance_mixes_rows_with_their_partners() -> None:
    check_guidance(CPU, 50, 3)


def test_biases_are_added_to_the_rows_that_have_one() -> None:
    check_bias(CPU, 50, 3)


@pytest.mark.gpu
@pytest.mark.parametrize(("width", "gap"), ON_GPU)
def test_guidance_on_a_gpu(width: int, gap: int, cuda: torch.device) -> None:
    check_guidance(cuda, width, gap)


@pytest.mark.gpu
@pytest.mark.parametrize(("width", "gap"), ON_GPU)
def test_biases_on_a_gpu(width: int, gap: int, cuda: torch.device) -> None:
    check_bias(cuda, width, gap)


@pytest.mark.gpu
def test_guidance_and_biases_are_captured(cuda: torch.device) -> None:
    logits, out = torch.randn(2, 2, 1000, device=cuda)
    partner, scale = torch.tensor([1, -1], device=cuda).int(), torch.tensor([1.5, 0.0], device=cuda)
    pool, chosen = torch.randn(2, 1000, device=cuda), torch.tensor([-1, 0], device=cuda).int()

    def compute() -> None:
        out.copy_(logits)
        apply_guidance(out, partner, scale)
        add_bias(out, pool, chosen)

    graph = Graph(compute)
    logits.copy_(torch.randn(2, 1000, device=cuda))
    chosen.copy_(torch.tensor([1, -1]))
    compute()
    expected = out.clone()
    out.zero_()
    graph()
    assert torch.equal(out, expected)

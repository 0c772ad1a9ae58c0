"""How masks divide probability: against float64, and on a GPU the kernel against the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from constrain.errors import BitmaskError
from constrain.kernels import MAX_CHOICES, ChosenRows, Masses, measure_masses
from constrain.kernels.masses import measure_masses_reference

ROWS = 6
Measure = Callable[..., Masses]


def packed(flags: torch.Tensor) -> torch.Tensor:
    bits = np.packbits(flags.numpy(), axis=1, bitorder="little")
    return torch.from_numpy(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4))).view(np.int32))


def example(width: int, extreme: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits ``[rows, width]``, sampled tokens, allowed tokens ``[rows, width]``, and watched tokens ``[width]``.

    One token is allowed in the first row, few in the second, half in the third, all in the others. If ``extreme``, that
    of the first row has no share of the probability that float32 could represent, and some logits are not finite.
    """
    random = torch.Generator().manual_seed(width)
    logits = torch.randn(ROWS, width, generator=random) * 5
    allowed = torch.rand(ROWS, width, generator=random) < torch.tensor([0, 0.01, 0.5, 1, 1, 1]).unsqueeze(1)
    allowed[0, width // 2] = allowed[1, width // 3] = True
    if extreme:
        logits[0, width // 2] = -200.0
        logits[4, :4] = torch.tensor([-torch.inf, torch.nan, torch.inf, -torch.inf])
    tokens = allowed.float().argmax(1)
    tokens[3] = -1
    return logits, tokens, allowed, torch.rand(width, generator=random) < 0.01


def check(measure: Measure, width: int, extreme: bool, device: str = "cpu") -> None:
    logits, tokens, allowed, watched = example(width, extreme)
    masks = ChosenRows(packed(allowed[:3]).to(device), torch.tensor([0, 1, 2, -1, -1, -1], dtype=torch.int).to(device))
    chosen = torch.tensor([0, 0, 0, 0, -1, 0], dtype=torch.int)
    watching = ChosenRows(packed(watched.unsqueeze(0)).to(device), chosen.to(device))
    sums, choices = (each.cpu() for each in measure(logits.to(device), tokens.to(device), masks, watching))
    finite = logits.double().masked_fill(~logits.isfinite(), -torch.inf)
    total, kept = finite.logsumexp(1), finite.masked_fill(~allowed, -torch.inf).logsumexp(1)
    sampled = finite.gather(1, tokens.clamp(min=0).unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(sums.double(), torch.stack([total, kept, sampled], dim=1), atol=1e-5, rtol=1e-6)
    for row, is_allowed in enumerate(allowed):
        few = int(is_allowed.sum()) <= MAX_CHOICES
        listed = is_allowed & (few | (watched & (chosen[row] >= 0)))
        expected = finite[row][listed][:MAX_CHOICES].float()
        assert torch.equal(choices[row, : len(expected)], expected)


@pytest.mark.parametrize("measure", [measure_masses, measure_masses_reference])
@pytest.mark.parametrize("width", [33, 1003, 6144])
@pytest.mark.parametrize("extreme", [False, True])
def test_sums_and_choices(measure: Measure, width: int, extreme: bool) -> None:
    check(measure, width, extreme)


@pytest.mark.parametrize("measure", [measure_masses, measure_masses_reference])
def test_without_masks_everything_is_allowed_and_nothing_listed(measure: Measure) -> None:
    logits = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    sums, _ = measure(logits, torch.tensor([3, 4]))
    torch.testing.assert_close(sums[:, 0], logits.logsumexp(1))
    assert torch.equal(sums[:, 0], sums[:, 1]) and sums[:, 2].tolist() == [logits[0, 3].item(), logits[1, 4].item()]
    by_row = packed(torch.arange(1000).repeat(2, 1) < 5)
    assert torch.equal(measure(logits, torch.tensor([3, 4]), ChosenRows(by_row)).choices[:, :5], logits[:, :5])


def test_logits_are_not_changed() -> None:
    for extreme in (False, True):
        logits, tokens, allowed, _ = example(1003, extreme)
        before = logits.clone()
        measure_masses(logits, tokens, ChosenRows(packed(allowed)))
        assert torch.equal(logits.nan_to_num(7.0), before.nan_to_num(7.0))


def test_masks_have_to_fit() -> None:
    bits = ChosenRows(torch.zeros(2, 3, dtype=torch.int))
    for masks in ((bits, None), (None, bits)):
        with pytest.raises(BitmaskError, match=r"bits must be int32 \[2, 4\]"):
            measure_masses(torch.zeros(2, 100), torch.zeros(2).long(), *masks)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [33, 1003, 32_003, 128_256])
@pytest.mark.parametrize("extreme", [False, True])
def test_on_a_gpu(width: int, extreme: bool, cuda: torch.device) -> None:
    check(measure_masses, width, extreme, "cuda")


@pytest.mark.gpu
def test_captured_in_a_graph(cuda: torch.device) -> None:
    logits, tokens, allowed, _ = example(1003)
    on_gpu = logits.to(cuda), tokens.to(cuda), ChosenRows(packed(allowed).to(cuda))
    measure_masses(*on_gpu)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = measure_masses(*on_gpu)
    graph.replay()
    expected = measure_masses_reference(logits, tokens, ChosenRows(packed(allowed)))
    torch.testing.assert_close(found.sums.cpu(), expected.sums, atol=1e-4, rtol=1e-5)

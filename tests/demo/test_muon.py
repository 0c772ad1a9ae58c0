"""The optimiser of the built-in model's matrices."""

from __future__ import annotations

import pytest
import torch

from constrain.demo.muon import Muon, orthogonalised


def test_updates_are_those_of_the_optimiser_of_torch() -> None:
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("torch.optim.Muon is there since torch 2.9")
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 4), (4, 6), (6, 4), (5, 5), (6, 4)]
    ours = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    theirs = [torch.nn.Parameter(each.detach().clone()) for each in ours]
    optimizers: list[torch.optim.Optimizer] = [
        Muon(ours, lr=0.02, weight_decay=0.3),
        torch.optim.Muon(theirs, lr=0.02, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(4):
        for mine, its in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            its.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, atol=2e-3, rtol=0)  # updates are rounded to bfloat16


def test_matrices_without_a_gradient_stay() -> None:
    kept, moved = torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(2, 3))
    moved.grad = torch.ones(2, 3)
    optimizer: torch.optim.Optimizer = Muon([kept, moved], lr=0.1)
    optimizer.step()
    assert torch.equal(kept, torch.ones(2, 3)) and not torch.equal(moved, torch.ones(2, 3))


def test_singular_values_come_near_one() -> None:
    matrices = (
        torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(1)) * torch.tensor([1e-3, 1, 1e3])[:, None, None]
    )
    for given in (matrices, matrices.mT):
        values = torch.linalg.svdvals(orthogonalised(given).float())
        assert values.min() > 0.5 and values.max() < 1.5

"""Rounding with compensation is that of a slow reference, and better than rounding to the nearest."""

from __future__ import annotations

import pytest
import torch

from constrain.quantization.layer_weights import Rounding
from constrain.quantization.packing import CodedWeight
from constrain.quantization.rounding import (
    choose_scales,
    inverse_factor,
    nearest,
    round_to_nearest,
    round_with_compensation,
    squared_errors,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def correlated(inputs: int, count: int = 2000) -> torch.Tensor:
    """The mean of ``x x^T`` of inputs that vary in fewer directions than they have features, and in size."""
    x = random(count, inputs // 4) @ random(inputs // 4, inputs, seed=1) + 0.3 * random(count, inputs, seed=2)
    x *= torch.linspace(0.2, 3, inputs, dtype=x.dtype)[
        torch.randperm(inputs, generator=torch.Generator().manual_seed(3))
    ]
    return x.T @ x / count


def mean_error(weight: torch.Tensor, coded: CodedWeight, hessian: torch.Tensor) -> float:
    error = coded.dequantized().to(weight) - weight
    return float(((error @ hessian) * error).sum())


def brain_surgeon(
    weight: torch.Tensor, scales: torch.Tensor, bits: int, hessian: torch.Tensor, order: torch.Tensor
) -> torch.Tensor:
    """Codes by the definition: after each rounding, the best change of the inputs that are left."""
    weight, codes = weight.clone(), torch.empty_like(weight)
    wide = scales.to(weight).repeat_interleave(weight.shape[1] // scales.shape[1], 1)
    for done, column in enumerate(order.tolist()):
        left = order[done:]
        inverse = torch.linalg.inv(hessian[left][:, left])
        codes[:, column] = nearest(weight[:, column], wide[:, column], bits)
        error = weight[:, column] - codes[:, column] * wide[:, column]
        weight[:, left] -= torch.outer(error, inverse[0] / inverse[0, 0])
    return codes.to(torch.int8)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_errors_are_made_up_for_as_defined(ordered: bool, bits: int) -> None:
    weight, hessian = random(6, 160), correlated(160)
    scales = choose_scales(weight, bits, 32, torch.float32, hessian.diagonal())
    damped = hessian + torch.eye(160, dtype=torch.float64) * 0.01 * hessian.diagonal().mean()
    order = hessian.diagonal().argsort(descending=True) if ordered else torch.arange(160)
    wanted = brain_surgeon(weight, scales, bits, damped, order)
    found = round_with_compensation(weight.clone(), scales, bits, hessian, 0.01, ordered)
    assert torch.equal(found.codes, wanted)


@pytest.mark.parametrize("bits", [4, 8])
def test_compensation_beats_the_nearest_codes(bits: int) -> None:
    weight, hessian = random(32, 128).float(), correlated(128).float()
    scales = choose_scales(weight, bits, 64, torch.bfloat16, hessian.diagonal())
    plain = mean_error(weight, round_to_nearest(weight, scales, bits), hessian)
    for ordered in (True, False):
        found = round_with_compensation(weight.clone(), scales, bits, hessian, 0.01, ordered)
        assert mean_error(weight, found, hessian) < 0.3 * plain


def test_independent_inputs_are_rounded_to_the_nearest() -> None:
    weight, hessian = random(8, 64), torch.diag(torch.linspace(1, 2, 64, dtype=torch.float64))
    scales = choose_scales(weight, 4, 32, torch.float32, hessian.diagonal())
    found = round_with_compensation(weight.clone(), scales, 4, hessian, 0.0, True)
    assert torch.equal(found.codes, round_to_nearest(weight, scales, 4).codes)


def test_few_texts_and_inputs_that_are_always_zero() -> None:
    x = random(5, 64).float()
    x[:, 10:20] = 0
    weight, hessian = random(16, 64).float(), x.T @ x / 5
    found = Rounding(4, 32, torch.float16).round(weight, hessian)
    error, whole = squared_errors(weight, found.dequantized(), hessian).sum(dim=1)
    assert error < 1e-3 * whole
    assert torch.equal(found.codes[:, 10:20], round_to_nearest(weight, found.scales, 4).codes[:, 10:20])


def test_no_worse_than_the_nearest_codes() -> None:
    """If compensation clips or the texts mislead it, the nearest codes are taken."""
    weight, hessian = torch.full((4, 32), 7.5), torch.ones(32, 32)
    weight[:, 0] = -8.0
    rounding = Rounding(4, 32, torch.float32)
    scales = choose_scales(weight, 4, 32, torch.float32, hessian.diagonal())
    plain = mean_error(weight, round_to_nearest(weight, scales, 4), hessian)
    assert mean_error(weight, rounding.round(weight, hessian), hessian) <= plain


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scales_have_the_least_error_of_those_that_are_tried(dtype: torch.dtype) -> None:
    weight = random(9, 128).float() ** 3
    importance = random(128, seed=5).float().square()
    scales = choose_scales(weight, 4, 32, dtype, importance)
    assert scales.dtype is dtype and scales.shape == (9, 4)

    def error(scales: torch.Tensor) -> torch.Tensor:
        coded = round_to_nearest(weight, scales, 4).dequantized()
        return ((coded - weight).square() * importance).view(9, 4, 32).sum(-1)

    largest = weight.view(9, 4, 32).abs().amax(-1)
    assert (error(scales) <= error((largest / 7.5).to(dtype)) + 1e-6).all()
    assert (error(scales) <= error((largest * 0.7 / 7.5).to(dtype)) + 1e-6).all()
    assert (error(scales) < error((largest / 7.5).to(dtype))).any()


def test_codes_are_the_nearest_within_their_range() -> None:
    weight = torch.tensor([[-100.0, -8.4, -0.6, 0.4, 0.6, 6.6, 7.4, 100.0]])
    coded = round_to_nearest(weight, torch.ones(1, 1), 4)
    assert coded.codes.tolist() == [[-8, -8, -1, 0, 1, 7, 7, 7]]


def test_a_group_of_zeros_has_a_positive_scale() -> None:
    weight = torch.zeros(2, 32)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        found = Rounding(4, 32, dtype).round(weight, None)
        assert (found.scales > 0).all() and not found.dequantized().any()


def test_no_damping_helps_what_is_no_hessian() -> None:
    assert torch.equal(inverse_factor(-torch.eye(3) * 1e-3 + torch.ones(3, 3).fill_diagonal_(0), 0.0), torch.eye(3))

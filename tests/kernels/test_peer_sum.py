"""Sums over GPUs that write to each other's memory."""

from __future__ import annotations

import pytest
import torch

from constrain.kernels import PeerSum, can_access_peers, cuda, peer_sum_reference
from constrain.kernels.graphs import Graph

DEVICES = [torch.device("cuda", index) for index in range(min(2, torch.cuda.device_count()))]
peers = pytest.mark.skipif(not can_access_peers(DEVICES), reason="needs two GPUs that access each other's memory")

#: Elements: of one pack, of a part of a block, of several blocks, and the most; larger after smaller and the reverse.
SIZES = [8, 4096, 16, 12296, 8, 65536, 1000, 65536, 2048]


def random_parts(size: int, dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator).to(dtype).to(device) for device in DEVICES]


def random_residuals(size: int, dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    residual = torch.randn(size, generator=torch.Generator().manual_seed(-seed)).to(dtype)
    return [residual.to(device) for device in DEVICES]


@pytest.mark.gpu
@peers
@pytest.mark.parametrize("dtype", cuda.DTYPES)
@pytest.mark.parametrize("has_residual", [False, True])
def test_sums_are_those_of_the_reference(dtype: torch.dtype, has_residual: bool) -> None:
    sums = PeerSum(DEVICES)
    for number, size in enumerate(SIZES, 1):
        parts = random_parts(size, dtype, number)
        residuals = random_residuals(size, dtype, number) if has_residual else [None] * len(parts)
        expected = peer_sum_reference(parts, residuals)
        found = sums(parts, residuals)
        for own, reference, device in zip(found, expected, DEVICES, strict=True):
            assert own.device == device
            assert torch.equal(own, reference)


@pytest.mark.gpu
@peers
def test_sums_can_be_recorded() -> None:
    """Many exchanges without the host between them, in which every sum is a part of the next."""
    sums, size = PeerSum(DEVICES), 4096
    inputs = random_parts(size, torch.float32, 1)

    def compute() -> list[torch.Tensor]:
        parts = [each * 1 for each in inputs]
        for _ in range(50):
            parts = [each * 0.5 for each in sums(parts, inputs)]
        return parts

    graph = Graph(compute, DEVICES[0], DEVICES[1:])
    for seed in range(2, 22):
        given = random_parts(size, torch.float32, seed)
        for own, each in zip(inputs, given, strict=True):
            own.copy_(each)
        found = [each.clone() for each in graph()]
        parts = given
        for _ in range(50):
            parts = [each * 0.5 for each in peer_sum_reference(parts, given)]
        for own, expected in zip(found, parts, strict=True):
            assert torch.equal(own, expected)


@pytest.mark.gpu
@peers
def test_large_parts_and_odd_ones_are_not_taken() -> None:
    sums = PeerSum(DEVICES)
    assert sums.takes(torch.empty(131072, dtype=torch.bfloat16, device=DEVICES[0]))
    assert not sums.takes(torch.empty(131080, dtype=torch.bfloat16, device=DEVICES[0]))
    assert not sums.takes(torch.empty(7, dtype=torch.bfloat16, device=DEVICES[0]))


@pytest.mark.parametrize("names", [["cpu", "cpu"], ["cuda:0"], ["cuda:0", "cuda:0"], ["cuda:0", "cpu"]])
def test_only_different_gpus_access_each_other(names: list[str]) -> None:
    assert not can_access_peers([torch.device(name) for name in names])


@pytest.mark.parametrize("dtype", cuda.DTYPES)
def test_reference_rounds_once(dtype: torch.dtype) -> None:
    parts = [torch.randn(64, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(3)]
    exact = sum((each.double() for each in parts[1:]), parts[0].double())
    plain, added = (peer_sum_reference(parts, [residual] * 3) for residual in (None, parts[0]))
    for own in plain:
        torch.testing.assert_close(own, exact.to(dtype))
    for own in added:
        torch.testing.assert_close(own, (exact + parts[0].double()).to(dtype))

"""Low-rank updates of weights: the reference against the product of the matrices, on a GPU the kernels against both."""

from __future__ import annotations

import sys
from itertools import product

import pytest
import torch

from constrain.kernels import (
    Activation,
    LowRankUpdate,
    LowRankWorkspace,
    RowNorm,
    gated_linear,
    linear,
    rms_norm,
)
from constrain.kernels.activation import gated_activation_reference
from constrain.kernels.cuda import address, module, stream
from constrain.kernels.graphs import Graph
from constrain.kernels.norm import rms_norm_reference

HALVES = [torch.float16, torch.bfloat16]
EPS = 1e-5


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Layer:
    """Random weights of a linear layer with an update, of a scale that keeps outputs near one."""

    def __init__(self, inputs: int, outputs: int, rank: int, device: torch.device, dtype: torch.dtype) -> None:
        def random(*size: int) -> torch.Tensor:
            return (torch.randn(size, device=device) / size[-1] ** 0.5).to(dtype)

        self.weight, self.bias = random(outputs, inputs), torch.randn(outputs, device=device).to(dtype)
        self.update = LowRankUpdate(random(rank, inputs), random(outputs, rank))
        self.norm = RowNorm(torch.randn(inputs, device=device).to(dtype), EPS)

    def exact(self, x: torch.Tensor, normed: bool = False) -> torch.Tensor:
        """The products in double precision, from the sum of the matrices."""
        wide = x.double()
        if normed:
            wide = rms_norm_reference(wide, self.norm.weight.double(), EPS)
        return wide @ (self.weight.double() + self.update.up.double() @ self.update.down.double()).T


def close(actual: torch.Tensor, expected: torch.Tensor, power: int = 1) -> bool:
    """Return whether the error, relative to the norm of what is expected, is that of rounding before a power."""
    error = (actual.double() - expected.double()).norm() / expected.double().norm()
    return float(error) < power * {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[actual.dtype]


def check(layer: Layer, rows: int, workspace: LowRankWorkspace | None = None) -> None:
    """Compare the layer's products, plain and gated, with and without norm, bias and residual."""
    x = torch.randn(rows, 1, layer.weight.shape[1]).to(layer.weight) * 2
    residual = torch.randn(rows, 1, layer.weight.shape[0]).to(layer.weight)
    summed = layer.exact(x) + layer.bias + residual, layer.exact(x, normed=True) + layer.bias + residual
    if x.is_cuda:
        torch.cuda.synchronize()
    options = {"update": layer.update, "workspace": workspace}
    assert close(linear(x, layer.weight, **options), layer.exact(x))
    biased, normed = layer.exact(x) + layer.bias, layer.exact(x, normed=True) + layer.bias
    assert close(linear(x, layer.weight, layer.bias, residual.clone(), **options), summed[0])
    assert close(linear(x, layer.weight, layer.bias, residual.clone(), layer.norm, **options), summed[1])
    assert close(linear(x, layer.weight, None, residual.clone(), **options), layer.exact(x) + residual)
    for activation in Activation:
        power = 2 if activation is Activation.RELU2 else 1
        gated = gated_linear(x, layer.weight, layer.bias, activation, **options)
        assert close(gated, gated_activation_reference(biased, activation), power)
        gated = gated_linear(x, layer.weight, layer.bias, activation, layer.norm, **options)
        assert close(gated, gated_activation_reference(normed, activation), power)


@pytest.mark.parametrize("rank", [1, 8, 20])
def test_update_is_added_to_the_weight(rank: int) -> None:
    check(Layer(24, 16, rank, torch.device("cpu"), torch.float32), rows=5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rank", [8, 16, 48, 64, 104, 256])
@pytest.mark.parametrize(("inputs", "outputs"), [(8, 16), (520, 200), (4096, 1024)])
def test_few_rows_on_a_gpu(inputs: int, outputs: int, rank: int, dtype: torch.dtype, cuda: torch.device) -> None:
    layer, workspace = Layer(inputs, outputs, rank, cuda, dtype), LowRankWorkspace()
    for rows in range(1, 9):
        check(layer, rows, workspace)
    check(layer, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rank", [8, 48, 104])
@pytest.mark.parametrize("rows", [9, 32, 250, 300])
def test_many_rows_on_a_gpu(rows: int, rank: int, dtype: torch.dtype, cuda: torch.device) -> None:
    workspace = LowRankWorkspace()
    for inputs, outputs in ((8, 16), (520, 200), (2304, 1024)):
        check(Layer(inputs, outputs, rank, cuda, dtype), rows, workspace)


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [100, 264])
def test_ranks_that_kernels_do_not_take(rank: int, cuda: torch.device) -> None:
    for rows in (3, 20):
        check(Layer(64, 48, rank, cuda, torch.bfloat16), rows)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("inputs", "outputs", "rank"), [(4096, 6144, 48), (4096, 4096, 16), (4096, 28_672, 32), (14_336, 4096, 16)]
)
def test_layers_of_a_large_model(inputs: int, outputs: int, rank: int, cuda: torch.device) -> None:
    layer, workspace = Layer(inputs, outputs, rank, cuda, torch.bfloat16), LowRankWorkspace()
    for rows in (1, 8, 32):
        check(layer, rows, workspace)


@pytest.mark.gpu
def test_kernels_add_updates_without_torch(cuda: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fallback would be correct, but slow."""
    layer = Layer(64, 48, 16, cuda, torch.bfloat16)
    monkeypatch.setattr(sys.modules["constrain.kernels.linear"], "_updated", None)
    for rows in (1, 8, 9, 256):
        linear(torch.randn(rows, 64, device=cuda, dtype=torch.bfloat16), layer.weight, update=layer.update)


class Chain:
    """Layers one after the other over one workspace, as in a model: no synchronisation in between."""

    def __init__(self, device: torch.device) -> None:
        shapes = [(512, 768, 48), (768, 512, 16), (512, 2048, 32), (1024, 512, 8)]
        self.layers = [Layer(*shape, device, torch.bfloat16) for shape in shapes]
        self.workspace = LowRankWorkspace()
        torch.cuda.synchronize()

    def run(self, x: torch.Tensor) -> torch.Tensor:
        first, second, gated, last = self.layers
        workspace = self.workspace
        y = linear(x, first.weight, None, None, first.norm, first.update, workspace)
        y = linear(y, second.weight, None, x, None, second.update, workspace)
        z = gated_linear(y, gated.weight, None, Activation.SILU, gated.norm, gated.update, workspace)
        return linear(z, last.weight, None, y, None, last.update, workspace)

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        first, second, gated, last = self.layers
        y = second.exact(first.exact(x, normed=True)) + x.double()
        return last.exact(gated_activation_reference(gated.exact(y, normed=True), Activation.SILU)) + y


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 8, 32])
def test_consecutive_layers(rows: int, cuda: torch.device) -> None:
    chain = Chain(cuda)
    inputs = torch.randn(100, rows, 512, device=cuda, dtype=torch.bfloat16)
    outputs = torch.stack([chain.run(x) for x in inputs])
    assert all(close(actual, chain.exact(x)) for x, actual in zip(inputs, outputs, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 8, 32])
def test_captured_layers(rows: int, cuda: torch.device) -> None:
    chain = Chain(cuda)
    x = torch.randn(rows, 512, device=cuda, dtype=torch.bfloat16)

    def steps() -> torch.Tensor:
        y = x
        for _ in range(4):
            y = rms_norm(chain.run(y), None, EPS)
        return y

    graph = Graph(steps)
    for _ in range(50):
        x.copy_(torch.randn_like(x))
        expected = steps().clone()
        # cuBLAS may choose other algorithms for a graph.
        assert close(graph(), expected) if rows > 8 else torch.equal(graph(), expected)


@pytest.mark.gpu
def test_graphs_with_their_own_workspaces_run_on_two_streams(cuda: torch.device) -> None:
    chains = [Chain(cuda), Chain(cuda)]
    inputs = torch.randn(2, 4, 512, device=cuda, dtype=torch.bfloat16)
    graphs = [Graph(lambda chain=chain, x=x: chain.run(x)) for chain, x in zip(chains, inputs, strict=True)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    outputs = []
    for _, number in product(range(200), range(2)):
        with torch.cuda.stream(streams[number]):
            outputs.append(graphs[number]())
    torch.cuda.synchronize()
    for chain, x, actual in zip(chains, inputs, outputs[-2:], strict=True):
        assert close(actual, chain.exact(x))


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [0, 12, 512])
def test_ranks_are_checked(rank: int, cuda: torch.device) -> None:
    memory = torch.zeros(4096, device=cuda)
    at = address(memory)
    update = module.LowRank(down=at, up=at, projected=at, signals=at, rank=rank)
    with pytest.raises(ValueError, match="unsupported rank"):
        module.project_rows(x=at, x_stride=8, rows=1, inputs=8, dtype="float16", update=update, stream=stream(memory))

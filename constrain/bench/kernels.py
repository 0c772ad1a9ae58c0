"""Memory bandwidth achieved by single kernels, compared with the GPU's limit and with torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F

from constrain import kernels
from constrain.bench.device import conditions, read_bandwidth, seconds_per_call
from constrain.bench.shapes import Shape
from constrain.kernels import Activation, GroupQuantization, KVQuantization, Pages, Parts, Unquantized
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE

Calls: TypeAlias = list[Callable[[], Any]]

_DTYPE = torch.bfloat16
# Several times the largest GPU cache, so that no call finds its inputs cached.
_WORKING_SET = 600_000_000


@dataclass(frozen=True)
class Case:
    """An operation at one size.

    Attributes:
        name, batch: the operation and its batch size.
        bytes: minimum memory traffic, reads and writes.
        ours, torch: calls of the operation, each on different memory; ``torch`` may be empty.
    """

    name: str
    batch: int
    bytes: int
    ours: Calls
    torch: Calls


def measure_kernels(shape: Shape) -> dict[str, Any]:
    """Measure every kernel at a model shape; times in seconds, bandwidths in bytes per second."""
    limit = read_bandwidth()
    return conditions() | {"read_bandwidth": limit, "kernels": [_figures(case, limit) for case in cases(shape)]}


def _figures(case: Case, limit: float) -> dict[str, Any]:
    ours = seconds_per_call(case.ours)
    return {
        "name": case.name,
        "batch": case.batch,
        "bytes": case.bytes,
        "seconds": ours,
        "share_of_read_limit": case.bytes / ours / limit,
        "torch_seconds": seconds_per_call(case.torch) if case.torch else None,
    }


def cases(shape: Shape) -> Iterator[Case]:
    """Yield all cases of a shape, one at a time because they do not fit into memory together."""
    for batch in (1, 4, 8, 16):
        yield from _products(shape, batch)
    for batch, length in ((1, 256), (1, 32_768), (16, 32_768), (32, 256), (32, 8192)):
        yield _attention(shape, batch, length, "", Unquantized(_DTYPE), Unquantized(_DTYPE))
        yield _attention(shape, batch, length, ", Q8", GroupQuantization(8), GroupQuantization(8))
        yield _attention(shape, batch, length, ", Q4", GroupQuantization(4), GroupQuantization(4))
    for batch in (1, 32):
        yield from _small(shape, batch)
    for batch in (1, 32, 256):
        yield from _sampling(shape, batch)


def _random(*size: int) -> torch.Tensor:
    return torch.randn(size, device="cuda", dtype=_DTYPE)


def _copies(size: int) -> range:
    return range(max(4, min(64, _WORKING_SET // max(1, size))))


def _products(shape: Shape, batch: int) -> Iterator[Case]:
    hidden, inner = shape.hidden_size, shape.intermediate_size
    heads, kv = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    for name, inputs, outputs in (
        ("qkv", hidden, heads + 2 * kv),
        ("attention output", heads, hidden),
        ("gate and up", hidden, 2 * inner),
        ("down", inner, hidden),
        ("head", hidden, shape.vocab_size),
    ):
        x, size = _random(batch, inputs), 2 * inputs * outputs
        weights = [_random(outputs, inputs) for _ in _copies(size)]
        own = partial(_few_rows, activation=Activation.SILU if name == "gate and up" else None)
        yield Case(name, batch, size, [partial(own, x, w) for w in weights], [partial(F.linear, x, w) for w in weights])


def _few_rows(x: torch.Tensor, weight: torch.Tensor, activation: Activation | None) -> torch.Tensor:
    return kernels.linear(x, weight) if activation is None else kernels.gated_linear(x, weight, None, activation)


def _attention(
    shape: Shape,
    batch: int,
    length: int,
    name: str,
    key_quantization: KVQuantization,
    value_quantization: KVQuantization,
) -> Case:
    heads, kv_heads, dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
    blocks = -(-length // PAGED_PAGE_SIZE)
    count = batch * blocks
    qkv, workspace = _random(batch, 1, heads + 2 * kv_heads, dim), kernels.AttentionWorkspace()
    cos, sin = _random(blocks * PAGED_PAGE_SIZE, 1, dim), _random(blocks * PAGED_PAGE_SIZE, 1, dim)
    lengths = torch.full((batch,), length, dtype=torch.int, device="cuda")
    table = torch.randperm(count, device="cuda").view(batch, blocks).int()
    layouts = [quantization.layout(dim) for quantization in (key_quantization, value_quantization)]
    size = batch * length * kv_heads * sum(width * dtype.itemsize for layout in layouts for width, dtype in layout)

    def states(quantization: KVQuantization) -> Parts:
        return quantization.quantize(_random(count, PAGED_PAGE_SIZE, kv_heads, dim))

    pages = [
        Pages(states(key_quantization), states(value_quantization), table, key_quantization, value_quantization)
        for _ in _copies(size)
    ]
    attend = partial(kernels.paged_attention, qkv, cos, sin, scale=dim**-0.5, lengths=lengths, workspace=workspace)
    ours: Calls = [partial(attend, each) for each in pages]
    theirs: Calls = []
    if isinstance(key_quantization, Unquantized):
        grouped = qkv[:, :, :heads].reshape(batch, kv_heads, heads // kv_heads, dim)
        for each in pages:
            k, v = (x[0].view(batch, -1, kv_heads, dim)[:, :length].transpose(1, 2) for x in (each.keys, each.values))
            theirs.append(partial(F.scaled_dot_product_attention, grouped, k, v))
    return Case(f"attention over {length}{name}", batch, size, ours, theirs)


def _small(shape: Shape, batch: int) -> Iterator[Case]:
    hidden, inner = shape.hidden_size, shape.intermediate_size
    x, residual, weight = _random(batch, hidden), _random(batch, hidden), _random(hidden)
    yield Case(
        "norm and residual",
        batch,
        2 * 4 * x.numel(),
        [partial(kernels.rms_norm, x, weight, 1e-5, residual)] * 64,
        [lambda: F.rms_norm(residual.add_(x), (hidden,), weight, 1e-5)] * 64,
    )
    gate_up = _random(batch, 2 * inner)
    yield Case(
        "gated activation",
        batch,
        2 * 3 * batch * inner,
        [partial(kernels.gated_activation, gate_up, Activation.SILU)] * 64,
        [lambda: F.silu(gate_up[:, :inner]) * gate_up[:, inner:]] * 64,
    )


def _sampling(shape: Shape, batch: int) -> Iterator[Case]:
    width = shape.vocab_size
    logits = torch.randn(batch, width, device="cuda") * 2.5
    few = torch.zeros(batch, -(-width // 32), dtype=torch.int, device="cuda")
    few[:, ::100] = -1
    half = torch.randint(-(2**31), 2**31, few.shape, device="cuda").int()
    for dtype in (torch.float32, _DTYPE):
        for density, bits in (("1%", few), ("half", half)):
            masked = logits.to(dtype)
            apply = partial(kernels.apply_bitmask, masked, bits)
            yield Case(f"bitmask of {density}, {str(dtype)[6:]}", batch, bits.nbytes + masked.nbytes, [apply] * 64, [])
    for name, temperature, top_k, top_p in (
        ("sample, greedy", 0.0, 0, 0.0),
        ("sample, temperature", 0.8, 0, 0.0),
        ("sample, top-k", 0.8, 50, 0.0),
        ("sample, top-k and top-p", 0.8, 50, 0.8),
    ):
        parameters = kernels.SamplingTensors(
            torch.full((batch,), temperature, device="cuda"),
            torch.full((batch,), top_k, dtype=torch.int, device="cuda"),
            torch.full((batch,), top_p, device="cuda"),
            torch.zeros(batch, device="cuda"),
            torch.arange(batch, device="cuda"),
            torch.zeros(batch, dtype=torch.int, device="cuda"),
        )
        yield Case(name, batch, logits.nbytes, [partial(kernels.sample, logits, parameters)] * 16, [])
        for density, bits, share in (("1%", few, 0.01), ("half", half, 0.5)):
            sampling = partial(kernels.sample, logits, parameters, allowed=kernels.ChosenRows(bits))
            size = bits.nbytes + int(share * logits.nbytes)
            yield Case(f"{name}, under a mask of {density}", batch, size, [sampling] * 16, [])

"""The operations against their formulas, written out with numpy in float64."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest
import torch

from constrain.kernels import Activation, attention, gated_activation, linear, rms_norm, rotate, soft_cap


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def close(actual: torch.Tensor, expected: np.ndarray) -> bool:
    return np.allclose(actual.double().numpy(), expected, atol=1e-5)


def test_rms_norm() -> None:
    x, weight = torch.randn(2, 3, 8), torch.randn(8)
    exact = x.double().numpy()
    normed = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5)
    assert close(rms_norm(x, weight, 1e-5), normed * weight.numpy())
    assert close(rms_norm(x, None, 1e-5), normed)


def test_gated_activations() -> None:
    gate_up = torch.randn(2, 10)
    gate, up = np.split(gate_up.double().numpy(), 2, axis=-1)
    assert close(gated_activation(gate_up, Activation.SILU), gate / (1 + np.exp(-gate)) * up)
    tanh = np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))
    assert close(gated_activation(gate_up, Activation.GELU_TANH), 0.5 * gate * (1 + tanh) * up)


def test_soft_cap_leaves_its_argument_alone() -> None:
    x = torch.tensor([-100.0, 0.0, 0.1, 100.0])
    before = x.clone()
    assert close(soft_cap(x, 5.0), 5 * np.tanh(x.double().numpy() / 5))
    assert torch.equal(x, before)


def test_linear() -> None:
    x, weight, bias = torch.randn(2, 1, 4), torch.randn(6, 4), torch.randn(6)
    assert close(linear(x, weight, bias), x.numpy() @ weight.numpy().T + bias.numpy())


def test_rotation_turns_pairs_by_their_angle_and_keeps_the_rest() -> None:
    x = torch.randn(2, 3, 4, 10)
    angles = torch.rand(1, 3, 1, 4)
    cos, sin = torch.cat((angles.cos(),) * 2, -1), torch.cat((-angles.sin(), angles.sin()), -1)
    pairs = torch.complex(x[..., :4], x[..., 4:8]) * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat((pairs.real, pairs.imag, x[..., 8:]), dim=-1)
    assert torch.allclose(rotate(x, cos, sin), expected, atol=1e-6)


def exact_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    visible: np.ndarray,
    cap: float | None,
    sinks: torch.Tensor | None = None,
) -> np.ndarray:
    batch, queries, heads, dim = q.shape
    out = np.zeros((batch, queries, heads, dim))
    for b, i, h in np.ndindex(batch, queries, heads):
        group = h // (heads // k.shape[2])
        scores = k[b, :, group].double().numpy() @ q[b, i, h].double().numpy() * scale
        scores = cap * np.tanh(scores / cap) if cap else scores
        weights = np.exp(scores - scores.max()) * visible[b, i]
        sink = 0.0 if sinks is None else np.exp(float(sinks[h]) - scores.max())
        out[b, i, h] = (weights / (weights.sum() + sink)) @ v[b, :, group].double().numpy()
    return out.reshape(batch, queries, heads * dim)


@pytest.mark.parametrize(("cap", "sunk"), [(None, False), (2.0, False), (None, True), (2.0, True)])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("queries", "kind"), [(1, "all"), (1, "mask"), (5, "causal"), (3, "causal"), (3, "mask")])
def test_attention(queries: int, kind: str, kv_heads: int, cap: float | None, sunk: bool) -> None:
    keys = 5
    q = torch.randn(2, queries, 4, 8)
    # Keys and values of a cache are slices of something longer.
    k, v = torch.randn(2, 9, kv_heads, 8)[:, :keys], torch.randn(2, 9, kv_heads, 8)[:, :keys]
    visible = np.ones((2, queries, keys), dtype=bool)
    mask = None
    if kind == "causal":
        visible &= np.tril(np.ones((queries, keys), dtype=bool), keys - queries)
    if kind == "mask":
        visible[1, :, :2] = False
        visible[:, 0, 3] = False
        mask = torch.where(torch.from_numpy(visible), 0.0, -1e30)[:, None]
    sinks = torch.tensor([-1.0, 0.0, 1.0, 3.0]) if sunk else None
    actual = attention(q, k, v, scale=0.3, mask=mask, causal=kind == "causal", cap=cap, sinks=sinks)
    assert close(actual, exact_attention(q, k, v, 0.3, visible, cap, sinks))


@pytest.mark.parametrize("kind", ["causal", "mask"])
def test_attention_in_blocks_of_queries(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = torch.randn(2, 5, 4, 8), torch.randn(2, 7, 2, 8), torch.randn(2, 7, 2, 8)
    mask = torch.randn(2, 1, 5, 7) if kind == "mask" else None
    whole = attention(q, k, v, scale=0.3, mask=mask, causal=mask is None, cap=2.0)
    monkeypatch.setattr(import_module("constrain.kernels.attention"), "MAX_SCORES", 2 * 2 * 4 * 7)
    assert torch.allclose(attention(q, k, v, scale=0.3, mask=mask, causal=mask is None, cap=2.0), whole, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_queries_after_old_keys_on_a_gpu(dtype: torch.dtype, cap: float | None, cuda: torch.device) -> None:
    q, k, v = (torch.randn(1, n, heads, 64, device=cuda).to(dtype) for n, heads in ((70, 8), (200, 2), (200, 2)))
    expected = attention(*(x.cpu().float() for x in (q, k, v)), scale=0.2, causal=True, cap=cap)
    actual = attention(q, k, v, scale=0.2, causal=True, cap=cap).cpu().float()
    assert float((actual - expected).norm() / expected.norm()) < (1e-2 if dtype is torch.bfloat16 else 1e-3)

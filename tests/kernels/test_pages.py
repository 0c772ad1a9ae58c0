"""Rotation into pages and attention over them: on the CPU against one sequence at a time, on a GPU against the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from constrain.kernels import AttentionWorkspace, Pages, attention, paged_attention, rotate, rotate_into_pages
from constrain.kernels.paged_attention import paged_attention_reference

HALVES = [torch.float16, torch.bfloat16]


def random_pages(lengths: list[int], kv_heads: int, dim: int, page_size: int = 256) -> Pages:
    """Pages of sequences that lie in no order, with room for one more than they need."""
    blocks = max(1, -(-max(lengths) // page_size))
    count = len(lengths) * blocks + 1
    keys, values = (torch.randn(count, page_size, kv_heads, dim) for _ in range(2))
    table = torch.randperm(count)[: len(lengths) * blocks].view(len(lengths), blocks).int()
    return Pages(keys, values, table)


def placed(pages: Pages, device: torch.device, dtype: torch.dtype) -> Pages:
    """A copy, in which the slots of pages are not next to each other."""
    width = pages.keys.shape[3]

    def place(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, torch.full_like(x, torch.nan)), 3).to(device, dtype)[..., :width]

    return Pages(place(pages.keys), place(pages.values), pages.block_table.to(device))


def rotation(positions: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.rand(positions, 1, dim // 2) * 6
    return torch.cat((angles.cos(),) * 2, -1), torch.cat((-angles.sin(), angles.sin()), -1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("queries", [1, 3])
def test_attention_is_that_of_every_sequence_alone(queries: int, window: int | None, cap: float | None) -> None:
    lengths = [3, 17, 40, 0]
    pages = random_pages(lengths, kv_heads=2, dim=8, page_size=16)
    q = torch.randn(4, queries, 6, 8)
    out = paged_attention(q, pages, torch.tensor(lengths, dtype=torch.int), scale=0.3, window=window, cap=cap)
    keys, values = pages.gather()
    for row, length in enumerate(lengths[:3]):
        for i in range(queries):
            seen = slice(max(0, length - queries + i + 1 - (window or length)), length - queries + i + 1)
            alone = attention(q[row, None, i, None], keys[row, None, seen], values[row, None, seen], scale=0.3, cap=cap)
            assert torch.allclose(out[row, i], alone[0, 0], atol=1e-6)
    assert not out[3].any()


def test_slots_that_nobody_wrote_do_not_matter() -> None:
    pages = random_pages([20], kv_heads=1, dim=8, page_size=16)
    q, lengths = torch.randn(1, 1, 2, 8), torch.tensor([20], dtype=torch.int)
    expected = paged_attention(q, pages, lengths, scale=1.0)
    for states in (pages.keys, pages.values):
        states[pages.block_table[0, 1], 4:] = torch.nan
    assert torch.equal(paged_attention(q, pages, lengths, scale=1.0), expected)


@pytest.mark.parametrize("rotary", [8, 4])
def test_rotation_writes_where_the_block_table_says(rotary: int) -> None:
    pages = random_pages([64, 64, 64], kv_heads=2, dim=8, page_size=16)
    keys, values = (x.clone() for x in pages.gather())
    cos, sin = rotation(64, rotary)
    past = torch.tensor([14, 0, -1], dtype=torch.int)
    qkv = torch.randn(3, 4, 3 + 2 * 2, 8)
    given = qkv.clone()
    q = rotate_into_pages(qkv, cos, sin, past, pages)
    for row, start in enumerate(past.tolist()):
        if start < 0:
            continue
        turned = rotate(given[row, None], cos[None, start : start + 4], sin[None, start : start + 4])[0]
        assert torch.allclose(q[row], turned[:, :3])
        keys[row, start : start + 4], values[row, start : start + 4] = turned[:, 3:5], given[row, :, 5:]
    after_keys, after_values = pages.gather()
    assert torch.allclose(after_keys, keys) and torch.equal(after_values, values)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("dim", "rotary"), [(64, 64), (128, 128), (128, 64), (256, 256), (80, 32), (96, 96)])
@pytest.mark.parametrize("width", [1, 5])
def test_rotation_on_a_gpu(width: int, dim: int, rotary: int, dtype: torch.dtype, cuda: torch.device) -> None:
    past = torch.tensor([0, 255, 700, -1, 511], dtype=torch.int)
    pages = random_pages([1024] * 5, kv_heads=2, dim=dim)
    on_gpu = placed(pages, cuda, dtype)
    exact = Pages(*(x.cpu().float() for x in (on_gpu.keys, on_gpu.values)), pages.block_table)
    cos, sin = (x.to(cuda, dtype) for x in rotation(1024, rotary))
    qkv = torch.randn(5, width, 6 + 2 * 2, dim, device=cuda, dtype=dtype)
    expected = rotate_into_pages(qkv.cpu().float(), cos.cpu().float(), sin.cpu().float(), past, exact)
    q = rotate_into_pages(qkv, cos, sin, past.to(cuda), on_gpu)
    tolerance = 2e-3 if dtype is torch.float16 else 2e-2
    active = past >= 0
    torch.testing.assert_close(q.cpu().float()[active], expected[active], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(on_gpu.keys.cpu().float(), exact.keys, atol=tolerance, rtol=tolerance)
    assert torch.equal(on_gpu.values.cpu().float(), exact.values)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(32, 8, 128), (8, 4, 64), (4, 4, 32), (6, 1, 96), (40, 1, 128), (16, 8, 256), (10, 2, 80), (24, 2, 128)],
)
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize(("window", "cap"), [(None, None), (100, None), (None, 20.0), (1024, 5.0)])
def test_attention_on_a_gpu(
    heads: int,
    kv_heads: int,
    dim: int,
    queries: int,
    window: int | None,
    cap: float | None,
    dtype: torch.dtype,
    cuda: torch.device,
) -> None:
    lengths = [4, 15, 16, 17, 65, 255, 256, 1000, 0, 3100]
    pages = placed(random_pages(lengths, kv_heads, dim), cuda, dtype)
    q = torch.randn(len(lengths), queries, heads, dim, device=cuda, dtype=dtype) * 2
    on_gpu = torch.tensor(lengths, dtype=torch.int, device=cuda)
    exact = replace(pages, keys=pages.keys.float(), values=pages.values.float())
    options = {"scale": dim**-0.5, "window": window, "cap": cap}
    expected = paged_attention_reference(q.float(), exact, on_gpu, **options)
    workspace = AttentionWorkspace()
    for _ in range(2):  # the second call finds what the first has left in the workspace
        out = paged_attention(q, pages, on_gpu, workspace=workspace, **options)
        error = (out.float() - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1).clamp(min=1e-9)
        assert float(error.max()) < (2e-3 if dtype is torch.float16 else 1e-2)
    for row in (0, 4, 9):  # alone, a sequence has more splits
        table = pages.block_table[row : row + 1]
        alone = paged_attention(q[row, None], replace(pages, block_table=table), on_gpu[row, None], **options)
        assert torch.allclose(alone[0].float(), expected[row], atol=2e-2)


@pytest.mark.gpu
def test_attention_over_a_long_context(cuda: torch.device) -> None:
    lengths = [32_768, 20_001]
    pages = placed(random_pages(lengths, 2, 128), cuda, torch.bfloat16)
    q = torch.randn(2, 1, 8, 128, device=cuda, dtype=torch.bfloat16)
    on_gpu = torch.tensor(lengths, dtype=torch.int, device=cuda)
    exact = replace(pages, keys=pages.keys.float(), values=pages.values.float())
    expected = paged_attention_reference(q.float(), exact, on_gpu, scale=128**-0.5)
    actual = paged_attention(q, pages, on_gpu, scale=128**-0.5)
    assert float((actual.float() - expected).norm() / expected.norm()) < 1e-2

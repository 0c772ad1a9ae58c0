"""Attention over pages: on the CPU against one sequence at a time, on a GPU against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import pytest
import torch

from constrain.kernels import (
    AttentionWorkspace,
    GroupQuantization,
    KVQuantization,
    Pages,
    Parts,
    TruncatedFloat,
    Unquantized,
    attention,
    cpu_reads_pages,
    paged_attention,
    rotate,
)
from constrain.kernels.graphs import Graph
from constrain.kernels.paged_attention import attend_pages, paged_attention_reference

Formats: TypeAlias = tuple[KVQuantization, KVQuantization]

CPU = torch.device("cpu")
HALVES = [torch.float16, torch.bfloat16]
PLAIN = Unquantized(torch.float32)
GROUPS = [
    (GroupQuantization(8), GroupQuantization(8)),
    (GroupQuantization(8), GroupQuantization(4)),
    (GroupQuantization(4), GroupQuantization(4)),
]
FLOAT8 = TruncatedFloat(), TruncatedFloat()
FORMATS: list[Formats] = [(PLAIN, PLAIN), FLOAT8, *GROUPS]
NAMES = ["plain", "float8", "q8", "q6", "q4"]


class Attention(NamedTuple):
    """Arguments of :func:`paged_attention`."""

    qkv: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    pages: Pages
    lengths: torch.Tensor

    def to(self, dtype: torch.dtype) -> Attention:
        """A copy in ``dtype``, but for codes; where states are floats, slots of pages are not next to each other."""
        pages = self.pages
        if isinstance(pages.key_quantization, Unquantized):
            plain = Unquantized(dtype)
            pages = replace(pages, key_quantization=plain, value_quantization=plain)
        pages = replace(pages, keys=placed(pages.keys, dtype), values=placed(pages.values, dtype))
        return Attention(self.qkv.to(dtype), self.cos.to(dtype), self.sin.to(dtype), pages, self.lengths)


def placed(parts: Parts, dtype: torch.dtype) -> Parts:
    if not parts[0].is_floating_point():
        return parts
    width = parts[0].shape[3]
    return (torch.cat((parts[0], torch.full_like(parts[0], torch.nan)), 3).to(dtype)[..., :width],)


def make(
    lengths: Sequence[int],
    heads: int,
    kv_heads: int,
    dim: int,
    *,
    queries: int = 1,
    rotary: int | None = None,
    page_size: int = 256,
    formats: Formats = (PLAIN, PLAIN),
    device: torch.device = CPU,
) -> Attention:
    """Sequences whose pages lie in no order, with a page more than they need."""
    blocks = max(1, -(-max(lengths) // page_size))
    count = len(lengths) * blocks + 1
    keys, values = (
        quantization.quantize(torch.randn(count, page_size, kv_heads, dim, device=device)) for quantization in formats
    )
    table = torch.randperm(count, device=device)[: len(lengths) * blocks].view(len(lengths), blocks).int()
    angles = torch.rand(blocks * page_size, 1, (rotary or dim) // 2, device=device) * 6
    cos, sin = torch.cat((angles.cos(),) * 2, -1), torch.cat((-angles.sin(), angles.sin()), -1)
    qkv = torch.randn(len(lengths), queries, heads + 2 * kv_heads, dim, device=device)
    pages = Pages(keys, values, table, *formats)
    return Attention(qkv, cos, sin, pages, torch.tensor(lengths, dtype=torch.int, device=device))


def copied(pages: Pages) -> Pages:
    """Pages with tensors of their own."""
    keys, values = (tuple(part.clone() for part in parts) for parts in (pages.keys, pages.values))
    return replace(pages, keys=keys, values=values)


def in_floats(pages: Pages) -> Pages:
    """The same states in float32; codes stay codes."""
    if not isinstance(pages.key_quantization, Unquantized):
        return pages
    keys, values = ((parts[0].float(),) for parts in (pages.keys, pages.values))
    return replace(pages, keys=keys, values=values, key_quantization=PLAIN, value_quantization=PLAIN)


def worst_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest error of a sequence, relative to the norm of its expected output; nan passes no comparison."""
    error = (actual.float() - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1).clamp(min=1e-9)
    return float(error.max())


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("formats", FORMATS, ids=NAMES)
@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("queries", [1, 3])
def test_attention_is_that_of_every_sequence_alone(
    queries: int, window: int | None, cap: float | None, formats: Formats
) -> None:
    lengths = [3, 17, 40, 0]
    given = make(lengths, 6, 2, 8, queries=queries, rotary=4, page_size=16, formats=formats)
    qkv, cos, sin, pages, on_device = given
    keys, values = pages.gather(torch.float)
    out = paged_attention(qkv, cos, sin, pages, on_device, scale=0.3, window=window, cap=cap)
    for row, length in enumerate(lengths[:3]):
        new = slice(length - queries, length)
        q, k = (rotate(x[row, None], cos[None, new], sin[None, new]) for x in (qkv[:, :, :6], qkv[:, :, 6:8]))
        keys[row, new] = formats[0].dequantize(formats[0].quantize(k), torch.float)[0]
        values[row, new] = formats[1].dequantize(formats[1].quantize(qkv[row, :, 8:]), torch.float)
        for i in range(queries):
            end = length - queries + i + 1
            seen = slice(max(0, end - (window or length)), end)
            alone = attention(q[:, i, None], keys[row, None, seen], values[row, None, seen], scale=0.3, cap=cap)
            torch.testing.assert_close(out[row, i], alone[0, 0], atol=1e-6, rtol=1e-5)
    assert not out[3].any()


def test_new_states_are_written_where_the_block_table_says() -> None:
    given = make([18, 4, 0], 4, 2, 8, queries=4, page_size=16)
    expected, table = copied(given.pages), given.pages.block_table
    for row, first in ((0, 14), (1, 0)):
        places = slice(first, first + 4)
        rotated_keys = rotate(given.qkv[row, None, :, 4:6], given.cos[None, places], given.sin[None, places])[0]
        for i in range(4):
            page, slot = table[row, (first + i) // 16], (first + i) % 16
            expected.keys[0][page, slot], expected.values[0][page, slot] = rotated_keys[i], given.qkv[row, i, 6:]
    paged_attention(*given, scale=1.0)
    assert torch.equal(given.pages.keys[0], expected.keys[0]) and torch.equal(given.pages.values[0], expected.values[0])


@pytest.mark.parametrize("formats", FORMATS, ids=NAMES)
@pytest.mark.parametrize("idle", [[0], [1, 2], [0, 1, 2]])
def test_idle_rows_write_nothing(idle: list[int], formats: Formats) -> None:
    lengths = [0 if row in idle else length for row, length in enumerate([18, 30, 7])]
    given = make([18, 30, 7], 4, 2, 8, queries=2, page_size=16, formats=formats)
    given = given._replace(lengths=torch.tensor(lengths, dtype=torch.int))
    # Their block tables may name pages of others.
    given.pages.block_table[idle] = given.pages.block_table[2].clone()
    before = copied(given.pages)
    k, v = torch.randn(2, 3, 2, 2, 8)
    given.pages.write(k, v, given.lengths - 2)
    parts = *formats[0].quantize(k), *formats[1].quantize(v)
    for stored, were, new in zip(
        (*given.pages.keys, *given.pages.values), (*before.keys, *before.values), parts, strict=True
    ):
        for row, length in enumerate(lengths):
            for i in range(2 if length else 0):
                position = length - 2 + i
                were[given.pages.block_table[row, position // 16], position % 16] = new[row, i]
        assert torch.equal(stored, were)


def test_slots_that_nobody_wrote_do_not_matter() -> None:
    given = make([20], 2, 1, 8, page_size=16)
    expected = paged_attention(*given, scale=1.0)
    for states in (given.pages.keys[0], given.pages.values[0]):
        states[given.pages.block_table[0, 1], 4:] = torch.nan
    assert torch.equal(paged_attention(*given, scale=1.0), expected)


KERNEL = pytest.mark.skipif(
    not cpu_reads_pages((PLAIN, PLAIN), torch.float32, 64), reason="the kernel is for processors with AVX2"
)


@KERNEL
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(8, 4, 64), (5, 1, 40), (3, 3, 128)])
@pytest.mark.parametrize("window", [None, 70])
def test_the_kernel_of_the_cpu_is_the_reference(heads: int, kv_heads: int, dim: int, window: int | None) -> None:
    # Below and at the borders of blocks of keys and of pages; one sequence is idle.
    given = make([1, 63, 64, 65, 0, 128, 256, 257, 700], heads, kv_heads, dim, rotary=dim // 2)
    apart = given._replace(pages=copied(given.pages))
    out = paged_attention(*given, scale=dim**-0.5, window=window)
    expected = paged_attention_reference(*apart, scale=dim**-0.5, window=window)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(given.pages.keys, apart.pages.keys, atol=1e-6, rtol=1e-5)
    assert torch.equal(given.pages.values[0], apart.pages.values[0])


@KERNEL
def test_a_token_depends_neither_on_the_others_nor_on_pages_nor_on_threads() -> None:
    given = make([300, 5, 0, 200, 130], 8, 4, 64)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        together = paged_attention(*given, scale=0.125)
    finally:
        torch.set_num_threads(threads)
    keys, values = given.pages.gather(torch.float32)
    for row, length in enumerate(given.lengths.tolist()):
        # The sequence in order, in pages of 16 positions.
        parts = [(x[row].reshape(-1, 16, 4, 64),) for x in (keys, values)]
        pages = Pages(*parts, torch.arange(len(parts[0][0])).int().unsqueeze(0), PLAIN, PLAIN)
        alone = given.qkv[row, None], given.cos, given.sin, pages, torch.tensor([length], dtype=torch.int)
        assert torch.equal(paged_attention(*alone, scale=0.125)[0], together[row])


# Below and at the borders of tiles, pages and splits; one sequence is idle.
LENGTHS = [4, 15, 16, 17, 65, 255, 256, 257, 1000, 0, 3100]


def check_on_gpu(given: Attention, window: int | None = None, cap: float | None = None) -> None:
    """Pages and outputs are those of the reference, which works in float32 on the pages as the kernel left them."""
    heads, scale = given.qkv.shape[2] - 2 * given.pages.kv_heads, given.qkv.shape[3] ** -0.5
    before, workspace = copied(given.pages), AttentionWorkspace()
    torch.cuda.synchronize()
    attend = partial(paged_attention, scale=scale, window=window, cap=cap)
    outputs = [attend(*given, workspace=workspace)]
    rotated_states = rotated(given)
    check_pages(given, rotated_states[:, :, heads:], before)
    # The second call uses the workspace as the first has left it, and writes the same states again.
    outputs.append(attend(*given, workspace=workspace))
    expected = attend_pages(
        rotated_states[:, :, :heads].float(), in_floats(given.pages), given.lengths, scale=scale, window=window, cap=cap
    )
    bound = 1e-2 if given.qkv.dtype is torch.bfloat16 else 1e-3
    assert max(worst_error(out, expected) for out in outputs) < bound
    for row in {0, len(given.lengths) // 2, len(given.lengths) - 1}:  # alone, a sequence has more splits
        pages = replace(given.pages, block_table=given.pages.block_table[row : row + 1])
        torch.cuda.synchronize()
        alone = attend(given.qkv[row, None], given.cos, given.sin, pages, given.lengths[row, None])
        assert worst_error(alone, expected[row, None]) < bound


def rotated(given: Attention) -> torch.Tensor:
    """Queries and keys at their positions, computed in float32."""
    queries = given.qkv.shape[1]
    position = (given.lengths.view(-1, 1) - queries + torch.arange(queries, device=given.qkv.device)).clamp(min=0)
    cos, sin = given.cos.float()[position], given.sin.float()[position]
    return rotate(given.qkv[:, :, : -given.pages.kv_heads].float(), cos, sin).to(given.qkv.dtype)


def check_pages(given: Attention, new_keys: torch.Tensor, before: Pages) -> None:
    """New states are stored as the reference stores them, and no other slot changes."""
    pages, queries = given.pages, given.qkv.shape[1]
    expected = copied(before)
    expected.write(new_keys, given.qkv[:, :, -pages.kv_heads :], given.lengths - queries)
    new = torch.zeros(before.keys[0].shape[:2], dtype=torch.bool, device=given.qkv.device)
    for table, length in zip(before.block_table.tolist(), given.lengths.tolist(), strict=True):
        for position in range(max(0, length - queries), length):
            new[table[position // before.page_size], position % before.page_size] = True
    for stored, were in zip((*pages.keys, *pages.values), (*before.keys, *before.values), strict=True):
        assert torch.equal(stored[~new], were[~new])
    if isinstance(pages.value_quantization, Unquantized):
        assert torch.equal(pages.values[0][new], expected.values[0][new])
    for quantization, stored_parts, wanted_parts in (
        (pages.key_quantization, pages.keys, expected.keys),
        (pages.value_quantization, pages.values, expected.values),
    ):
        # Sums in another order may change a code by one, or the last bit of a float.
        states, wanted = (
            quantization.dequantize(tuple(x[new] for x in parts), torch.float) for parts in (stored_parts, wanted_parts)
        )
        # One of 15 steps is a large part of so few states.
        assert float((states - wanted).norm() / wanted.norm()) < (
            5e-3 if quantization.kernel_format == "group4" else 2e-3
        )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "rotary"),
    [
        (32, 8, 128, 128),
        (8, 4, 64, 64),
        (4, 4, 32, 32),
        (6, 1, 96, 96),
        (40, 1, 128, 64),
        (16, 8, 256, 256),
        (10, 2, 80, 32),
        (24, 2, 128, 128),
    ],
)
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize(("window", "cap"), [(None, None), (100, None), (None, 20.0), (1024, 5.0)])
def test_attention_on_a_gpu(
    heads: int,
    kv_heads: int,
    dim: int,
    rotary: int,
    queries: int,
    window: int | None,
    cap: float | None,
    dtype: torch.dtype,
    cuda: torch.device,
) -> None:
    given = make(LENGTHS, heads, kv_heads, dim, queries=queries, rotary=rotary, device=cuda).to(dtype)
    check_on_gpu(given, window, cap)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("formats", FORMATS[1:], ids=NAMES[1:])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(32, 8, 128), (8, 2, 64), (4, 4, 64), (6, 1, 256), (20, 1, 128)]
)
@pytest.mark.parametrize(("queries", "window", "cap"), [(1, None, None), (4, None, None), (1, 100, 20.0)])
def test_attention_over_quantized_pages_on_a_gpu(
    heads: int,
    kv_heads: int,
    dim: int,
    queries: int,
    window: int | None,
    cap: float | None,
    formats: Formats,
    dtype: torch.dtype,
    cuda: torch.device,
) -> None:
    given = make(LENGTHS, heads, kv_heads, dim, queries=queries, formats=formats, device=cuda).to(dtype)
    check_on_gpu(given, window, cap)


@pytest.mark.gpu
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 32), (6, 1, 96), (10, 2, 80)])
def test_truncated_floats_of_any_head_on_a_gpu(heads: int, kv_heads: int, dim: int, cuda: torch.device) -> None:
    given = make(LENGTHS, heads, kv_heads, dim, queries=4, rotary=32, formats=FLOAT8, device=cuda)
    check_on_gpu(given.to(torch.float16))


@pytest.mark.gpu
@pytest.mark.parametrize("queries", [2, 4, 8, 16])
@pytest.mark.parametrize("formats", FORMATS, ids=NAMES)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(32, 8, 128), (8, 4, 64), (6, 1, 256)])
def test_several_queries_of_a_batch_on_a_gpu(
    heads: int,
    kv_heads: int,
    dim: int,
    formats: Formats,
    queries: int,
    cuda: torch.device,
) -> None:
    """As drafts are verified: the lengths end before, at and after the borders of tiles and pages."""
    lengths = [16, 17, 31, 0, 33, 256, 258, 271, 272, 511, 900, 2047]
    given = make(lengths, heads, kv_heads, dim, queries=queries, formats=formats, device=cuda).to(torch.bfloat16)
    check_on_gpu(given)
    check_on_gpu(given, window=20)


@pytest.mark.gpu
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("formats", FORMATS, ids=NAMES)
def test_attention_in_torch_is_captured(formats: Formats, queries: int, cuda: torch.device) -> None:
    """A model in float32 has no kernels, but its steps are recorded as a graph, too."""
    given = make([3, 17, 40, 0], 6, 2, 8, queries=queries, page_size=16, formats=formats, device=cuda)
    before = copied(given.pages)
    graph = Graph(lambda: paged_attention(*given, scale=0.3))
    for stored, were in zip((*given.pages.keys, *given.pages.values), (*before.keys, *before.values), strict=True):
        stored.copy_(were)
    given.lengths.copy_(torch.tensor([0, 18, 39, 5]))
    given.qkv.normal_()
    out = graph().clone()
    expected = paged_attention(*given._replace(pages=before), scale=0.3)
    torch.testing.assert_close(out, expected)
    for stored, wanted in zip((*given.pages.keys, *given.pages.values), (*before.keys, *before.values), strict=True):
        assert torch.equal(stored, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [16, 64])
@pytest.mark.parametrize("formats", [(PLAIN, PLAIN), FLOAT8, GROUPS[1]], ids=["plain", "float8", "q6"])
def test_small_pages_on_a_gpu(page_size: int, formats: Formats, cuda: torch.device) -> None:
    given = make([1, 63, 64, 65, 700], 8, 2, 64, page_size=page_size, formats=formats, device=cuda)
    check_on_gpu(given.to(torch.float16))


@pytest.mark.gpu
@pytest.mark.parametrize("formats", FORMATS, ids=NAMES)
def test_attention_over_a_long_context(formats: Formats, cuda: torch.device) -> None:
    given = make([32_768, 20_001], 8, 2, 128, formats=formats, device=cuda).to(torch.bfloat16)
    check_on_gpu(given)


@pytest.mark.gpu
def test_many_sequences_on_a_gpu(cuda: torch.device) -> None:
    lengths = torch.randint(1, 600, (200,)).tolist()
    check_on_gpu(make(lengths, 8, 4, 64, device=cuda).to(torch.bfloat16))

"""Decode steps over pages give the logits of ordinary passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain.errors import GenerationError
from constrain.model import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2CacheBase,
    Intervention,
    decode,
)
from constrain.model.decode import Decoder, DecodeRow
from constrain.model.paged import PagedRow

SIZE = 16
FAMILIES = [
    "llama",
    "llama_biases",
    "llama_tied",
    "mistral_window",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3_window",
]
PAGES = [[5, 1], [3, 2], [0, 4], [6, 7]]


def rows(ids: torch.Tensor, start: int, end: int, logits: int) -> list[PagedRow]:
    """The same part of every sequence."""
    return [PagedRow(row[start:end], start, pages, SIZE, logits) for row, pages in zip(ids, PAGES, strict=False)]


def prefilled(model: Any, ids: torch.Tensor, kind: type[ExLlamaV2CacheBase] = ExLlamaV2Cache) -> ExLlamaV2CacheBase:
    cache = kind(model, max_seq_len=8 * SIZE)
    model.forward_paged(rows(ids, 0, 13, 0), cache)
    return cache


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(3, 99, (3, 21), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_give_the_logits_of_ordinary_passes(checkpoint: Any, ids: torch.Tensor, name: str) -> None:
    model = checkpoint(name).load()
    expected_cache, cache = prefilled(model, ids), prefilled(model, ids)
    decoder = Decoder(model, cache, SIZE)
    for i in range(13, 21):  # across the border of a page
        expected = model.forward_paged(rows(ids, i, i + 1, 1), expected_cache)
        torch.testing.assert_close(decoder.logits(rows(ids, i, i + 1, 1)), expected, atol=2e-4, rtol=1e-3)
    # Idle rows have written nothing.
    for got, wanted in zip(cache.all_tensors(), expected_cache.all_tensors(), strict=True):
        torch.testing.assert_close(got, wanted, atol=2e-4, rtol=1e-3)


def tokens_ahead(decoder: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Logits behind tokens 13 to 18 of the first sequence, in one step."""
    row = DecodeRow(int(ids[0, 13]), 13, PAGES[0], ahead=ids[0, 14:19].tolist())
    with torch.no_grad():
        return decoder.model.decode_logits(decoder.run([row]).states)[:6]


@pytest.mark.parametrize("name", FAMILIES)
def test_tokens_ahead_give_the_logits_of_single_steps(checkpoint: Any, ids: torch.Tensor, name: str) -> None:
    model = checkpoint(name).load()
    cache = prefilled(model, ids)
    expected = [model.forward_paged(rows(ids[:1], i, i + 1, 1), cache)[0] for i in range(13, 19)]
    logits = tokens_ahead(Decoder(model, prefilled(model, ids), SIZE), ids)
    torch.testing.assert_close(logits, torch.stack(expected), atol=2e-4, rtol=1e-3)


def test_tokens_ahead_fit_into_pages(llama_model: Any) -> None:
    decoder = Decoder(llama_model, ExLlamaV2Cache(llama_model, max_seq_len=8 * SIZE), SIZE)
    ahead = range(20)
    for past, most in ((0, 20), (SIZE + 1, 7), (SIZE + 8, 7), (SIZE + 9, 3), (2 * SIZE - 2, 1), (2 * SIZE - 1, 0)):
        assert len(decoder.fitting(DecodeRow(3, past, [0, 1], ahead=ahead))) == most


@pytest.mark.parametrize("kind", [ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q4, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q8])
def test_steps_over_quantised_caches(llama_model: Any, ids: torch.Tensor, kind: type[ExLlamaV2CacheBase]) -> None:
    expected_cache, cache = (prefilled(llama_model, ids, kind) for _ in range(2))
    decoder = Decoder(llama_model, cache, SIZE)
    for i in range(13, 21):
        expected = llama_model.forward_paged(rows(ids, i, i + 1, 1), expected_cache)
        # Rounding may turn a code into the one beside it.
        torch.testing.assert_close(decoder.logits(rows(ids, i, i + 1, 1)), expected, atol=0.02, rtol=0)


def test_ids_outside_of_the_vocabulary(llama_model: Any) -> None:
    decoder = Decoder(llama_model, ExLlamaV2Cache(llama_model, max_seq_len=8 * SIZE), SIZE)
    for token in (-1, 99):
        with pytest.raises(GenerationError, match=rf"token id {token} is outside the model's vocabulary of 99"):
            decoder.logits([PagedRow(torch.tensor([token]), 0, [0], SIZE, 1)])


def test_a_model_with_hooks_takes_ordinary_passes(llama_model: Any) -> None:
    assert llama_model.is_decodable
    llama_model.modules[3] = Intervention(llama_model.modules[3])
    assert not llama_model.is_decodable


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mistral", "qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize("graphs", [True, False])
def test_steps_on_a_gpu(checkpoint: Any, ids: torch.Tensor, name: str, graphs: bool) -> None:
    folder = checkpoint(name)
    expected = folder.logits(ids)
    model = folder.load(compute_dtype=torch.float16, no_graphs=not graphs)
    cache = prefilled(model, ids)
    for i in range(13, 21):
        logits = model.forward_paged(rows(ids, i, i + 1, 1), cache)
        assert cache._decoder is not None
        error = (logits.cpu().float()[:, :99] - expected[:, i]).norm() / expected[:, i].norm()
        assert error < 0.02
    ahead = tokens_ahead(Decoder(model, prefilled(model, ids), SIZE), ids).cpu().float()[:, :99]
    for logits, wanted in zip(ahead, expected[0, 13:19], strict=True):
        assert (logits - wanted).norm() / wanted.norm() < 0.02


def test_rotations_are_kept_for_positions_that_a_sequence_may_have(
    llama_model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ExLlamaV2Cache(llama_model, max_seq_len=4096)
    assert len(Decoder(llama_model, cache, SIZE)._full.cos) == 1024
    monkeypatch.setattr(decode, "supports", lambda *_: True)
    longest, pages = llama_model.config.max_seq_len, list(range(100))
    last, beyond = (PagedRow(torch.tensor([5]), past, pages, SIZE, 1) for past in (longest - 1, longest))
    assert decode.takes(llama_model, cache, [last]) and not decode.takes(llama_model, cache, [last, beyond])

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch

from constrain.errors import TokenizerError
from constrain.tokenizer import ExLlamaV2Tokenizer

TEXTS = ["the theory", "Hello  world\n", "tabs\tand é€😀 ünïcode", " leading", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_a_round_trip(tokenizer: ExLlamaV2Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids.dtype == torch.long and ids.shape[0] == 1
    assert tokenizer.decode(ids) == [text]
    assert tokenizer.decode(ids[0]) == text
    assert tokenizer.num_tokens(text) == ids.shape[1]


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_come_with_the_same_ids(tokenizer: ExLlamaV2Tokenizer, text: str) -> None:
    backend = tokenizer.tokenizer_model
    ids, offsets = backend.encode_with_offsets(text)
    assert ids == backend.encode(text) == backend.hf_tokenizer.encode(text, add_special_tokens=False).ids
    assert len(offsets) == len(ids) and all(0 <= start <= end <= len(text) for start, end in offsets)


@pytest.mark.parametrize("encode", ["encode", "encode_with_offsets"])
def test_other_threads_go_on_while_a_long_text_is_encoded(byte_level: ExLlamaV2Tokenizer, encode: str) -> None:
    method: Callable[[str], object] = getattr(byte_level.tokenizer_model, encode)
    with ThreadPoolExecutor(1) as pool:
        began = last = time.perf_counter()
        longest = 0.0
        encoding = pool.submit(method, "The theory of these, " * 50_000)
        while not encoding.done():
            time.sleep(0.001)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert longest < (last - began) / 2


def test_bos_and_eos_surround_the_text(tokenizer: ExLlamaV2Tokenizer) -> None:
    plain = tokenizer.encode("the")[0].tolist()
    both = tokenizer.encode("the", add_bos=True, add_eos=True)[0].tolist()
    assert both == [tokenizer.bos_token_id, *plain, tokenizer.eos_token_id]


def test_a_batch_is_padded_on_the_left(byte_level: ExLlamaV2Tokenizer) -> None:
    ids, offsets = byte_level.encode(["the theory of these", "", "the"], return_offsets=True)
    width, short = ids.shape[1], byte_level.num_tokens("the")
    assert ids.dtype == torch.long and offsets.dtype == torch.int
    assert offsets.tolist() == [0, -width, short - width]
    assert ids[1].tolist() == [byte_level.pad_token_id] * width
    assert byte_level.decode(ids) == ["the theory of these", "", "the"]
    mask = byte_level.padding_mask(ids)
    assert mask.dtype == torch.half and mask[0].tolist() == [0.0] * width
    assert mask[2].tolist() == [-torch.inf] * (width - short) + [0.0] * short


def test_a_batch_of_nothing_keeps_its_shape(byte_level: ExLlamaV2Tokenizer) -> None:
    assert byte_level.encode("").shape == (1, 0)
    assert byte_level.encode(["", ""]).shape == (2, 0)
    ids, offsets = byte_level.encode("", return_offsets=True)
    assert ids.dtype == torch.long and offsets.tolist() == [0]


def test_without_a_padding_token_the_end_token_pads(sentencepiece: ExLlamaV2Tokenizer) -> None:
    assert sentencepiece.pad_token_id == sentencepiece.eos_token_id == 2
    assert sentencepiece.encode(["the world", ""])[1].eq(2).all()


def test_special_tokens_are_hidden_unless_asked_for(byte_level: ExLlamaV2Tokenizer) -> None:
    ids = byte_level.encode("the", add_bos=True, add_eos=True)[0]
    assert byte_level.decode(ids) == "the"
    assert byte_level.decode(ids, decode_special_tokens=True) == "<s>the</s>"


def test_decoding_does_not_stop_at_the_end_token(byte_level: ExLlamaV2Tokenizer) -> None:
    one, end = byte_level.encode("the")[0], torch.tensor([byte_level.eos_token_id])
    assert byte_level.decode(torch.cat([one, end, one])) == "thethe"


def test_ids_that_no_token_has_vanish(byte_level: ExLlamaV2Tokenizer) -> None:
    ids = torch.tensor([*byte_level.encode("the")[0].tolist(), -1, 5000, 1_000_000_000])
    assert byte_level.decode(ids) == "the"
    assert byte_level.decode(ids, decode_special_tokens=True) == "the"


def test_special_literals_in_the_text(with_tool_token: ExLlamaV2Tokenizer) -> None:
    side, tool = with_tool_token.single_id("<side>"), with_tool_token.single_id("<tool>")
    text = "the<side>the<tool>"
    ids = with_tool_token.encode(text, encode_special_tokens=True)[0].tolist()
    the = with_tool_token.encode("the")[0].tolist()
    assert ids == [*the, side, *the, tool]
    assert with_tool_token.decode(torch.tensor(ids), decode_special_tokens=True) == text
    assert side not in with_tool_token.encode(text)[0].tolist()


def test_decode_takes_tensors_only(byte_level: ExLlamaV2Tokenizer) -> None:
    row = byte_level.encode("the")
    assert byte_level.decode([row, row[0]]) == [["the"], "the"]
    for wrong in ([1, 2], torch.zeros(1, 1, 1, dtype=torch.long)):
        with pytest.raises(TokenizerError, match="tensor"):
            byte_level.decode(wrong)  # type: ignore[arg-type]


@dataclass
class Image:
    text_alias: str
    ids: list[int]

    def get_ids(self) -> list[int]:
        return self.ids


def test_an_embedding_alias_becomes_its_ids(byte_level: ExLlamaV2Tokenizer) -> None:
    the = byte_level.encode("the")[0].tolist()
    ids = byte_level.encode("the<image>the", embeddings=[Image("<image>", [1_000_000_000, 1_000_000_001])])[0].tolist()
    assert ids == [*the, 1_000_000_000, 1_000_000_001, *the]


def test_an_alias_may_begin_with_another(byte_level: ExLlamaV2Tokenizer) -> None:
    images = [Image(f"IMG{number}", [1_000_000_000 + number]) for number in (1, 10, 101)]
    ids = byte_level.encode("IMG101IMG1IMG10", embeddings=images)[0].tolist()
    assert ids == [1_000_000_101, 1_000_000_001, 1_000_000_010]


def test_cached_strings_are_forgotten_oldest_first(byte_level: ExLlamaV2Tokenizer) -> None:
    byte_level.max_cached_strings = 2
    first = byte_level.cached_encode_str("the")
    assert byte_level.cached_encode_str("the") is first
    byte_level.cached_encode_str("a")
    byte_level.cached_encode_str("b")
    assert list(byte_level.tokenized_str_cache) == ["a", "b"]

"""Behaviour that programs for exllamav2 rely on, through the alias.

Each generator has a file of its own. The formats EXL2 and GPTQ have nothing to do with the alias: see
``tests/model/test_formats.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch


@pytest.mark.usefixtures("loaded")
def test_everything_is_imported_under_the_names_of_exllamav2() -> None:
    from exllamav2.generator.base import ExLlamaV2Filter
    from exllamav2.generator.filters import ExLlamaV2Filter as TheSame

    assert ExLlamaV2Filter is TheSame and hasattr(ExLlamaV2Filter, "allow_return_type_list")
    found: dict[str, Any] = {}
    exec("from exllamav2 import *\nfrom exllamav2.generator import *", found)
    names = """ExLlamaV2 ExLlamaV2Config ExLlamaV2CacheBase ExLlamaV2Cache ExLlamaV2Cache_8bit ExLlamaV2Cache_Q4
        ExLlamaV2Cache_Q6 ExLlamaV2Cache_Q8 ExLlamaV2Cache_TP ExLlamaV2Tokenizer ExLlamaV2Lora SeqTensor Timer
        Intervention ExLlamaV2MultimodalProjector ExLlamaV2VisionTower ExLlamaV2Sampler ExLlamaV2BaseGenerator
        ExLlamaV2StreamingGenerator ExLlamaV2DynamicGenerator ExLlamaV2DynamicJob
        ExLlamaV2DynamicGeneratorAsync ExLlamaV2DynamicJobAsync
        ExLlamaV2MMEmbedding ExLlamaV2PostSamplingHook ExLlamaV2PostSamplingResult"""
    assert set(names.split()) <= found.keys()


@pytest.mark.parametrize("devices", [None, ["cpu"] * 3])
def test_tensor_parallel_models(loaded: Any, devices: list[str] | None) -> None:
    from exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_Q4, ExLlamaV2Cache_TP, ExLlamaV2Config
    from exllamav2.generator import ExLlamaV2BaseGenerator, ExLlamaV2DynamicGenerator, ExLlamaV2Sampler

    config = ExLlamaV2Config(loaded.config.model_dir)
    config.no_graphs = True
    model = ExLlamaV2(config)
    seen = list(
        model.load_tp_gen(
            None,
            callback_gen=lambda index, total: iter([(index, total)]),
            expect_cache_base=ExLlamaV2Cache_Q4,
            expect_cache_tokens=512,
            **({"devices": devices} if devices else {}),
        )
    )
    assert seen[-1] == (len(model.modules),) * 2 and model.tp_context is not None
    cache = ExLlamaV2Cache_TP(model, base=ExLlamaV2Cache_Q4, max_seq_len=512, batch_size=1)
    assert {type(each) for each in cache.caches} == {ExLlamaV2Cache_Q4}
    cache = ExLlamaV2Cache_TP(model, max_seq_len=512)
    greedy = ExLlamaV2Sampler.Settings.greedy()
    texts = [
        ExLlamaV2DynamicGenerator(of, kept, loaded.tokenizer).generate("hello there", 20, gen_settings=greedy)
        for of, kept in ((loaded.model, ExLlamaV2Cache(loaded.model, max_seq_len=512)), (model, cache))
    ]
    assert texts[0] == texts[1]
    rows = [
        ExLlamaV2BaseGenerator(of, kept, loaded.tokenizer).generate_simple(["hello there", "yes"], greedy, 8)
        for of, kept in (
            (loaded.model, ExLlamaV2Cache(loaded.model, 2, max_seq_len=256)),
            (model, ExLlamaV2Cache_TP(model, batch_size=2, max_seq_len=256)),
        )
    ]
    assert rows[0] == rows[1]


def test_what_a_tokenizer_offers(loaded: Any) -> None:
    from exllamav2 import ExLlamaV2Tokenizer

    tokenizer = loaded.tokenizer
    assert tokenizer.tokenizer is tokenizer.tokenizer_model and hasattr(tokenizer.tokenizer_model, "vocab")
    assert hash(tokenizer) != hash(ExLlamaV2Tokenizer(loaded.config)) and {tokenizer: 1}[tokenizer] == 1
    names = ("unspecial_piece_to_id", "unspecial_id_to_piece", "extended_id_to_piece", "extended_piece_to_id")
    for name in names:
        setattr(ExLlamaV2Tokenizer, name, {})
    try:
        assert ExLlamaV2Tokenizer(loaded.config).extended_id_to_piece == tokenizer.extended_id_to_piece != {}
    finally:
        for name in names:
            delattr(ExLlamaV2Tokenizer, name)


def test_encode_and_decode(loaded: Any) -> None:
    tokenizer = loaded.tokenizer
    empty = tokenizer.encode("")
    assert (empty.shape, empty.dtype) == ((1, 0), torch.int64)
    ids, offsets = tokenizer.encode(["hello there", "no", ""], return_offsets=True)
    assert ids.dtype == torch.int64 and offsets.dtype == torch.int32
    lengths = [tokenizer.num_tokens(text) for text in ("hello there", "no", "")]
    assert offsets.tolist() == [length - max(lengths) for length in lengths]
    assert all(
        (row[: -int(offset)] == tokenizer.pad_token_id).all() for row, offset in zip(ids[1:], offsets[1:], strict=True)
    )
    assert tokenizer.decode(ids[0]) == "hello there"
    assert tokenizer.decode(ids) == ["hello there", "no", ""]
    assert tokenizer.decode(ids[:1]) == ["hello there"]


@pytest.mark.usefixtures("loaded")
def test_settings_and_their_defaults() -> None:
    from exllamav2.generator import ExLlamaV2Sampler

    settings = ExLlamaV2Sampler.Settings
    for field in fields(settings):
        assert getattr(settings(**{field.name: "x"}), field.name) == "x"
    greedy = settings.greedy(cfg_scale=1.5)
    assert (greedy.cfg_scale, greedy.top_k, greedy.temperature, greedy.token_repetition_penalty) == (1.5, 1, 1.0, 1.0)
    greedy.some_name_of_a_client = 1


def test_forward_passes_and_caches(loaded: Any) -> None:
    model, cache, config = loaded.model, loaded.cache, loaded.config
    cache.current_seq_len = 0
    ids = torch.arange(3, 10).unsqueeze(0)
    assert model.forward(ids, cache, preprocess_only=True) is None
    assert cache.current_seq_len == 7
    logits = model.forward(ids, cache)
    width = -(-config.vocab_size // 32) * 32
    assert logits.shape == (1, 7, width) and cache.current_seq_len == 14
    assert width > config.vocab_size and (logits[..., config.vocab_size :] == -65504).all()
    assert model.forward(ids, cache, last_id_only=True).shape == (1, 1, width)
    assert model.forward(ids[:, :0], cache) is None
    cache.current_seq_len = 0


def test_ways_to_load_a_model(loaded: Any) -> None:
    from exllamav2 import ExLlamaV2, ExLlamaV2Cache

    def progress(index: int, total: int) -> Iterator[tuple[int, int]]:
        yield index, total

    model = ExLlamaV2(loaded.config)
    total = len(model.modules)
    expected = [(index, total) for index in range(total + 1)]
    assert not model.loaded and list(model.load_gen(callback_gen=progress)) == expected and model.loaded
    calls: list[tuple[int, int]] = []
    ExLlamaV2(loaded.config).load(callback=lambda *call: calls.append(call))
    assert calls == expected
    other = ExLlamaV2(loaded.config)
    assert list(other.load_autosplit_gen(ExLlamaV2Cache(other, lazy=True), callback_gen=progress)) == expected

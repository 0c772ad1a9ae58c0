"""Models whose layers are split over devices, against the same models on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoints import Family, make_checkpoint

from constrain.errors import CacheError, ModelError, WeightsError
from constrain.kernels import GroupedWeight, Int4Weight, peer_sum_reference
from constrain.kernels.weights.grouped import GroupedInt3Weight
from constrain.model import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Cache_TP,
    ExLlamaV2CacheBase,
    ExLlamaV2Config,
    ExLlamaV2MMEmbedding,
    Intervention,
    shard_group,
)
from constrain.model.forward_context import ForwardContext
from constrain.model.memory import module_sizes
from constrain.model.shard_layout import Slice
from constrain.model.shard_memory import shard_bytes
from constrain.model.shard_source import ShardSource, WholeTensors
from constrain.model.sharding import ShardingPlan
from constrain.model.shares import best_unit, divide

#: Families with tied heads, biases, one fused tensor of queries, keys and values, sinks and stacked experts,
#: shared experts, norms after halves of layers, latent attention, attention and MLP in parallel, heads that are
#: normalised together.
KINDS = [
    "llama_tied",
    "llama_biases",
    "phi3",
    "gpt_oss",
    "qwen2_moe",
    "gemma2",
    "deepseek_v3",
    "cohere_qk_norm",
    "olmo2",
]


def sharded(folder: Path, shards: int, **settings: Any) -> ExLlamaV2:
    config = ExLlamaV2Config(folder)
    for name, value in settings.items():
        setattr(config, name, value)
    model = ExLlamaV2(config)
    # One device for torch, and several with their own copies for the model.
    model.load_tp(devices=["cpu", "cpu:0", "cpu:1", "cpu:2"][:shards])
    return model


def plan_of(model: ExLlamaV2) -> ShardingPlan:
    assert model.tp_context is not None
    return model.tp_context


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for the order of sums: to 1e-5 of the largest logit."""
    size = expected[..., :99].abs().max()
    torch.testing.assert_close(found / size, expected / size, atol=1e-5, rtol=0)


def test_every_family_computes_the_same(family: Any, ids: torch.Tensor) -> None:
    expected = family.load().forward(ids)
    model = sharded(family.folder, 3)
    assert_same(model.forward(ids), expected)
    cache = ExLlamaV2Cache_TP(model, batch_size=2)
    model.forward(ids[:, :13], cache, preprocess_only=True)
    assert_same(model.forward(ids[:, 13:], cache), expected[:, 13:])
    keys, values = cache.get_kv_state(0, 2, 0, 13)
    assert [each.shape[:2] for each in keys + values] == [(2, cache.max_seq_len)] * (2 * len(cache.caches))
    cache.store_kv_state(0, 2, 0, 13)


@pytest.mark.parametrize(("kind", "shards"), [("llama", 1), *((kind, shards) for kind in KINDS for shards in (2, 4))])
def test_any_number_of_shards_computes_the_same(
    checkpoint: Callable[[str], Any], ids: torch.Tensor, kind: str, shards: int
) -> None:
    whole = checkpoint(kind)
    assert_same(sharded(whole.folder, shards).forward(ids), whole.load().forward(ids))


class ReferencePeerSum:
    """The reference, which overwrites the parts as :class:`constrain.kernels.PeerSum` may, and counts its sums."""

    def __init__(self, devices: Sequence[torch.device], largest: int) -> None:
        self.devices, self.largest, self.sums = devices, largest, 0

    def takes(self, part: torch.Tensor) -> bool:
        return part.nbytes <= self.largest

    def __call__(self, parts: Sequence[torch.Tensor], residuals: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        self.sums += 1
        sums = peer_sum_reference(parts, residuals)
        return [part.copy_(own) for part, own in zip(parts, sums, strict=True)]


@pytest.mark.parametrize(
    ("kind", "shards", "largest", "sums"),
    [
        ("llama", 2, 1 << 30, 2),  # attention and MLP
        ("gemma2", 2, 1 << 30, 2),  # norms between the sum and the residual
        ("llama", 4, 1 << 30, 1),  # only two shards have heads
        ("llama", 2, 16, 0),
    ],
)
def test_small_sums_of_all_shards_are_exchanged(
    checkpoint: Callable[[str], Any],
    ids: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    shards: int,
    largest: int,
    sums: int,
) -> None:
    made: list[ReferencePeerSum] = []

    def make(devices: Sequence[torch.device]) -> ReferencePeerSum:
        made.append(ReferencePeerSum(devices, largest))
        return made[-1]

    monkeypatch.setattr(shard_group, "can_access_peers", lambda devices: True)
    monkeypatch.setattr(shard_group, "PeerSum", make)
    whole = checkpoint(kind)
    model = sharded(whole.folder, shards)
    assert_same(model.forward(ids), whole.load().forward(ids))
    assert sum(each.sums for each in made) == sums * model.config.num_hidden_layers


@pytest.mark.parametrize("kind", ["llama_tied", "phi3", "gpt_oss", "mixtral", "deepseek_v3"])
def test_shards_are_loaded_from_tensors_that_are_read_ahead(
    checkpoint: Callable[[str], Any], ids: torch.Tensor, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As onto GPUs: each tensor is read once, in the order in which the modules ask for it."""
    whole, source = checkpoint(kind), ExLlamaV2._source
    expected = whole.load().forward(ids)
    monkeypatch.setattr(ExLlamaV2, "_source", lambda self, devices: source(self, [torch.device("cuda")]))
    assert_same(sharded(whole.folder, 3).forward(ids), expected)


def test_heads_that_do_not_divide(tmp_path: Path, ids: torch.Tensor) -> None:
    whole = make_checkpoint(tmp_path, Family("Llama", {"num_attention_heads": 6, "num_key_value_heads": 3}).config())
    model = sharded(tmp_path, 2)
    shares = plan_of(model).layers[0]
    assert (shares.heads, shares.kv_heads) == ((range(4), range(4, 6)), (range(2), range(2, 3)))
    assert_same(model.forward(ids), whole.load().forward(ids))
    assert [cache.num_key_value_heads for cache in ExLlamaV2Cache_TP(model).caches] == [2, 1]


def test_shards_without_heads_have_no_cache(llama: Any) -> None:
    model = sharded(llama.folder, 4)
    shares = plan_of(model).layers[0]
    assert [len(heads) for heads in shares.kv_heads] == [1, 1, 0, 0] and all(len(part) for part in shares.inner)
    assert len(ExLlamaV2Cache_TP(model).caches) == 2


@pytest.mark.parametrize("base", [ExLlamaV2Cache, ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q4, ExLlamaV2Cache_Q8])
def test_caches_of_every_kind(llama: Any, ids: torch.Tensor, base: type[ExLlamaV2CacheBase]) -> None:
    whole, model = llama.load(), sharded(llama.folder, 2)
    expected = base(whole, batch_size=2, max_seq_len=128)
    cache = ExLlamaV2Cache_TP(model, base=base, batch_size=2, max_seq_len=128)
    for part in (ids[:, :13], ids[:, 13:]):
        assert_same(model.forward(part, cache), whole.forward(part, expected))
    assert cache.current_seq_len == 21 and cache.dtype is expected.dtype
    assert [type(each) for each in cache.caches] == [base, base]
    assert sum(each.nbytes for each in cache.all_tensors()) == sum(each.nbytes for each in expected.all_tensors())
    assert cache.layer_bytes() == expected.layer_bytes()


def test_a_copy_of_a_cache_goes_its_own_way(llama: Any, ids: torch.Tensor) -> None:
    model = sharded(llama.folder, 2)
    cache = ExLlamaV2Cache_TP(model, batch_size=2)
    model.forward(ids[:, :13], cache)
    copy = cache.clone()
    continued = model.forward(ids[:, 13:], cache)
    assert (copy.current_seq_len, cache.current_seq_len) == (13, 21)
    assert torch.equal(model.forward(ids[:, 13:], copy), continued)


def test_caches_and_models_that_do_not_fit_together(llama: Any, llama_model: ExLlamaV2) -> None:
    with pytest.raises(CacheError, match=r"use ExLlamaV2Cache_TP\(model, base=...\)"):
        ExLlamaV2Cache(sharded(llama.folder, 2))
    with pytest.raises(CacheError, match="needs a model loaded with load_tp"):
        ExLlamaV2Cache_TP(llama_model)
    with pytest.raises(CacheError, match="a class of caches"):
        ExLlamaV2Cache_TP(sharded(llama.folder, 2), base=dict)  # type: ignore[arg-type]


@pytest.mark.parametrize("hook", [lambda x, context: x * 1.5, lambda x, context: x.mul_(1.5)])
def test_states_that_a_hook_changes_reach_all_shards(llama: Any, ids: torch.Tensor, hook: Any) -> None:
    whole, model = llama.load(), sharded(llama.folder, 2)
    plain = whole.forward(ids)
    for each in (whole, model):
        each.modules[3] = Intervention(each.modules[3], pre_forward=hook)
        each.modules[4] = Intervention(each.modules[4], post_forward=hook)
    assert_same(model.forward(ids), whole.forward(ids))
    assert not torch.allclose(whole.forward(ids), plain)


def test_embeddings_with_states_for_layers(llama: Any, ids: torch.Tensor) -> None:
    whole, model = llama.load(), sharded(llama.folder, 2)
    block = ExLlamaV2MMEmbedding(whole, torch.randn(4, 48, generator=torch.Generator().manual_seed(3)))
    block.added = torch.randn(2, 4, 48, generator=torch.Generator().manual_seed(4))
    mixed = ids.clone()
    mixed[0, 3:7] = block.get_ids_tensor()[0]
    assert_same(*(each.forward(mixed, indexed_embeddings=[block]) for each in (model, whole)))


def test_logits_of_some_tokens(llama: Any, ids: torch.Tensor) -> None:
    model, tokens = sharded(llama.folder, 3), torch.tensor([98, 3, 40, 39, 64])
    logits, states = model.forward(ids, return_last_state=True)
    context = ForwardContext(SimpleNamespace(to=lambda device: None))  # type: ignore[arg-type]
    torch.testing.assert_close(model.head(states, context, tokens), logits[..., tokens])


@pytest.mark.parametrize("kind", ["llama_biases", "gpt_oss"])
def test_the_first_device_may_have_room_for_the_embedding_only(
    checkpoint: Callable[[str], Any], ids: torch.Tensor, kind: str
) -> None:
    whole = checkpoint(kind)
    model = ExLlamaV2(ExLlamaV2Config(whole.folder))
    embedding = module_sizes(model)[0] + module_sizes(model)[-2]
    room = (embedding + 8) / 1024**3
    model.load_tp(gpu_split=[room, 1], devices=["cpu", "cpu:0"])
    assert not plan_of(model).layers[0].inner[0]
    assert_same(model.forward(ids), whole.load().forward(ids))


def test_memory_is_shared_out(llama: Any) -> None:
    whole, model = ExLlamaV2(ExLlamaV2Config(llama.folder)), sharded(llama.folder, 2)
    cache = ExLlamaV2Cache(whole, lazy=True)
    sizes = shard_bytes(whole, plan_of(model), cache)
    total = sum(module_sizes(whole)) + 3 * cache.layer_bytes()
    only_first = (99 + 29) * 48 * 4 + 48 * 4
    assert sum(sizes) == pytest.approx(total, abs=16) and sizes[0] - sizes[1] == pytest.approx(only_first, rel=0.01)
    assert module_sizes(model) == module_sizes(whole)


def test_mistakes_are_named(llama: Any, llama_model: ExLlamaV2) -> None:
    def load(**options: Any) -> None:
        ExLlamaV2(ExLlamaV2Config(llama.folder)).load_tp(**options)

    with pytest.raises(ModelError, match="has not been loaded"):
        llama_model.load_tp()
    with pytest.raises(ModelError, match="all GPUs or all the CPU"):
        load(devices=["cpu", "cuda:0"])
    with pytest.raises(ModelError, match="one device or more"):
        load(devices=[])
    with pytest.raises(ModelError, match="no_such_device"):
        load(devices=["no_such_device"])
    with pytest.raises(ModelError, match="there is no cuda:99"):
        load(devices=["cuda:99"])
    with pytest.raises(ModelError, match="2 numbers for 3 devices"):
        load(devices=["cpu"] * 3, gpu_split=[1, 1])
    with pytest.raises(ModelError, match=r"shard 0, on cpu, needs 0.00 GiB of 0.00"):
        load(devices=["cpu"] * 2, gpu_split=[1e-6, 4])


def test_shares_follow_the_split(llama: Any) -> None:
    model = ExLlamaV2(ExLlamaV2Config(llama.folder))
    model.load_tp(gpu_split=[1, 3], devices=["cpu", "cpu"])
    assert [len(part) for part in plan_of(model).layers[0].inner] == [16, 64]
    assert model.get_cache_devices() == ["cpu"]


def _grouped(kind: type[GroupedWeight], inputs: int, size: int, zeros: bool) -> GroupedWeight:
    random = torch.Generator().manual_seed(0)
    groups = -(-inputs // size)
    codes = torch.randint(0, 256, (8, inputs * (kind.kind % 100) // 8), dtype=torch.uint8, generator=random)
    points = torch.randint(0, 8, (8, groups), dtype=torch.uint8, generator=random) if zeros else None
    return kind(codes, torch.rand(8, groups, generator=random), size, points)


@pytest.mark.parametrize("part", [range(64), range(64, 192), range(96, 192), range(32, 64)])
@pytest.mark.parametrize("size", [32, 64, 192])
def test_groups_of_some_inputs(part: range, size: int) -> None:
    weight = _grouped(Int4Weight, 192, size, zeros=True)
    found = weight.columns(part)
    assert found is not None and found.shape == (8, len(part))
    expected = weight.dequantized(slice(0, 8), torch.float32)[:, part.start : part.stop]
    assert torch.equal(found.dequantized(slice(0, 8), torch.float32), expected)


def test_inputs_that_share_a_byte_stay_together() -> None:
    weight = _grouped(GroupedInt3Weight, 96, 32, zeros=False)
    assert weight.columns(range(36)) is None and weight.columns(range(48)) is not None
    ordered = replace(weight, order=torch.arange(96).flip(0).int())
    assert ordered.columns(range(48)) is None
    source = SimpleNamespace(packed=lambda *_: weight)
    part = Slice((8, 96), 1, (range(36),), by_inputs=True)
    with pytest.raises(WeightsError, match=r"o_proj.weight: the inputs of a GroupedInt3Weight cannot be split"):
        ShardSource(WholeTensors(source), {"o_proj.weight": part}).packed(  # type: ignore[arg-type]
            "o_proj.weight", (8, 36), torch.device("cpu")
        )


@pytest.mark.parametrize(
    ("total", "weights", "unit", "expected"),
    [
        (8, [1, 1], 1, [4, 4]),
        (3, [1, 1], 1, [2, 1]),
        (2, [1, 1, 1], 1, [1, 1, 0]),
        (112, [0.98, 1.0], 1, [55, 57]),
        (100, [1, 1, 1], 32, [64, 32, 4]),
        (8, [1, 0, 3], 1, [2, 0, 6]),
        (0, [1, 1], 1, [0, 0]),
    ],
)
def test_division(total: int, weights: list[float], unit: int, expected: list[int]) -> None:
    parts = divide(total, weights, unit)
    assert [len(part) for part in parts] == expected
    assert [index for part in parts for index in part] == list(range(total))


@pytest.mark.parametrize(
    ("total", "shards", "least", "expected"),
    [
        (14336, 2, 1, 128),
        (768, 4, 1, 64),
        (768, 5, 1, 32),
        (80, 3, 1, 4),
        (80, 2, 1, 8),
        (64, 3, 32, 32),
        (7, 2, 32, 7),
    ],
)
def test_units_of_division(total: int, shards: int, least: int, expected: int) -> None:
    assert best_unit(total, shards, least) == expected

"""Adapters against the same change written into the weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from constrain.errors import ArgumentError, ConfigError, GenerationError, ModelError, WeightsError
from constrain.model import ExLlamaV2, ExLlamaV2Config, ExLlamaV2Lora

RANK, ALPHA = 4, 6
IDS = torch.tensor([[1, 50, 3, 98, 17]])
TARGETS = {
    "self_attn.q_proj": (48, 48),
    "self_attn.v_proj": (48, 24),
    "mlp.up_proj": (48, 80),
    "mlp.down_proj": (80, 48),
}


PLAIN_TARGETS = {"self_attn.k_proj": (48, 24), "mlp.c_fc": (48, 80), "mlp.c_proj": (80, 48)}

LATENT_TARGETS = {
    "self_attn.q_a_proj": (48, 20),
    "self_attn.q_b_proj": (20, 80),
    "self_attn.kv_a_proj_with_mqa": (48, 32),
    "self_attn.kv_b_proj": (24, 88),
}


def adapter(layers: int = 3, seed: int = 0, targets: dict[str, tuple[int, int]] = TARGETS) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(layers):
        for name, (inputs, outputs) in targets.items():
            key = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(RANK, inputs, generator=generator) * 0.2
            tensors[f"{key}.lora_B.weight"] = torch.randn(outputs, RANK, generator=generator) * 0.2
    return tensors


def save(folder: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, **changes}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def merged(copy: Any, *adapters: tuple[dict[str, torch.Tensor], float]) -> torch.Tensor:
    """Logits of a model into whose weights ``factor * B A`` has been added."""
    for tensors, factor in adapters:
        for name, down in tensors.items():
            if "lora_A" in name:
                key = name.removeprefix("base_model.model.").replace(".lora_A", "")
                copy.tensors[key] = copy.tensors[key] + factor * tensors[name.replace("lora_A", "lora_B")] @ down
    model = ExLlamaV2(ExLlamaV2Config(copy.write()))
    model.load()
    logits: torch.Tensor = model.forward(IDS)
    return logits


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize(("rslora", "factor"), [(False, 0.5 * ALPHA / RANK), (True, 0.5 * ALPHA / RANK**0.5)])
def test_an_adapter_adds_its_product(
    llama_model: ExLlamaV2, llama_copy: Any, tmp_path: Path, rslora: bool, factor: float
) -> None:
    folder = save(tmp_path / "adapter", adapter(), use_rslora=rslora)
    lora = ExLlamaV2Lora.from_directory(llama_model, folder, 0.5)
    assert lora.lora_scaling == pytest.approx(factor)
    assert (lora.lora_r, lora.lora_alpha, len(lora.target_modules), len(lora.tensors)) == (RANK, ALPHA, 12, 24)
    plain = llama_model.forward(IDS)
    expected = merged(llama_copy, (adapter(), factor))
    close(llama_model.forward(IDS, loras=[lora]), expected)
    close(llama_model.forward(IDS, loras=lora), expected)
    assert (plain - expected).abs().max() > 0.1
    lora.unload()
    close(llama_model.forward(IDS), plain)
    with pytest.raises(GenerationError, match=r"adapter_model\.safetensors has been unloaded; load it again"):
        llama_model.forward(IDS, loras=[lora])


def test_adapters_belong_to_the_model_that_they_were_loaded_for(
    llama_model: ExLlamaV2, llama_copy: Any, tmp_path: Path
) -> None:
    other = ExLlamaV2(ExLlamaV2Config(llama_copy.write()))
    other.load()
    lora = ExLlamaV2Lora.from_directory(other, save(tmp_path / "adapter", adapter()))
    with pytest.raises(GenerationError, match="belongs to another model; load it for this one"):
        llama_model.forward(IDS, loras=lora)


@pytest.mark.parametrize("rslora", [False, True])
def test_layers_may_have_ranks_and_alphas_of_their_own(
    llama_model: ExLlamaV2, llama_copy: Any, tmp_path: Path, rslora: bool
) -> None:
    """By the end of their name, or the whole of it; the first that matches counts."""
    tensors = adapter()
    whole = "model.layers.1.self_attn.v_proj"
    ranks = {"self_attn.q_proj": 2, "proj": 1}
    alphas = {f"^{whole}$": 5, "v_proj": 3.5, "^layers.0.mlp.up_proj": 100, "0.mlp.down_proj": 9}
    for name, tensor in tensors.items():
        if "q_proj" in name:
            tensors[name] = tensor[:2].clone() if "lora_A" in name else tensor[:, :2].clone()
    folder = save(tmp_path / "adapter", tensors, rank_pattern=ranks, alpha_pattern=alphas, use_rslora=rslora)
    lora = ExLlamaV2Lora.from_directory(llama_model, folder)
    parts = []
    for key in (name.removesuffix(".lora_A.weight") for name in tensors if "lora_A" in name):
        alpha = 5 if whole in key else 3.5 if "v_proj" in key else 9 if "0.mlp.down" in key else ALPHA
        rank = 2 if "q_proj" in key else RANK
        pair = {name: tensor for name, tensor in tensors.items() if name.startswith(key)}
        parts.append((pair, alpha / (rank**0.5 if rslora else rank)))
    close(llama_model.forward(IDS, loras=lora), merged(llama_copy, *parts))


def test_several_adapters_add_up(llama_model: ExLlamaV2, llama_copy: Any, tmp_path: Path) -> None:
    first, second = adapter(), adapter(layers=2, seed=1)
    loras = [
        ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / str(number), tensors))
        for number, tensors in enumerate((first, second))
    ]
    expected = merged(llama_copy, (first, ALPHA / RANK), (second, ALPHA / RANK))
    close(llama_model.forward(IDS, loras=loras), expected)
    for lora in loras:
        lora.unload()


@pytest.mark.parametrize(
    ("name", "targets"), [("cohere", TARGETS), ("starcoder2", PLAIN_TARGETS), ("deepseek_v3", LATENT_TARGETS)]
)
def test_layers_of_other_forms_can_be_adapted(
    name: str, targets: dict[str, tuple[int, int]], checkpoint: Callable[[str], Any], copy_of: Any, tmp_path: Path
) -> None:
    model, tensors = checkpoint(name).load(), adapter(targets=targets)
    lora = ExLlamaV2Lora.from_directory(model, save(tmp_path / "adapter", tensors))
    expected = merged(copy_of(name), (tensors, ALPHA / RANK))
    assert (model.forward(IDS) - expected).abs().max() > 0.1
    close(model.forward(IDS, loras=[lora]), expected)


def test_experts_can_be_adapted(checkpoint: Callable[[str], Any], tmp_path: Path) -> None:
    """Some experts of a layer, and its router; two adapters of different ranks add up."""
    source = checkpoint("mixtral")
    model = source.load()
    generator = torch.Generator().manual_seed(0)
    at, loras = "model.layers.0.block_sparse_moe", []
    shapes = {"gate": (48, 8), "experts.1.w1": (48, 80), "experts.1.w3": (48, 80), "experts.6.w2": (80, 48)}
    copy = load_file(source.folder / "model.safetensors")
    for rank in (2, 3):
        tensors = {}
        for name, (inputs, outputs) in shapes.items():
            down, up = torch.randn(rank, inputs, generator=generator), torch.randn(outputs, rank, generator=generator)
            tensors |= {f"{at}.{name}.lora_A.weight": down * 0.2, f"{at}.{name}.lora_B.weight": up * 0.2}
            copy[f"{at}.{name}.weight"] += up @ down * 0.04 * ALPHA / rank
        loras.append(ExLlamaV2Lora.from_directory(model, save(tmp_path / str(rank), tensors, r=rank)))
    plain, adapted = model.forward(IDS), model.forward(IDS, loras=loras)
    (tmp_path / "model").mkdir()
    save_file(copy, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text((source.folder / "config.json").read_text())
    expected = ExLlamaV2(ExLlamaV2Config(tmp_path / "model"))
    expected.load()
    close(adapted, expected.forward(IDS))
    for lora in loras:
        lora.unload()
    close(model.forward(IDS), plain)
    assert (plain - adapted).abs().max() > 0.1


def test_sets_of_adapters_alternate(llama_model: ExLlamaV2, llama_copy: Any, tmp_path: Path) -> None:
    first, second = adapter(), adapter(layers=2, seed=1)
    one, two = (
        ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / str(number), tensors))
        for number, tensors in enumerate((first, second))
    )
    expected: dict[tuple[ExLlamaV2Lora, ...], torch.Tensor] = {(): llama_model.forward(IDS)}
    expected[(one,)] = merged(llama_copy, (first, ALPHA / RANK))
    expected[one, two] = merged(llama_copy, (second, ALPHA / RANK))
    for loras in ((one,), (one, two), (), (one,), (), (one, two)):
        close(llama_model.forward(IDS, loras=loras), expected[loras])
        close(llama_model.forward(IDS[:, :1], loras=loras), expected[loras][:, :1])


def test_fused_projections_can_be_adapted_as_one(checkpoint: Callable[[str], Any], tmp_path: Path) -> None:
    model = checkpoint("phi3").load()
    down, up = torch.randn(RANK, 48) * 0.2, torch.randn(96, RANK) * 0.2
    name = "model.layers.0.self_attn.qkv_proj"
    folder = save(tmp_path / "a", {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up})
    lora = ExLlamaV2Lora.from_directory(model, folder)
    adapted = model.forward(IDS, loras=[lora])
    model.modules_dict[name].weight += ALPHA / RANK * up @ down
    close(adapted, model.forward(IDS))


def test_weights_of_eight_bits_can_be_adapted(llama_copy: Any, tmp_path: Path) -> None:
    dense = {name: tensor for name, tensor in llama_copy.tensors.items() if tensor.ndim == 2}
    for name, tensor in dense.items():
        codes, scale = (tensor * 100).round().clamp(-127, 127).to(torch.int8), torch.full((len(tensor), 1), 0.01)
        llama_copy.tensors |= {name: codes, f"{name}_scale": scale}
        dense[name] = codes * scale
    model = ExLlamaV2(ExLlamaV2Config(llama_copy.write()))
    model.load()
    lora = ExLlamaV2Lora.from_directory(model, save(tmp_path / "a", adapter()))
    found = model.forward(IDS, loras=[lora])
    for name in dense:
        del llama_copy.tensors[f"{name}_scale"]
    llama_copy.tensors |= dense
    close(found, merged(llama_copy, (adapter(), ALPHA / RANK)))


@pytest.mark.parametrize("trained", ["", ".modules_to_save", ".modules_to_save.default"])
def test_whole_replacements(llama_model: ExLlamaV2, llama_copy: Any, tmp_path: Path, trained: str) -> None:
    new = {name: torch.randn(99, 48) * 0.2 for name in ("model.embed_tokens.weight", "lm_head.weight")}
    stored = {name.replace(".weight", f"{trained}.weight"): tensor for name, tensor in new.items()}
    tensors = adapter() | {f"base_model.model.{name}": tensor for name, tensor in stored.items()}
    lora = ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / "a", tensors))
    llama_copy.tensors |= new
    close(llama_model.forward(IDS, loras=[lora]), merged(llama_copy, (adapter(), ALPHA / RANK)))
    # Another adapter before it, which replaces nothing.
    plain = ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / "b", adapter(layers=1)), 0.0)
    assert torch.equal(llama_model.forward(IDS, loras=[plain, lora]), llama_model.forward(IDS, loras=[lora, plain]))
    for each in (plain, lora):
        each.unload()


def test_biases_that_are_zero_and_copies_of_modules_are_passed_over(llama_model: ExLlamaV2, tmp_path: Path) -> None:
    extra = {
        "x.embed_tokens.weight": torch.ones(99, 48),
        "x.embed_tokens.modules_to_save.weight": torch.ones(99, 48),
        "x.lm_head.original_module.weight": torch.ones(3),
        "model.layers.0.mlp.up_proj.bias": torch.zeros(80),
    }
    lora = ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / "a", adapter() | extra))
    assert lora.bias_ignored and lora.lm_head is None and lora.embed_tokens is not None
    lora.unload()


_KEY = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("tensors", "changes", "error", "message"),
    [
        ({}, {"fan_in_fan_out": True}, ConfigError, "fan_in_fan_out: True is not supported"),
        ({}, {"use_dora": True}, ConfigError, "use_dora: True is not supported"),
        ({}, {"init_lora_weights": "pissa_niter_4"}, ConfigError, "init_lora_weights: 'pissa_niter_4' changes the wei"),
        ({}, {"layer_replication": [[0, 2], [1, 3]]}, ConfigError, "layer_replication: .* is not supported"),
        ({}, {"alora_invocation_tokens": [5, 6]}, ConfigError, "alora_invocation_tokens: .* is not supported"),
        ({"model.layers.0.mlp.modules_to_save.weight": "ones"}, {}, WeightsError, "no part of an adapter"),
        ({}, {"peft_type": "LOHA"}, ConfigError, "peft_type: 'LOHA' is not supported"),
        (
            {},
            {"rank_pattern": {"q_proj": 3}},
            WeightsError,
            r"shape \[4, 48\], but its adapter_config\.json",
        ),
        ({}, {"rank_pattern": {"q_proj": "3"}}, ConfigError, r"rank_pattern\.q_proj: must be an integer"),
        ({}, {"alpha_pattern": {"[qk]_proj": 3}}, ConfigError, "alpha_pattern: .* regular expressions are not supp"),
        ({f"{_KEY}.lora_A.default.weight": (RANK, 48)}, {}, WeightsError, "for which there is another tensor"),
        ({f"language_model.{_KEY}.lora_A.weight": (RANK, 48)}, {}, WeightsError, "for which there is another tensor"),
        ({"vision.encoder.layers.0.mlp.up_proj": None}, {}, WeightsError, "no part of an adapter"),
        ({f"{_KEY}.bias": "not a number"}, {}, WeightsError, r"q_proj\.bias is not zero"),
        ({}, {"r": 0}, ConfigError, "r: must be from 1"),
        ({}, {"lora_alpha": "8"}, ConfigError, "lora_alpha: must be a number"),
        ({"model.layers.9.mlp.up_proj": None}, {}, WeightsError, r"adapts model\.layers\.9\.mlp\.up_proj, which"),
        ({f"{_KEY}.lora_A.weight": (3, 48)}, {}, WeightsError, r"q_proj\.lora_A\.weight has shape \[3, 48\]"),
        ({f"{_KEY}.lora_B.weight": None}, {}, WeightsError, r"q_proj has no lora_A"),
        ({f"{_KEY}.bias": "ones"}, {}, WeightsError, r"q_proj\.bias is not zero"),
        ({f"{_KEY}.lora_A.weight": (RANK, 48, torch.nan)}, {}, WeightsError, r"lora_A\.weight has values that are not"),
        ({f"{_KEY}.lora_B.weight": (48, RANK, torch.inf)}, {}, WeightsError, r"lora_B\.weight has values that are not"),
        ({f"{_KEY}.lora_B.weight": (48, RANK, 3e38)}, {}, WeightsError, "not finite in float32"),
        ({"lm_head.weight": (99, 48, torch.nan)}, {}, WeightsError, r"lm_head\.weight has values that are not finite"),
        ({"model.layers.0.something.weight": "ones"}, {}, WeightsError, "no part of an adapter"),
    ],
)
def test_what_does_not_fit_leaves_the_model_alone(
    llama_model: ExLlamaV2,
    tmp_path: Path,
    tensors: dict[str, Any],
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    given = {key.removeprefix("base_model.model."): tensor for key, tensor in adapter(layers=1).items()}
    for key, value in tensors.items():
        if isinstance(value, str):
            given[key] = torch.full((4,), 1.0 if value == "ones" else torch.nan)
        elif isinstance(value, tuple):
            given[key] = torch.full(value[:2], *value[2:] or (0.0,))
        elif key.endswith("lora_B.weight"):
            del given[key.replace("lora_B", "lora_A")]
        else:
            given |= {f"{key}.lora_A.weight": torch.zeros(RANK, 48), f"{key}.lora_B.weight": torch.zeros(80, RANK)}
    with pytest.raises(error, match=message):
        ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / "a", given, **changes))
    assert not any(getattr(module, "adapters", None) for module in llama_model.modules_dict.values())


@pytest.mark.parametrize("scaling", [float("nan"), "1", None])
def test_the_factor_is_a_number(llama_model: ExLlamaV2, tmp_path: Path, scaling: Any) -> None:
    with pytest.raises(ArgumentError, match="lora_scaling must be a finite number"):
        ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / "a", adapter()), scaling)


def test_an_adapter_wants_a_loaded_model(llama: Any, tmp_path: Path) -> None:
    folder = save(tmp_path, adapter())
    with pytest.raises(ModelError, match="the model is not loaded; load it before its adapters"):
        ExLlamaV2Lora.from_directory(ExLlamaV2(ExLlamaV2Config(llama.folder)), folder)
    with pytest.raises(ArgumentError, match="model must be an ExLlamaV2, not 'llama'"):
        ExLlamaV2Lora.from_directory("llama", folder)  # type: ignore[arg-type]


def test_an_adapter_has_tensors(llama_model: ExLlamaV2, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"adapter_model\.safetensors: has no tensors"):
        ExLlamaV2Lora.from_directory(llama_model, save(tmp_path / "a", {}))


def test_pickles_are_not_read(llama_model: ExLlamaV2, tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return (tmp_path / "harm").touch, ()

    torch.save({"w": Harm()}, tmp_path / "adapter_model.bin")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 1, "lora_alpha": 1}))
    with pytest.raises(WeightsError, match=r"adapter_model\.bin is a pickle.*convert it"):
        ExLlamaV2Lora.from_directory(llama_model, tmp_path)
    assert not (tmp_path / "harm").exists()


def test_missing_files(llama_model: ExLlamaV2, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no adapter_model\.safetensors"):
        ExLlamaV2Lora.from_directory(llama_model, tmp_path)
    save(tmp_path, adapter())
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(ConfigError, match=r"adapter_config\.json: cannot be read"):
        ExLlamaV2Lora.from_directory(llama_model, tmp_path)


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_adapters_are_split_as_the_weights_are(
    checkpoint: Callable[[str], Any], tmp_path: Path, ids: torch.Tensor, kind: str
) -> None:
    mlp = {"mlp.up_proj": (48, 80), "mlp.down_proj": (80, 48)}
    if kind == "mixtral":
        mlp = {"block_sparse_moe.experts.2.w1": (48, 80), "block_sparse_moe.experts.1.w2": (80, 48)}
    targets = {"self_attn.q_proj": (48, 48), "self_attn.v_proj": (48, 24), "self_attn.o_proj": (48, 48), **mlp}
    tensors = adapter(targets=targets)
    tensors["base_model.model.lm_head.weight"] = torch.randn(99, 48, generator=torch.Generator().manual_seed(1))
    folder = save(tmp_path / "adapter", tensors)
    whole, model = checkpoint(kind).load(), ExLlamaV2(ExLlamaV2Config(checkpoint(kind).folder))
    model.load_tp(devices=["cpu"] * 3)
    first, second = (ExLlamaV2Lora.from_directory(each, folder) for each in (whole, model))
    plain = model.forward(ids)
    torch.testing.assert_close(model.forward(ids, loras=second), whole.forward(ids, loras=first), atol=1e-3, rtol=1e-5)
    second.unload()
    assert torch.equal(model.forward(ids), plain)

"""What files have that differs from the layout: unused tensors, and stacked experts the other way round."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain.errors import WeightsError
from constrain.model import ExLlamaV2, ExLlamaV2Config

LAYER = "model.layers.1"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([f"{LAYER}.input_layernorm.bias"], rf"has tensor {LAYER}\.input_layernorm\.bias, which a LlamaForCausalLM"),
        ([f"{LAYER}.self_attn.sinks"], rf"{LAYER}\.self_attn\.sinks, which"),
        (
            [f"{LAYER}.mlp.experts.{n}.up_proj.weight" for n in range(9)],
            r"experts\.3\.up_proj\.weight and 5 more, which",
        ),
        (["lm_head.bias"], r"lm_head\.bias, which"),
    ],
)
def test_others_in_layers_are_refused(llama_copy: Any, keys: list[str], message: str) -> None:
    llama_copy.tensors |= {key: torch.ones(4) for key in keys}
    with pytest.raises(WeightsError, match=message):
        ExLlamaV2Config(llama_copy.write())


def test_others_elsewhere_are_named(llama_copy: Any, caplog: pytest.LogCaptureFixture) -> None:
    keys = ["model.layers.3.eh_proj.weight", "model.layers.3.enorm.weight", "vision_tower.patches.0.weight", "extra"]
    llama_copy.tensors |= {key: torch.ones(4) for key in keys}
    ExLlamaV2Config(llama_copy.write())
    (message,) = caplog.messages
    assert "4 tensors are not used" in message
    assert all(place in message for place in ("model.layers.3 (2)", "vision_tower.patches (1)", "extra (1)"))


@pytest.mark.parametrize("name", ["rotary_emb.inv_freq", "attn.k_scale", "k_proj.weight_scale_2", "o_proj.input_scale"])
def test_harmless_ones_are_not_named(llama_copy: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    llama_copy.tensors[f"{LAYER}.self_attn.{name}"] = torch.ones(1)
    ExLlamaV2Config(llama_copy.write())
    assert not caplog.messages


def test_of_a_multimodal_model_one_warning_is_enough(copy_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    copy = copy_of("qwen2")
    copy.config["architectures"] = ["Qwen2VLForConditionalGeneration"]
    copy.tensors["visual.patch_embed.proj.weight"] = torch.ones(4)
    ExLlamaV2Config(copy.write())
    assert len(caplog.messages) == 1 and "the text model is read" in caplog.messages[0]


@pytest.mark.parametrize("name", ["llama4", "gpt_oss", "granite_moe"])
def test_stacked_experts_may_be_stored_the_other_way_round(
    name: str, copy_of: Any, checkpoint: Any, ids: torch.Tensor
) -> None:
    copy = copy_of(name)
    stacked = [key for key, tensor in copy.tensors.items() if tensor.ndim == 3]
    for key in stacked:
        copy.tensors[key] = copy.tensors[key].transpose(1, 2).contiguous()
    assert len(stacked) > 1
    model = ExLlamaV2(ExLlamaV2Config(copy.write()))
    model.load()
    torch.testing.assert_close(model.forward(ids)[..., :99], checkpoint(name).logits(ids), atol=1e-4, rtol=0)

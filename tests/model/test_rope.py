"""Settings and forms of configs that transformers does not have; its own methods are held by the parity tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from constrain.errors import ConfigError
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.rope import RopeParameters, RotaryTable, inverse_frequencies


def test_alpha_scales_the_base() -> None:
    plain = inverse_frequencies(RopeParameters(theta=10_000.0, dim=16))
    scaled = inverse_frequencies(RopeParameters(theta=10_000.0, dim=16), alpha=4.0)
    expected = (10_000.0 * 4.0 ** (16 / 14)) ** (-torch.arange(0, 16, 2) / 16)
    torch.testing.assert_close(scaled, expected)
    assert scaled[0] == plain[0] and (scaled[1:] < plain[1:]).all()


def test_linear_scaling_by_the_user_equals_that_of_the_config(checkpoint: Any, ids: torch.Tensor) -> None:
    config_says = checkpoint("llama_linear")
    user_says = config_says.load(scale_pos_emb=2.0)
    assert not torch.allclose(user_says.forward(ids), config_says.load().forward(ids), atol=1e-2)
    table = RotaryTable(user_says.config.rope, 2.0, 1.0, torch.float)
    twice = RotaryTable(RopeParameters(10_000.0, 12, "linear", 8.0), 1.0, 1.0, torch.float)
    for mine, expected in zip(_rows(table), _rows(twice), strict=True):
        torch.testing.assert_close(mine, expected)


def test_the_users_alpha_reaches_the_model(llama: Any, ids: torch.Tensor) -> None:
    plain, scaled = llama.load().forward(ids), llama.load(scale_alpha_value=3.0).forward(ids)
    assert (plain - scaled).abs().max() > 0.01
    torch.testing.assert_close(plain[:, :1], scaled[:, :1])


def test_tables_grow_without_changing() -> None:
    table = RotaryTable(RopeParameters(theta=10_000.0, dim=8, amplitude=1.5), 1.0, 1.0, torch.float)
    early = table.rows(slice(0, 9), 9, torch.device("cpu"))
    late = table.rows(slice(0, 5000), 5000, torch.device("cpu"))
    for before, after in zip(early, late, strict=True):
        assert torch.equal(before, after[:, :9]) and before.shape == (1, 9, 1, 8)
    cos, sin = late
    torch.testing.assert_close(cos**2 + sin**2, torch.full_like(cos, 2.25), atol=1e-5, rtol=0)


def test_rows_at_given_positions() -> None:
    table = RotaryTable(RopeParameters(theta=100.0, dim=4), 1.0, 1.0, torch.float)
    positions = torch.tensor([[0, 0, 1], [3, 4, 5]])
    cos, _ = table.rows(positions, 6, torch.device("cpu"))
    whole, _ = table.rows(slice(0, 6), 6, torch.device("cpu"))
    assert torch.equal(cos, whole[0][positions])


@pytest.mark.parametrize("dim", [2, 8])
def test_no_number_of_features_divides_by_zero(dim: int) -> None:
    short = inverse_frequencies(RopeParameters(theta=10_000.0, dim=dim), alpha=2.0)
    assert short.isfinite().all()


def _rows(table: RotaryTable) -> tuple[torch.Tensor, torch.Tensor]:
    return table.rows(slice(0, 32), 32, torch.device("cpu"))


def test_scaling_of_older_configs_leaves_windows_as_they_are(copy_of: Any, ids: torch.Tensor, checkpoint: Any) -> None:
    copy = copy_of("olmo3")
    copy.config["rope_scaling"] = copy.config.pop("rope_parameters")["full_attention"]
    copy.config["rope_theta"] = copy.config["rope_scaling"].pop("rope_theta")
    config = ExLlamaV2Config(copy.write())
    assert (config.rope.method, config.rope_local.method) == ("yarn", None)
    model = ExLlamaV2(config)
    model.load()
    torch.testing.assert_close(model.forward(ids)[..., :99], checkpoint("olmo3").logits(ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["llama", "qwen3", "olmo2"])
@pytest.mark.parametrize(
    "changes",
    [
        {"partial_rotary_factor": 0.5},
        {"rotary_dim": 4},
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ],
)
def test_families_that_rotate_all_features_have_no_other_number(
    copy_of: Any, name: str, changes: dict[str, Any], ids: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    """Their code takes no notice of these keys; other programs do, so there is a warning."""
    copy = copy_of(name)
    copy.config |= changes
    model = ExLlamaV2(ExLlamaV2Config(copy.write()))
    assert caplog.text.count("features of a head, but all are rotated") == 1
    model.load()
    written = transformers.AutoModelForCausalLM.from_pretrained(copy.folder, attn_implementation="eager")
    with torch.no_grad():
        expected = written(ids).logits
    torch.testing.assert_close(model.forward(ids)[..., :99], expected, atol=1e-4, rtol=0)


def test_no_more_features_are_rotated_than_there_are(copy_of: Any) -> None:
    copy = copy_of("phi3_window")
    copy.config["rope_parameters"]["partial_rotary_factor"] = 2.0
    with pytest.raises(ConfigError, match=r"rope_parameters\.partial_rotary_factor: must be above 0 and at most 1"):
        ExLlamaV2Config(copy.write())


def test_rotated_features_may_be_counted(copy_of: Any) -> None:
    copy = copy_of("minimax_m2")
    del copy.config["rope_parameters"]
    copy.config |= {"rope_theta": 10_000.0, "rotary_dim": 12}
    assert ExLlamaV2Config(copy.write()).rope.dim == 12
    copy.config["rotary_dim"] = 18
    with pytest.raises(ConfigError, match="rotary_dim: must be from 1 to 16"):
        ExLlamaV2Config(copy.write())

"""Forms of integer weights: zero points of compressed-tensors, and the versions of GPTQ and AWQ."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from quantized_models import GPTQ, KEY, assert_same, load, load_plain, quantise
from quantized_weights import Writer, awq, gptq, pack_quantized
from safetensors.torch import save_file

from constrain.errors import WeightsError
from constrain.model.tensor_files import TensorFiles


def _read(folder: Path, parts: dict[str, torch.Tensor], *shape: int) -> torch.Tensor:
    """The dequantised weight of the parts."""
    save_file({f"x.{part}": tensor for part, tensor in parts.items()}, folder / "x.safetensors")
    found = torch.empty(shape)
    TensorFiles([folder / "x.safetensors"]).copy("x.weight", found)
    return found


@pytest.mark.parametrize(("outputs", "bits"), [(16, 2), (8, 4), (4, 8)])
def test_zero_points_may_fill_one_word(tmp_path: Path, outputs: int, bits: int) -> None:
    made = pack_quantized(Writer(), outputs, 64, bits=bits, size=32, zeros=True)
    torch.testing.assert_close(_read(tmp_path, made.parts, outputs, 64), made.dense)


def test_one_zero_point_of_a_whole_weight(tmp_path: Path) -> None:
    made = pack_quantized(Writer(), 8, 64, size=-1)
    parts = made.parts | {"weight_zero_point": torch.tensor([3], dtype=torch.int8)}
    torch.testing.assert_close(_read(tmp_path, parts, 8, 64), made.dense - 3 * made.parts["weight_scale"].float())


def test_gptq_of_one_word(tmp_path: Path) -> None:
    made = gptq(Writer(), 32, 8, size=8)
    torch.testing.assert_close(_read(tmp_path, made.parts, 32, 8), made.dense)


def test_awq_is_not_read_as_gptq(llama_wide: Any) -> None:
    quantise(llama_wide, [KEY], awq, {**GPTQ})
    with pytest.raises(WeightsError, match=r"qzeros has 8 words for 8 outputs, which is none of"):
        load(llama_wide)


def test_gptq_of_other_bits_than_the_config_says(llama_wide: Any) -> None:
    quantise(llama_wide, [KEY], partial(gptq, bits=8), {**GPTQ})
    with pytest.raises(WeightsError, match=r"has codes of 8 bits, but config\.json says 4"):
        load(llama_wide)


def test_gptq_with_settings_of_their_own_for_some_layers(llama_wide: Any, ids: torch.Tensor) -> None:
    config = {**GPTQ, "dynamic": {"+:.*q_proj": {"bits": 8, "group_size": 16}}}
    plain = quantise(llama_wide, [KEY], partial(gptq, bits=8, size=16), config)
    plain |= quantise(llama_wide, ["model.layers.0.mlp.up_proj"], gptq, config)
    found = load(llama_wide).forward(ids)
    assert_same(found, load_plain(llama_wide, plain).forward(ids))


def test_old_gptq_with_an_order_of_zeros_has_groups_of_neighbours(llama_wide: Any, ids: torch.Tensor) -> None:
    plain = quantise(llama_wide, [KEY], gptq, GPTQ)
    llama_wide.tensors[f"{KEY}.g_idx"].zero_()
    llama_wide.tensors[f"{KEY}.bias"] = torch.zeros(64)
    found = load(llama_wide).forward(ids)
    del llama_wide.tensors[f"{KEY}.bias"]
    assert_same(found, load_plain(llama_wide, plain).forward(ids))

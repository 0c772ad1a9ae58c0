"""The vision towers of Qwen and Gemma 3, and prompts with images, against transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints import SIZES, randomise
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from constrain.errors import ArgumentError, ConfigError
from constrain.model import ExLlamaV2, ExLlamaV2Config, ExLlamaV2VisionTower
from constrain.model.vision.images import patches_of
from constrain.model.vision.qwen import windows_of

IMAGE, BEGIN, END = 90, 91, 92
QWEN_IMAGES = {"min_pixels": 8 * 8 * 4, "max_pixels": 8 * 8 * 24, "patch_size": 4}
GEMMA_IMAGES = {"size": {"height": 32, "width": 32}}
TEXT = {**SIZES, "max_position_embeddings": 512}
TOWER = {"hidden_size": 32, "intermediate_size": 40, "patch_size": 4}
QWEN_TOWER = {**TOWER, "depth": 3, "num_heads": 2, "spatial_merge_size": 2, "out_hidden_size": 48}
IDS = {"image_token_id": IMAGE, "vision_start_token_id": BEGIN, "vision_end_token_id": END}


@dataclass(frozen=True)
class Family:
    """How transformers makes a model, and a processor of its images."""

    model: Callable[[], Any]
    preprocessor: dict[str, Any]


def _qwen(name: str, tower: dict[str, Any], text: dict[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        config = getattr(transformers, f"{name}Config")(vision_config=tower, text_config=text, **IDS)
        return getattr(transformers, f"{name}ForConditionalGeneration")._from_config(config)

    return make


def _gemma() -> Any:
    vision = {**TOWER, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "vision_use_head": False}
    # The window is shorter than an image.
    text = {**TEXT, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "num_hidden_layers": 3}
    text["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
    config = transformers.Gemma3Config(
        vision_config={"model_type": "siglip_vision_model", **vision}, text_config=text, mm_tokens_per_image=16,
        image_token_index=IMAGE, boi_token_index=BEGIN, eoi_token_index=END,
    )  # fmt: skip
    return transformers.Gemma3ForConditionalGeneration._from_config(config)


def rope(*sections: int, **further: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": list(sections), **further}


FAMILIES = {
    "qwen2_vl": Family(
        _qwen(
            "Qwen2VL",
            {"depth": 3, "embed_dim": 32, "mlp_ratio": 2, "num_heads": 2, "patch_size": 4, "hidden_size": 48},
            {**TEXT, "rope_parameters": rope(2, 2, 2)},
        ),
        QWEN_IMAGES,
    ),
    "qwen2_5_vl": Family(
        _qwen(
            "Qwen2_5_VL",
            {**QWEN_TOWER, "window_size": 16, "fullatt_block_indexes": [1]},
            {**TEXT, "rope_parameters": rope(1, 2, 3)},
        ),
        QWEN_IMAGES,
    ),
    "qwen3_vl": Family(
        _qwen(
            "Qwen3VL",
            {**QWEN_TOWER, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 2]},
            {**TEXT, "head_dim": 16, "rope_parameters": rope(4, 2, 2, mrope_interleaved=True)},
        ),
        QWEN_IMAGES,
    ),
    "gemma3": Family(_gemma, GEMMA_IMAGES),
}


@dataclass(frozen=True)
class Written:
    """A model in a folder, and as transformers has it."""

    name: str
    folder: Path
    reference: Any

    def loaded(self) -> tuple[ExLlamaV2, ExLlamaV2VisionTower]:
        config = ExLlamaV2Config(self.folder)
        model, tower = ExLlamaV2(config), ExLlamaV2VisionTower(config)
        model.load()
        tower.load()
        return model, tower

    def processed(self, image: Image.Image) -> dict[str, torch.Tensor]:
        """What the processor of the family makes of an image."""
        processor: Any = Gemma3ImageProcessorPil if self.name == "gemma3" else Qwen2VLImageProcessorPil
        found = processor(**FAMILIES[self.name].preprocessor)(image.convert("RGB"), return_tensors="pt")
        return {key: found[key] for key in ("pixel_values", "image_grid_thw") if key in found}


@pytest.fixture(scope="module", params=FAMILIES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    torch.manual_seed(0)
    reference = FAMILIES[request.param].model().eval()
    randomise(reference)
    folder = tmp_path_factory.mktemp(request.param)
    reference.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(FAMILIES[request.param].preprocessor))
    return Written(request.param, folder, reference)


def picture(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8))


SIZES_OF_IMAGES = [(37, 70), (8, 9), (64, 24), (100, 130)]


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
def test_pixels_are_those_of_the_processor(written: Written, size: tuple[int, int]) -> None:
    tower = ExLlamaV2VisionTower(ExLlamaV2Config(written.folder))
    found = tower.pixels(picture(*size))
    expected = written.processed(picture(*size))["pixel_values"]
    if written.name == "gemma3":
        torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=0)
        return
    patches = patches_of(found, 4, 2).view(-1, 3, 1, 16).expand(-1, -1, 2, -1).reshape(len(expected), -1)
    torch.testing.assert_close(patches, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", SIZES_OF_IMAGES)
def test_features(written: Written, size: tuple[int, int]) -> None:
    _, tower = written.loaded()
    with torch.no_grad():
        expected = written.reference.get_image_features(**written.processed(picture(*size)))
    found = tower._features(tower.pixels(picture(*size)))
    torch.testing.assert_close(found.grid.flatten(0, 1), expected.pooler_output[0], atol=1e-4, rtol=0)
    assert expected.pooler_output[0].std() > 0.1
    if written.name == "qwen3_vl":
        assert found.added is not None
        for mine, theirs in zip(found.added, expected.deepstack_features, strict=True):
            torch.testing.assert_close(mine.flatten(0, 1), theirs, atol=1e-4, rtol=0)


def test_windows() -> None:
    """Windows at the right and lower edges have what is left; windows of one size come together."""
    order, sizes = windows_of(3, 5, 2)
    assert sizes == ((2, 4), (3, 2), (1, 1))
    assert order.tolist() == [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14]


def test_images_that_are_not_read(tmp_path: Path, written: Written) -> None:
    config = ExLlamaV2Config(written.folder)
    if written.name == "gemma3":
        (tmp_path / "model.safetensors").symlink_to(written.folder / "model.safetensors")
        (tmp_path / "config.json").write_text((written.folder / "config.json").read_text())
        (tmp_path / "preprocessor_config.json").write_text('{"do_pan_and_scan": true}')
        with pytest.raises(ConfigError, match="do_pan_and_scan: images that are divided"):
            ExLlamaV2VisionTower(ExLlamaV2Config(tmp_path))
    else:
        with pytest.raises(ArgumentError, match="an image of 201 by 1 pixels is too oblong"):
            ExLlamaV2VisionTower(config).pixels(picture(1, 201))

"""The vision towers of Mistral 3 and Pixtral against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints import SIZES, randomise
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

from constrain.errors import ArgumentError, ConfigError, GenerationError, ModelError, WeightsError
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2VisionTower
from constrain.model.vision.images import pixels_of

BREAK, END, IMAGE = 12, 13, 10
PREPROCESSOR = {"size": {"longest_edge": 48}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}


class Names:
    """The tokens of images."""

    def single_id(self, token: str) -> int | None:
        return {"[IMG_BREAK]": BREAK, "[IMG_END]": END}.get(token)


@pytest.fixture(scope="module", params=["mistral3", "mistral3_biases", "ministral3", "llava"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder, and the model in transformers that wrote it."""
    activation = "silu" if request.param == "mistral3" else "gelu"
    vision = transformers.PixtralVisionConfig(
        hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, patch_size=4, image_size=64,
        hidden_act=activation, initializer_range=0.2,
    )  # fmt: skip
    text: Any = transformers.MistralConfig(**{**SIZES, "sliding_window": None})
    if request.param == "ministral3":
        text = transformers.Ministral3Config(**SIZES)
    common = {"vision_config": vision, "text_config": text, "tie_word_embeddings": False, "image_token_index": IMAGE}
    if request.param == "llava":
        config = transformers.LlavaConfig(**common, vision_feature_layer=-1, vision_feature_select_strategy="full")
        kind = transformers.LlavaForConditionalGeneration
    else:
        config = transformers.Mistral3Config(**common, multimodal_projector_bias=request.param != "mistral3")
        kind = transformers.Mistral3ForConditionalGeneration
    torch.manual_seed(0)
    reference = kind._from_config(config, attn_implementation="eager").eval()
    randomise(reference)
    folder = tmp_path_factory.mktemp("mistral3")
    reference.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
    return folder, reference


@pytest.fixture
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (37, 70, 3), dtype=np.uint8))


def loaded(folder: Path) -> tuple[ExLlamaV2, ExLlamaV2VisionTower]:
    config = ExLlamaV2Config(folder)
    model, tower = ExLlamaV2(config), ExLlamaV2VisionTower(config)
    model.load()
    tower.load()
    return model, tower


def test_pixels(written: tuple[Path, Any], picture: Image.Image) -> None:
    tower = ExLlamaV2VisionTower(ExLlamaV2Config(written[0]))
    cell = tower.vision.cell
    processor = PixtralImageProcessorPil(**PREPROCESSOR, patch_size={"height": cell, "width": cell})
    for image in (picture, picture.rotate(90, expand=True), picture.convert("L"), picture.resize((3, 1))):
        expected = torch.from_numpy(processor(image.convert("RGB"), return_tensors="np")["pixel_values"][0])
        found = pixels_of(image, tower.vision)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert tower.vision.fitted(1, 10_000) == (cell, 48)


def test_features(written: tuple[Path, Any], picture: Image.Image) -> None:
    folder, reference = written
    _, tower = loaded(folder)
    for image in (picture, picture.resize((8, 30))):
        pixels = pixels_of(image, tower.vision)
        with torch.no_grad():
            expected = reference.get_image_features(pixels[None], image_sizes=[pixels.shape[1:]]).pooler_output[0]
        found = tower.features(pixels)
        assert found.shape == (pixels.shape[1] // tower.vision.cell, pixels.shape[2] // tower.vision.cell, 48)
        torch.testing.assert_close(found.flatten(0, 1), expected, atol=1e-4, rtol=0)
        assert expected.std() > 0.1


def test_a_prompt_with_an_image(written: tuple[Path, Any], picture: Image.Image) -> None:
    """Two images in a prompt, and tokens after it: the same logits."""
    folder, reference = written
    model, tower = loaded(folder)
    images = [picture, picture.resize((20, 20))]
    blocks = [tower.get_image_embeddings(model, Names(), image) for image in images]
    ids = torch.cat((torch.tensor([[1, 40]]), *(part for b in blocks for part in (b.get_ids_tensor(), _text(41)))), 1)
    plain, features = ids.clone(), []
    for block, image in zip(blocks, images, strict=True):
        pixels = pixels_of(image, tower.vision)
        rows, columns = (side // tower.vision.cell for side in pixels.shape[1:])
        own = torch.tensor(([IMAGE] * columns + [BREAK]) * rows)
        own[-1] = END
        plain[(ids >= block.first_index) & (ids < block.first_index + block.length)] = own
        with torch.no_grad():
            features.append(reference.get_image_features(pixels[None], image_sizes=[pixels.shape[1:]]).pooler_output[0])
    states = reference.get_input_embeddings()(plain)
    states[plain == IMAGE] = torch.cat(features)
    with torch.no_grad():
        expected = reference(inputs_embeds=states).logits
    cache = ExLlamaV2Cache(model, max_seq_len=256)
    found = torch.cat([model.forward(part, cache, indexed_embeddings=blocks) for part in ids.split(9, dim=1)], dim=1)
    torch.testing.assert_close(found[..., :99], expected, atol=1e-4, rtol=0)


def _text(token: int) -> torch.Tensor:
    return torch.tensor([[token]])


def test_names_of_newer_checkpoints(written: tuple[Path, Any], picture: Image.Image, tmp_path: Path) -> None:
    tensors = load_file(written[0] / "model.safetensors")
    renamed = {
        f"model.{key.replace('language_model.model.', 'language_model.')}": each for key, each in tensors.items()
    }
    renamed["lm_head.weight"] = renamed.pop("model.language_model.lm_head.weight")
    save_file(renamed, tmp_path / "model.safetensors")
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((written[0] / name).read_text())
    pixels = pixels_of(picture, loaded(tmp_path)[1].vision)
    assert torch.equal(loaded(tmp_path)[1].features(pixels), loaded(written[0])[1].features(pixels))


def test_mistakes_are_named(written: tuple[Path, Any], picture: Image.Image, llama: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no supported vision tower"):
        ExLlamaV2VisionTower(ExLlamaV2Config(llama.folder))
    config = ExLlamaV2Config(written[0])
    model, tower = ExLlamaV2(config), ExLlamaV2VisionTower(config)
    with pytest.raises(GenerationError, match="vision tower is not loaded"):
        tower.features(torch.zeros(3, 8, 8))
    with pytest.raises(GenerationError, match="text model is not loaded"):
        tower.get_image_embeddings(model, Names(), picture)
    model, tower = loaded(written[0])
    with pytest.raises(ArgumentError, match="a Pillow image"):
        tower.get_image_embeddings(model, Names(), "picture.png")
    names = Names()
    names.single_id = lambda token: None  # type: ignore[method-assign]
    with pytest.raises(GenerationError, match=r"the tokenizer has no \[IMG_BREAK\] and"):
        tower.get_image_embeddings(model, names, picture)


@pytest.mark.parametrize(
    ("changes", "inner", "message"),
    [
        ({"vision_feature_layer": -2}, {}, "vision_feature_layer: -2 is not supported"),
        ({}, {"hidden_act": "relu"}, "hidden_act: 'relu' is not supported"),
        ({}, {"num_attention_heads": 3}, "32 are no 3 heads"),
        ({}, {"patch_size": 0}, "patch_size: must be from 1"),
    ],
)
def test_bad_values_are_named(
    written: tuple[Path, Any], changes: dict[str, Any], inner: dict[str, Any], message: str, tmp_path: Path
) -> None:
    source = json.loads((written[0] / "config.json").read_text()) | changes
    source["vision_config"] |= inner
    (tmp_path / "config.json").write_text(json.dumps(source))
    (tmp_path / "model.safetensors").symlink_to(written[0] / "model.safetensors")
    with pytest.raises(ConfigError, match=message):
        ExLlamaV2VisionTower(ExLlamaV2Config(tmp_path))


def test_other_text_models_are_refused(tmp_path: Path) -> None:
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": {"model_type": "llama"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"text_config\.model_type: 'llama' is not supported; supported are mistral"):
        ExLlamaV2Config(tmp_path)


def test_a_missing_tensor_is_named(written: tuple[Path, Any], tmp_path: Path) -> None:
    tensors = load_file(written[0] / "model.safetensors")
    key = next(key for key in tensors if key.endswith("layers.1.ffn_norm.weight"))
    del tensors[key]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((written[0] / "config.json").read_text())
    with pytest.raises(WeightsError, match=r"no tensor .*ffn_norm"):
        ExLlamaV2VisionTower(ExLlamaV2Config(tmp_path))

"""The vision towers of Qwen and Gemma 3, and prompts with images, against transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
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

from constrain.compat.exllamav2.config import ExLlamaV2Config as CompatConfig
from constrain.errors import ArgumentError, ConfigError, GenerationError, WeightsError
from constrain.model import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2MMEmbedding, ExLlamaV2VisionTower
from constrain.model.architecture import ARCHITECTURES
from constrain.model.vision.config import VisionConfig
from constrain.model.vision.images import patches_of
from constrain.model.vision.qwen import read_qwen, windows_of
from constrain.model.vision.siglip import read_siglip
from constrain.runtime import Request, Runtime, SamplingParams

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
    "qwen3_vl_moe": Family(
        _qwen(
            "Qwen3VLMoe",
            {**QWEN_TOWER, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 2]},
            {
                **TEXT,
                "head_dim": 16,
                "num_experts": 8,
                "num_experts_per_tok": 3,
                "moe_intermediate_size": 16,
                "mlp_only_layers": [1],
                "rope_parameters": rope(4, 2, 2, mrope_interleaved=True),
            },
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
        config.compute_dtype = torch.float32
        model, tower = ExLlamaV2(config), ExLlamaV2VisionTower(config)
        model.load()
        tower.load()
        return model, tower

    def processed(self, image: Image.Image) -> dict[str, torch.Tensor]:
        """Outputs of the processor of the family for an image."""
        processor: Any = Gemma3ImageProcessorPil if self.name == "gemma3" else Qwen2VLImageProcessorPil
        found = processor(**FAMILIES[self.name].preprocessor)(image.convert("RGB"), return_tensors="pt")
        return {key: found[key] for key in ("pixel_values", "image_grid_thw") if key in found}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Written]:
    """Saves the model of a family, once."""

    @cache
    def save(name: str) -> Written:
        torch.manual_seed(0)
        reference = FAMILIES[name].model().eval()
        randomise(reference)
        folder = tmp_path_factory.mktemp(name)
        reference.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(FAMILIES[name].preprocessor))
        return Written(name, folder, reference)

    return save


@pytest.fixture(params=FAMILIES)
def written(request: pytest.FixtureRequest, saved: Callable[[str], Written]) -> Written:
    return saved(request.param)


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
    if written.name.startswith("qwen3_vl"):
        assert found.added is not None
        for mine, theirs in zip(found.added, expected.deepstack_features, strict=True):
            torch.testing.assert_close(mine.flatten(0, 1), torch.cat([*theirs]), atol=1e-4, rtol=0)


CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
PUBLISHED: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[int, int], tuple[int, ...]]] = {
    "Qwen2-VL-7B": (
        "Qwen2VLForConditionalGeneration",
        {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 3584,
         "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2},
        {**CLIP, "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2},
        (756, 1008), (1280, 5120, 32, 80),
    ),
    "Qwen2.5-VL-7B": (
        "Qwen2_5_VLForConditionalGeneration",
        {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
         "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
         "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2},
        {**CLIP, "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2},
        (756, 1008), (1280, 3420, 32, 80),
    ),
    "Qwen3-VL-8B": (
        "Qwen3VLForConditionalGeneration",
        {"deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152,
         "in_channels": 3, "intermediate_size": 4304, "model_type": "qwen3_vl", "num_heads": 16,
         "num_position_embeddings": 2304, "out_hidden_size": 4096, "patch_size": 16, "spatial_merge_size": 2},
        {**HALVES, "size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "merge_size": 2},
        (736, 992), (1152, 4304, 27, 72),
    ),
    "gemma-3-4b": (
        "Gemma3ForConditionalGeneration",
        {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
         "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False},
        {**HALVES, "do_pan_and_scan": None, "resample": 2, "size": {"height": 896, "width": 896}},
        (896, 896), (1152, 4304, 27, 72),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("file", ["preprocessor_config.json", "processor_config.json"])
def test_published_configs(name: str, file: str, tmp_path: Path) -> None:
    """The shapes of towers, and the size to which they resize a photo of 1000 by 750 pixels."""
    arch, vision, images, size, shape = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [arch], "vision_config": vision}))
    found = images if file.startswith("pre") else {"image_processor": images}
    (tmp_path / file).write_text(json.dumps(found))
    traits = ARCHITECTURES[arch].vision
    assert traits is not None and vision.get("model_type") in traits.model_types
    read = read_siglip if traits.kind == "siglip" else read_qwen
    config: VisionConfig = read(tmp_path / "config.json", traits)
    assert config.fitted(750, 1000) == size
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.head_dim) == shape
    assert config.images.mean == tuple(images["image_mean"])


def test_axes_of_positions(written: Written) -> None:
    """Which pairs of features turn with time, row and column."""
    config = CompatConfig(str(written.folder))
    expected = {
        "qwen2_vl": ((0, 0, 1, 1, 2, 2), [2, 2, 2]),
        "qwen2_5_vl": ((0, 1, 1, 2, 2, 2), [1, 2, 3]),
        "qwen3_vl": ((0, 1, 2, 0, 1, 2, 0, 0), [4, 2, 2]),
        "gemma3": ((), None),
    }
    assert (config.rope.axes, config.mrope_section) == expected[written.name.removesuffix("_moe")]


def test_windows() -> None:
    """Windows at the right and lower edges have what is left; windows of one size come together."""
    order, sizes = windows_of(3, 5, 2)
    assert sizes == ((2, 4), (3, 2), (1, 1))
    assert order.tolist() == [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("name", "section", "changes", "message"),
    [
        ("qwen2_5_vl", "vision_config", {"window_size": 4}, "window_size: a window has not one square"),
        (
            "qwen2_5_vl",
            "vision_config",
            {"fullatt_block_indexes": [3]},
            r"fullatt_block_indexes: \[3\] are no layers of 3",
        ),
        ("qwen2_5_vl", "vision_config", {"hidden_act": "relu"}, "hidden_act: 'relu' is not supported"),
        ("qwen2_5_vl", "vision_config", {"num_heads": 3}, "hidden_size: 32 are no 3 heads"),
        ("qwen2_vl", "vision_config", {"spatial_merge_size": 0}, "spatial_merge_size: must be from 1"),
        ("qwen3_vl", "vision_config", {"deepstack_visual_indexes": [-1]}, r"deepstack_visual_indexes: \[-1\] are no"),
        ("qwen3_vl", "vision_config", {"num_position_embeddings": 35}, "pos_embed.weight"),
        ("qwen3_vl", "text_config", {"rope_parameters": {"mrope_section": [1, 2, 3]}}, "mrope_section: .* the sum 8"),
        ("gemma3", "vision_config", {"image_size": 36}, "image_size: 36 pixels are not 4 times"),
        ("gemma3", "vision_config", {"image_size": 1 << 14}, "image_size: must be from 1 to 8192"),
    ],
)
def test_bad_values_are_named(
    name: str,
    section: str,
    changes: dict[str, Any],
    message: str,
    tmp_path: Path,
    saved: Callable[[str], Written],
) -> None:
    found = saved(name).folder
    source = json.loads((found / "config.json").read_text())
    source[section] |= changes
    (tmp_path / "config.json").write_text(json.dumps(source))
    (tmp_path / "model.safetensors").symlink_to(found / "model.safetensors")
    with pytest.raises((ConfigError, WeightsError), match=message):
        ExLlamaV2VisionTower(ExLlamaV2Config(tmp_path))


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


# Prompts


class Names:
    """The tokens around images."""

    def single_id(self, token: str) -> int | None:
        ids = {"<|vision_start|>": BEGIN, "<|vision_end|>": END, "<start_of_image>": BEGIN, "<end_of_image>": END}
        return ids.get(token)


class Pieces:
    """A tokenizer of 99 letters."""

    eos_token_id = 2

    def get_vocab_size(self) -> int:
        return 99

    def get_id_to_piece_list(self, special: bool = False) -> list[str]:
        return [chr(200 + token) for token in range(99)]


@dataclass(frozen=True)
class Prompt:
    """Two images and texts.

    Attributes:
        ids: with the ids of embeddings.
        blocks: these embeddings.
        expected: logits of transformers, which has another position for every token.
    """

    ids: torch.Tensor
    blocks: list[ExLlamaV2MMEmbedding]
    expected: torch.Tensor


def prompt_of(written: Written, model: ExLlamaV2, tower: ExLlamaV2VisionTower) -> Prompt:
    images = [picture(37, 70), picture(30, 20)]
    blocks = [tower.get_image_embeddings(model, Names(), image) for image in images]
    texts = [torch.tensor([each]) for each in ([1, 40, 41], [42], [43, 44, 45, 46, 47])]
    ids = torch.cat([texts[0], blocks[0].get_ids_tensor(), texts[1], blocks[1].get_ids_tensor(), texts[2]], dim=1)
    plain = ids.clone()
    for block in blocks:
        first, end = block.get_vision_token_range()
        plain[(ids >= first) & (ids < end)] = IMAGE
        plain[ids == first - 1], plain[ids == end] = BEGIN, END
    processed = [written.processed(image) for image in images]
    given = {key: torch.cat([each[key] for each in processed]) for key in processed[0]}
    kinds = (plain == IMAGE).int()
    given |= {"token_type_ids" if written.name == "gemma3" else "mm_token_type_ids": kinds}
    with torch.no_grad():
        expected = written.reference(input_ids=plain, **given).logits
    return Prompt(ids, blocks, expected)


def test_prompts_with_images(written: Written) -> None:
    """In one pass; in passes of few tokens, which divide no image whose tokens attend to each other; and after it."""
    model, tower = written.loaded()
    prompt = prompt_of(written, model, tower)
    for limit in (2048, 5):
        model.config.max_input_len = limit
        cache = ExLlamaV2Cache(model, max_seq_len=256)
        last = prompt.ids[:, -2:]
        found = [model.forward(prompt.ids[:, :-2], cache, indexed_embeddings=prompt.blocks)]
        found += [model.forward(each, cache) for each in last.split(1, dim=1)]
        torch.testing.assert_close(torch.cat(found, dim=1)[..., :99], prompt.expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("chunk", [16, 256])
def test_generation_after_images(written: Written, chunk: int) -> None:
    """The runtime: whatever the chunks, the greedy tokens of transformers, and again from the prefix cache."""
    model, tower = written.loaded()
    prompt = prompt_of(written, model, tower)
    cache = ExLlamaV2Cache(model, max_seq_len=256)
    tokenizer: Any = Pieces()
    runtime = Runtime(model, cache, tokenizer, page_size=16, max_chunk_size=chunk)

    def logits(ids: torch.Tensor) -> tuple[torch.Tensor, int]:
        asked = SamplingParams(top_k=1)
        request = Request([ids], asked, max_new_tokens=1, embeddings=prompt.blocks, return_logits=True)
        handle = runtime.submit(request)
        return handle.result().tokens[0].logits, handle.sequence.rows[0].cached_tokens

    found, cached = logits(prompt.ids)
    assert cached == 0
    torch.testing.assert_close(found[..., :99].flatten(), prompt.expected[0, -1], atol=1e-4, rtol=0)
    again, cached = logits(prompt.ids)
    assert cached >= prompt.ids.shape[1] // 16 * 16 - 1
    torch.testing.assert_close(again[..., :99].flatten(), prompt.expected[0, -1], atol=1e-4, rtol=0)
    # The beginning of the same prompt, up to the first image, has the same keys only if its positions are the same.
    end = prompt.blocks[0].length + 4
    before, cached = logits(prompt.ids[:, :end])
    assert (cached == 0) is model.config.arch.lm.mrope
    torch.testing.assert_close(before[..., :99].flatten(), prompt.expected[0, end - 1], atol=1e-4, rtol=0)


@pytest.mark.gpu
def test_on_a_gpu(written: Written) -> None:
    """Prefill and decode, the latter as graphs: the logits of transformers, whatever the chunks."""
    model, tower = written.loaded()
    prompt = prompt_of(written, model, tower)
    tokenizer: Any = Pieces()
    for chunk in (16, 256):
        runtime = Runtime(model, ExLlamaV2Cache(model, max_seq_len=512), tokenizer, max_chunk_size=chunk)
        for end in (prompt.ids.shape[1] - 2, prompt.ids.shape[1]):
            asked = SamplingParams(top_k=1)
            request = Request(
                [prompt.ids[:, :end]], asked, max_new_tokens=3, embeddings=prompt.blocks, return_logits=True
            )
            logits = runtime.submit(request).result().tokens[0].logits
            torch.testing.assert_close(logits.cpu()[..., :99].flatten(), prompt.expected[0, end - 1], atol=5e-4, rtol=0)


def test_images_that_are_not_whole(written: Written) -> None:
    model, tower = written.loaded()
    prompt = prompt_of(written, model, tower)
    with pytest.raises(GenerationError, match="only a part of the image"):
        model.forward(prompt.ids[:, :9], indexed_embeddings=prompt.blocks)
    cache = ExLlamaV2Cache(model, max_seq_len=256)
    model.forward(prompt.ids[:, :3], cache)
    if model.config.arch.lm.mrope:
        with pytest.raises(GenerationError, match="in one call with all that stands before it"):
            model.forward(prompt.ids[:, 3:], cache, indexed_embeddings=prompt.blocks)
    else:
        found = model.forward(prompt.ids[:, 3:], cache, indexed_embeddings=prompt.blocks)
        torch.testing.assert_close(found[..., :99], prompt.expected[:, 3:], atol=1e-4, rtol=0)
    with pytest.raises(GenerationError, match="one at a time"):
        model.forward(prompt.ids.expand(2, -1), indexed_embeddings=prompt.blocks)

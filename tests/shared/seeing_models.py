"""Tiny random models with vision towers and chat templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from checkpoints import SIZES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]
QWEN = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
GEMMA = ["<start_of_image>", "<image_soft_token>", "<end_of_image>"]
TOWER = {"hidden_size": 32, "intermediate_size": 40, "patch_size": 4}


def template(image: str) -> str:
    """A chat template that writes ``image`` for each image."""
    return """{{ bos_token }}{% for message in messages %}{% if message.role != 'user' %}{{ message.content }}</s>{%
else %}[INST]{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}{% if
part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}IMAGE{% endif %}{% endfor %}{% endif %}[/INST]{%
endif %}{% endfor %}""".replace("IMAGE", image)


def _mistral(text: dict[str, Any], first: int) -> Any:
    tower = {**TOWER, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 64, "initializer_range": 0.2}
    vision, words = transformers.PixtralVisionConfig(**tower), transformers.MistralConfig(**text, sliding_window=None)
    config = transformers.Mistral3Config(vision_config=vision, text_config=words, tie_word_embeddings=False)
    return transformers.Mistral3ForConditionalGeneration._from_config(config)


def _qwen(text: dict[str, Any], first: int) -> Any:
    tower = {**TOWER, "depth": 1, "num_heads": 2, "window_size": 16, "fullatt_block_indexes": [], "out_hidden_size": 48}
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 2, 2]}
    config = transformers.Qwen2_5_VLConfig(vision_config=tower, text_config={**text, "rope_parameters": rope})
    return transformers.Qwen2_5_VLForConditionalGeneration._from_config(config)


def _gemma(text: dict[str, Any], first: int) -> Any:
    tower = {**TOWER, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "vision_use_head": False}
    config = transformers.Gemma3Config(
        vision_config={"model_type": "siglip_vision_model", **tower}, text_config={**text, "head_dim": 16},
        mm_tokens_per_image=16, image_token_index=first + 1,
    )  # fmt: skip
    return transformers.Gemma3ForConditionalGeneration._from_config(config)


#: Text of an image in chat templates, tokens after those of :data:`SPECIAL`, and the function that makes the model.
FAMILIES: dict[str, tuple[str, list[str], Callable[[dict[str, Any], int], Any]]] = {
    "mistral3": ("[IMG]", [], _mistral),
    "qwen2_5_vl": ("".join(QWEN), QWEN, _qwen),
    "gemma3": (GEMMA[0], GEMMA, _gemma),
}


def save_seeing_model(made: Path, family: str = "mistral3") -> Path:
    """Save a model with random weights and its tokenizer in a folder, and return that."""
    image, further, make = FAMILIES[family]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special, alphabet = [*SPECIAL, *further], pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        ["yes no"],
        trainers.BpeTrainer(vocab_size=280, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.save(str(made / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "chat_template": template(image)}
    (made / "tokenizer_config.json").write_text(json.dumps(names))
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    torch.manual_seed(0)
    text = {**SIZES, **sizes, "max_position_embeddings": 1024}
    make(text, len(SPECIAL)).eval().save_pretrained(made)
    return made

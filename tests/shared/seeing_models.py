"""A tiny random model with a vision tower and a chat template."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from checkpoints import SIZES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]
TEMPLATE = """{{ bos_token }}{% for message in messages %}{% if message.role != 'user' %}{{ message.content }}</s>{%
else %}[INST]{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}{% if
part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}[IMG]{% endif %}{% endfor %}{% endif %}[/INST]{%
endif %}{% endfor %}"""


def save_seeing_model(made: Path) -> Path:
    """Save a Mistral 3 with random weights and its tokenizer in a folder, and return that."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        ["yes no"],
        trainers.BpeTrainer(vocab_size=280, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.save(str(made / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "chat_template": TEMPLATE}
    (made / "tokenizer_config.json").write_text(json.dumps(names))
    vision = transformers.PixtralVisionConfig(
        hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, patch_size=4, image_size=64,
        initializer_range=0.2,
    )  # fmt: skip
    changed = {"vocab_size": tokenizer.get_vocab_size(), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    text = transformers.MistralConfig(**{**SIZES, **changed, "max_position_embeddings": 1024, "sliding_window": None})
    config = transformers.Mistral3Config(vision_config=vision, text_config=text, tie_word_embeddings=False)
    torch.manual_seed(0)
    transformers.Mistral3ForConditionalGeneration._from_config(config).eval().save_pretrained(made)
    return made

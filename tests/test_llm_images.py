"""Images in messages: the template's tokens become embeddings, which tests/model/test_vision.py looks at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints import SIZES
from click.testing import CliRunner
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import constrain
from constrain import LLM
from constrain.cli.inspect import info
from constrain.errors import ArgumentError, ModelError
from constrain.generator import ExLlamaV2Sampler
from constrain.llm.images import MessageImages
from constrain.model import ExLlamaV2Cache, ExLlamaV2VisionTower

SPECIAL = ["<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]
TEMPLATE = """{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}[INST]{% for part in
message.content %}{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}[IMG]{% endif %}{% endfor
%}[/INST]{% else %}{{ message.content }}</s>{% endif %}{% endfor %}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, and its tokenizer."""
    made = tmp_path_factory.mktemp("mistral3")
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


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return constrain.load(folder, images=True, max_seq_len=512, cache_tokens=1024)


@pytest.fixture(scope="module")
def tower(llm: LLM) -> ExLlamaV2VisionTower:
    made = ExLlamaV2VisionTower(llm.model.config)
    made.load()
    return made


def image(seed: int, *size: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def asked(*parts: Any) -> list[dict[str, Any]]:
    """A message of the user: texts and images."""
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": part} for part in parts
    ]
    return [{"role": "user", "content": content}]


def test_images_take_the_place_of_their_tokens(llm: LLM, tower: ExLlamaV2VisionTower) -> None:
    """The name of the token in a text is text."""
    images = [image(1, 20, 40), image(2, 30, 9)]
    greedy = ExLlamaV2Sampler.Settings.greedy()
    messages = asked("[IMG] of", images[0], "and", images[1])
    answer = llm.generate(messages=messages, max_new_tokens=6, settings=greedy)
    blocks = [tower.get_image_embeddings(llm.model, llm.tokenizer, each) for each in images]
    assert [block.length for block in blocks] == [3 * 6, 4 * 3]

    def plain(text: str) -> torch.Tensor:
        return torch.tensor([llm.tokenizer.tokenizer_model.hf_tokenizer.encode(text).ids])

    hidden = torch.cat([plain("["), plain("IMG] of")], dim=1)
    first, second = (block.get_ids_tensor() for block in blocks)
    ids = torch.cat([plain("<s>[INST]"), hidden, first, plain("and"), second, plain("[/INST]")], dim=1)
    assert answer.prompt_tokens == ids.shape[1]
    cache, tokens = ExLlamaV2Cache(llm.model, max_seq_len=256), []
    for _ in range(len(answer.tokens)):
        logits = llm.model.forward(ids, cache, last_id_only=True, indexed_embeddings=blocks)
        tokens.append(int(logits[0, -1].argmax()))
        ids = torch.tensor([[tokens[-1]]])
    assert answer.tokens == tokens


def test_with_a_constraint_and_several_outputs(llm: LLM) -> None:
    found = llm.generate(messages=asked(image(3, 8, 8), "Is it?"), choices=["yes", "no"], n=3, seed=0)
    assert all(each.text in ("yes", "no") for each in found)
    (one,) = llm.generate_many([asked(image(3, 8, 8), "Is it?")], regex="[0-9]{3}")
    assert not isinstance(one, constrain.Failure) and one.text.isdigit()


def test_the_same_image_has_the_same_ids(llm: LLM, tower: ExLlamaV2VisionTower) -> None:
    images = MessageImages(tower, llm.model, llm.tokenizer)
    prompt = torch.tensor([[0, SPECIAL.index("[IMG]"), 9]])
    first, (kept,) = images.placed(prompt, [image(4, 16, 16)])
    again, _ = images.placed(prompt, [image(4, 16, 16)])
    other, _ = images.placed(prompt, [image(5, 16, 16)])
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.tolist() == [[0, *kept.get_ids(), 9]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "image", "image": "picture.png"}], "an image of PIL"),
        ([{"type": "image"}], "an image in a message is"),
        ([{"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}], "an image in a message is"),
    ],
)
def test_mistakes_are_named(llm: LLM, content: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        llm.generate(messages=[{"role": "user", "content": content}])


def test_without_a_tower(llm: LLM, tiny_dir: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no vision tower is loaded; use load\(images=True\)"):
        LLM(llm.runtime).generate(messages=asked(image(6, 8, 8)))
    with pytest.raises(ModelError, match="has no vision tower that is read"):
        constrain.load(tiny_dir, images=True)


def test_a_template_that_leaves_images_out(llm: LLM) -> None:
    message = {"role": "assistant", "content": [{"type": "image", "image": image(7, 8, 8)}]}
    with pytest.raises(ArgumentError, match=r"writes 0 times \[IMG\] for 1 images"):
        llm.generate(messages=[message])


def test_info_speaks_of_images(folder: Path) -> None:
    assert "read by a pixtral tower" in CliRunner().invoke(info, [str(folder)]).output

"""Images in messages: the template's tokens become embeddings, which tests/model/test_vision.py looks at."""

from __future__ import annotations

import json
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from seeing_models import SPECIAL, save_seeing_model

import constrain
from constrain import LLM
from constrain.chat import Chat
from constrain.cli.extract import extract
from constrain.cli.generate import generate
from constrain.cli.inspect import info
from constrain.completion.images import MessageImages
from constrain.documents import Document, decode_image, read
from constrain.errors import ArgumentError, DocumentError, ExtractionError, GenerationError, ModelError
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import ExLlamaV2Cache, ExLlamaV2VisionTower


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_seeing_model(tmp_path_factory.mktemp("mistral3"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return constrain.load(folder, images=True, max_seq_len=1024, cache_tokens=2048)


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


def test_every_form_of_an_image(llm: LLM, tmp_path: Path) -> None:
    """Paths, bytes and the parts of OpenAI's APIs are the same image, which the prefix cache knows."""
    picture, path = image(8, 20, 24), tmp_path / "a picture.png"
    picture.save(path)
    content = path.read_bytes()
    url = f"data:image/png;base64,{b64encode(content).decode()}"
    text = {"type": "input_text", "text": "What?"}
    forms: list[dict[str, Any]] = [
        {"type": "image", "image": picture},
        {"type": "image", "image": path},
        {"type": "image", "image": path.as_uri()},
        {"type": "image", "image": content},
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
        {"type": "input_image", "image_url": url},
    ]
    encoded = [llm.encode_prompt([{"role": "user", "content": [form, text]}])[0] for form in forms]
    assert all(torch.equal(each, encoded[0]) for each in encoded)


def test_images_are_decoded_as_they_are_seen() -> None:
    """Turned as their metadata says, in three colours, and not at all if they are too large."""
    picture, turned = image(9, 4, 6), BytesIO()
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    picture.convert("RGBA").save(turned, "PNG", exif=exif)
    found = decode_image(turned.getvalue(), "it")
    assert (found.mode, found.size) == ("RGB", (4, 6))
    assert found.getpixel((3, 0)) == picture.getpixel((0, 0))
    with pytest.raises(DocumentError, match="it: an image of 6 by 4 pixels; at most 20 are read"):
        decode_image(turned.getvalue(), "it", 20)


def test_two_images_share_no_page(llm: LLM) -> None:
    """Prompts that differ in an image alone find nothing of each other in the prefix cache, though both fill pages."""
    pairs = [asked(*[image(number, 64, 64)] * 4) for number in (20, 21)]
    first, other = (llm.generate(messages=pair, max_new_tokens=2) for pair in pairs)
    again = llm.generate(messages=pairs[0], max_new_tokens=2)
    assert first.prompt_tokens > 256
    assert other.cached_tokens <= 2 < again.cached_tokens


def test_images_that_do_not_fit_are_refused_before_they_are_read(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExLlamaV2VisionTower, "features", None)
    with pytest.raises(GenerationError, match="15 images have 1080 tokens and the context 1024"):
        llm.generate(messages=asked(*(image(30 + number, 64, 64) for number in range(16))))


SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["total"],
    "additionalProperties": False,
}


def test_extraction_from_an_image(llm: LLM, tmp_path: Path) -> None:
    """The prompt has the schema and the image; the record, its confidence and its document are as of a text."""
    picture, path = image(10, 20, 20), tmp_path / "receipt.png"
    picture.save(path)
    document = read(path)
    assert (document.text, document.metadata) == ("", {"width": 20, "height": 20})
    found = llm.extract(SCHEMA, document, instructions="Round.")
    assert 0 <= found.json["total"] <= 99 and found.document is document
    assert set(found.confidence) == {"/total"}
    assert llm.extract(SCHEMA, picture, instructions="Round.").json == found.json
    (many,) = llm.extract_many(SCHEMA, [document], instructions="Round.", confidence="exact")
    assert many.json == found.json
    stream = llm.extract_stream(SCHEMA, document, instructions="Round.")
    assert [*stream] and stream.extraction == found
    other = llm.extract(SCHEMA, Document("", image=(tmp_path / "receipt.png").read_bytes()))
    assert other.usage.prompt_tokens < found.usage.prompt_tokens


def test_extraction_from_an_image_that_cannot_be(llm: LLM) -> None:
    picture = image(11, 8, 8)
    with pytest.raises(ExtractionError, match="the built-in model reads texts only"):
        constrain.load(max_batch_size=1).extract(SCHEMA, picture)
    with pytest.raises(ExtractionError, match=r"use load\(images=True\)"):
        LLM(llm.runtime).extract(SCHEMA, picture)
    with pytest.raises(ExtractionError, match="asks for quotes, which only a text has"):
        llm.extract({"type": "string", "x-verbatim": {"source": "text"}}, picture)


@pytest.mark.parametrize(
    ("family", "around", "length"),
    [
        ("qwen2_5_vl", ("<|vision_start|>", "<|vision_end|>"), 6 * 10),
        ("gemma3", ("\n\n<start_of_image>", "<end_of_image>\n\n"), 4 * 4),
    ],
)
def test_what_families_read_around_images(family: str, around: tuple[str, str], length: int, tmp_path: Path) -> None:
    """The tokens around an image, whoever writes them, and nothing of them in a text; greedy text of both doors."""
    llm = constrain.load(save_seeing_model(tmp_path, family), images=True, max_seq_len=256)
    picture, encode = image(14, 24, 40), llm.tokenizer.tokenizer_model.hf_tokenizer.encode
    ids, (block,) = llm.encode_prompt(asked("a", picture, "b"))
    before, after = (encode(text).ids for text in (f"<s>[INST]a{around[0]}", f"{around[1]}b[/INST]"))
    assert ids[0].tolist() == [*before, *block.get_ids(), *after]
    assert block.length == length
    hidden, _ = llm.encode_prompt(asked(around[0].strip(), picture))
    assert hidden[0].tolist().count(before[-1]) == 1
    tower = ExLlamaV2VisionTower(llm.model.config)
    tower.load()
    framed = tower.get_image_embeddings(llm.model, llm.tokenizer, picture)
    assert (framed.length, framed.pre_tokens, framed.post_tokens) == (length + 2, 1, 1)
    inner = framed.get_ids_tensor()
    inner = torch.cat([torch.tensor([before[:-1]]), inner, torch.tensor([after[1:]])], dim=1)
    greedy = ExLlamaV2Sampler.Settings.greedy()
    generator = ExLlamaV2DynamicGenerator(llm.model, ExLlamaV2Cache(llm.model, max_seq_len=512), llm.tokenizer)
    job = ExLlamaV2DynamicJob(inner, max_new_tokens=5, gen_settings=greedy, embeddings=[framed], identifier=1)
    generator.enqueue(job)
    text = ""
    while generator.num_remaining_jobs():
        text += "".join(each.get("text", "") for each in generator.iterate())
    assert text == llm.generate(messages=asked("a", picture, "b"), max_new_tokens=5, settings=greedy).text


def test_chats_with_images(llm: LLM) -> None:
    """An image stays in the conversation, so that the next question is about it too."""
    chat = Chat(llm, settings=ExLlamaV2Sampler.Settings.greedy(), max_new_tokens=4)
    first = "".join(chat.answer(asked(image(15, 16, 16), "What?")[0]["content"]))
    assert chat.messages[0]["content"][0]["type"] == "image"
    second = "".join(chat.answer("And?"))
    whole = [*asked(image(15, 16, 16), "What?"), {"role": "assistant", "content": first.strip()}]
    whole.append({"role": "user", "content": "And?"})
    again = llm.generate(messages=whole, max_new_tokens=4, settings=ExLlamaV2Sampler.Settings.greedy())
    assert again.text == second
    blind = Chat(llm.runtime)
    with pytest.raises(ArgumentError, match=r"use load\(images=True\)"):
        next(blind.answer(asked(image(15, 16, 16), "What?")[0]["content"]))
    with pytest.raises(ArgumentError, match="message must be"):
        next(chat.answer(5))  # type: ignore[arg-type]


def test_with_a_constraint_and_several_outputs(llm: LLM) -> None:
    found = llm.generate(messages=asked(image(3, 8, 8), "Is it?"), choices=["yes", "no"], n=3, seed=0)
    assert all(each.text in ("yes", "no") for each in found)
    (one,) = llm.generate_many([asked(image(3, 8, 8), "Is it?")], regex="[0-9]{3}")
    assert not isinstance(one, constrain.Failure) and one.text.isdigit()


def test_the_same_image_has_the_same_ids(llm: LLM, tower: ExLlamaV2VisionTower) -> None:
    images = MessageImages(tower, llm.runtime)
    prompt = torch.tensor([[0, SPECIAL.index("[IMG]"), 9]])
    first, (kept,) = images.placed(prompt, [image(4, 16, 16)])
    again, _ = images.placed(prompt, [image(4, 16, 16)])
    other, _ = images.placed(prompt, [image(5, 16, 16)])
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.tolist() == [[0, *kept.get_ids(), 9]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "image", "image": "no such picture.png"}], "no such picture.png: no such file"),
        ([{"type": "image"}], "an image in a message is"),
        ([{"type": "image", "image": 5}], "a Pillow image, bytes, a path or a data: URL"),
        ([{"type": "image", "image": b"GIF89a and no more"}], "an image: "),
        ([{"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}], "other addresses are not fetched"),
        ([{"type": "input_image", "image_url": "data:image/png;base64,###"}], "data: URL: not base64"),
        ([{"type": "input_image", "image_url": "data:image/png"}], "data: URL: there is no comma"),
        ([{"type": "image", "image": b"GIF87a"}], "an image: "),
    ],
)
def test_mistakes_are_named(llm: LLM, content: list[dict[str, Any]], message: str) -> None:
    with pytest.raises((ArgumentError, DocumentError), match=message):
        llm.generate(messages=[{"role": "user", "content": content}])


def test_without_a_tower(llm: LLM, tiny_dir: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no vision tower is loaded; use load\(images=True\)"):
        LLM(llm.runtime).generate(messages=asked(image(6, 8, 8)))
    with pytest.raises(ModelError, match="has no supported vision tower"):
        constrain.load(tiny_dir, images=True)


def test_a_template_that_leaves_images_out(llm: LLM) -> None:
    message = {"role": "assistant", "content": [{"type": "image", "image": image(7, 8, 8)}]}
    with pytest.raises(ArgumentError, match=r"writes \[IMG\] 0 times for 1 images"):
        llm.generate(messages=[message])


def test_records_of_images_on_the_command_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llm: LLM
) -> None:
    """A model that sees gets a record; the built-in one tells why not. The next run knows the image by its content."""
    monkeypatch.chdir(tmp_path)
    image(12, 20, 20).save("receipt.jpg")
    image(13, 20, 20).save("other.jpg")
    Path("schema.json").write_text(json.dumps({"title": "receipt", **SCHEMA}))

    def run(*args: str) -> list[dict[str, Any]]:
        Path("out.jsonl").touch()
        CliRunner().invoke(extract, ["--schema", "schema.json", "-o", "out.jsonl", *args])
        return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]

    (found,) = run("--model", str(folder), "receipt.jpg")
    assert found["record"] == llm.extract({"title": "receipt", **SCHEMA}, read("receipt.jpg")).json
    assert run("--model", str(folder), "receipt.jpg") == [found]
    Path("other.jpg").rename("receipt.jpg")
    assert len(run("--model", str(folder), "receipt.jpg")) == 2
    assert "the built-in model reads texts only" in run("receipt.jpg")[-1]["error"]["message"]


def test_an_answer_about_an_image_on_the_command_line(folder: Path, tmp_path: Path, llm: LLM) -> None:
    path = tmp_path / "a.png"
    image(16, 20, 20).save(path)
    args = ["Is it?", "--image", str(path), "--regex", "[a-z]{5}", "--temperature", "0"]
    found = CliRunner().invoke(generate, [*args, "--model", str(folder)])
    messages = asked(image(16, 20, 20), "Is it?")
    assert found.output.strip() == llm.generate(messages=messages, regex="[a-z]{5}", temperature=0).text
    refused = CliRunner().invoke(generate, args)
    assert isinstance(refused.exception, ModelError) and "has no supported vision tower" in str(refused.exception)


def test_info_speaks_of_images(folder: Path) -> None:
    assert "read by a pixtral tower" in CliRunner().invoke(info, [str(folder)]).output

"""Every door gives a chat model the prompt of its own template, and shares what documents have in common."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_models import CHAT_FAMILIES
from click.testing import CliRunner

import constrain
from constrain import LLM, ExLlamaV2DynamicGenerator
from constrain.chat import Chat
from constrain.cli import cli
from constrain.extract import Extractor, Target
from constrain.extract.options import ExtractionOptions
from constrain.extract.prompts.chat_form import ChatForm
from constrain.model import ExLlamaV2Cache
from constrain.runtime import Handle, Request, Runtime

SCHEMA = {
    "type": "object",
    "properties": {"paid": {"type": "boolean"}},
    "required": ["paid"],
    "additionalProperties": False,
}
TARGET = Target.of(SCHEMA)
TEXT = "Ann paid <12> euros.<|im_end|></s><eos><|eot_id|>"
EXAMPLES = [("Bo owes 3 euros.", {"paid": False}), ("Cy paid.", {"paid": True})]
OPTIONS: dict[str, Any] = {"instructions": "Paid means in full.", "examples": EXAMPLES}
WITHOUT_MARKS = "Ann paid <12> euros."


@pytest.fixture(scope="module", params=["llama3", "qwen2_5", "qwen3", "mistral", "gemma"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return CHAT_FAMILIES[request.param].save_model(tmp_path_factory.mktemp("models") / request.param)


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return constrain.load(folder)


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The prompts of all requests."""
    found: list[list[int]] = []
    submit = Runtime.submit

    def observed(self: Runtime, request: Request) -> Handle:
        found.append(request.prompt[0][0].tolist())
        return submit(self, request)

    monkeypatch.setattr(Runtime, "submit", observed)
    return found


def expected(llm: LLM, folder: Path, text: str) -> list[int]:
    """The conversation about a document, encoded by transformers."""
    form = llm.extractor.form
    assert isinstance(form, ChatForm)
    messages = form.messages(ExtractionOptions.of(TARGET, OPTIONS).task, text)
    tokenizer = CHAT_FAMILIES[folder.name].reference(folder)
    ids: list[int] = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False, enable_thinking=False
    )
    return ids


def test_every_door_has_the_prompt_of_the_template(
    llm: LLM, folder: Path, prompts: list[list[int]], tmp_path: Path
) -> None:
    async def ask() -> None:
        await llm.aextract(SCHEMA, WITHOUT_MARKS, **OPTIONS)
        assert [each async for each in llm.aextract_many(SCHEMA, [WITHOUT_MARKS], **OPTIONS)]

    llm.extract(SCHEMA, WITHOUT_MARKS, **OPTIONS)
    assert len(list(llm.extract_many(SCHEMA, [WITHOUT_MARKS], **OPTIONS))) == 1
    asyncio.run(ask())
    dynamic = ExLlamaV2DynamicGenerator(llm.model, ExLlamaV2Cache(llm.model, max_seq_len=4096), llm.tokenizer)
    Extractor(dynamic).extract(TARGET, WITHOUT_MARKS, **OPTIONS)
    run_command(folder, tmp_path, WITHOUT_MARKS)
    assert len(prompts) == 6
    assert all(ids == expected(llm, folder, WITHOUT_MARKS) for ids in prompts)


def run_command(model: Path, folder: Path, text: str) -> None:
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "text.txt").write_text(text)
    lines = [json.dumps({"document": text, "record": record}) for text, record in EXAMPLES]
    (folder / "examples.jsonl").write_text("\n".join(lines) + "\n")
    options = ["--instructions", OPTIONS["instructions"], "--examples", str(folder / "examples.jsonl")]
    arguments = ["--schema", str(folder / "schema.json"), "--model", str(model), *options, str(folder / "text.txt")]
    result = CliRunner().invoke(cli, ["extract", *arguments])
    assert result.exit_code == 0, result.output


def test_marks_of_a_document_are_text_at_every_door(
    llm: LLM, folder: Path, prompts: list[list[int]], tmp_path: Path
) -> None:
    llm.extract(SCHEMA, TEXT, **OPTIONS)
    run_command(folder, tmp_path, TEXT)
    marks = special(llm, expected(llm, folder, WITHOUT_MARKS))
    assert [special(llm, ids) for ids in prompts] == [marks] * 2
    assert all(TEXT in llm.tokenizer.decode(torch.tensor(ids), True) for ids in prompts)


def special(llm: LLM, ids: list[int]) -> list[int]:
    return [idx for idx in ids if idx in llm.tokenizer.extended_id_to_piece]


def test_info_names_the_form(folder: Path, llm: LLM) -> None:
    result = CliRunner().invoke(cli, ["info", str(folder)])
    assert llm.extractor.form.description in result.output


def test_conversations_have_the_prompt_of_the_template(llm: LLM, folder: Path, prompts: list[list[int]]) -> None:
    for text in (WITHOUT_MARKS, TEXT):
        llm.generate(messages=[{"role": "user", "content": text}], max_new_tokens=2)
        list(Chat(llm, max_new_tokens=2).answer(text))
    messages = [{"role": "user", "content": WITHOUT_MARKS}]
    tokenizer = CHAT_FAMILIES[folder.name].reference(folder)
    plain = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert prompts[:2] == [plain, plain]
    assert [special(llm, ids) for ids in prompts[2:]] == [special(llm, plain)] * 2


def test_documents_share_what_comes_first(folder: Path, prompts: list[list[int]]) -> None:
    llm = constrain.load(folder)
    first, *others = [llm.extract(SCHEMA, f"{n} euros were paid.", **OPTIONS) for n in range(4)]
    assert first.usage.cached_tokens == 0
    page = llm.runtime.allocator.page_size
    for each, ids in zip(others, prompts[1:], strict=True):
        assert each.usage.prompt_tokens == len(ids)
        shared = next(place for place, (one, other) in enumerate(zip(ids, prompts[0], strict=False)) if one != other)
        assert shared > page
        assert shared // page * page <= each.usage.cached_tokens <= shared

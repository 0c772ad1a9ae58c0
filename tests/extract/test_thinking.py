"""Models that think first: at most so long, and the record is constrained all the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_models import CHAT_FAMILIES

import constrain
from constrain import LLM
from constrain.errors import ArgumentError, BudgetError
from constrain.extract import Extraction
from constrain.generator import ExLlamaV2Sampler
from constrain.runtime import Handle, Request, Runtime

SCHEMA = {
    "type": "object",
    "properties": {"paid": {"type": "boolean"}},
    "required": ["paid"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["qwen3", "r1"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return constrain.load(CHAT_FAMILIES[request.param].save_model(tmp_path_factory.mktemp(request.param), context=1024))


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """The handles of all requests, with what the model wrote."""
    found: list[Handle] = []
    submit = Runtime.submit

    def observed(self: Runtime, request: Request) -> Handle:
        found.append(submit(self, request))
        return found[-1]

    monkeypatch.setattr(Runtime, "submit", observed)
    return found


def written(llm: LLM, handle: Handle) -> str:
    """Prompt and output, from the last turn on."""
    ids = torch.tensor(handle.sequence.rows[0].tokens())
    text: str = llm.tokenizer.decode(ids, decode_special_tokens=True)
    return text[text.index("12 euros") :]


def biased(llm: LLM, text: str) -> ExLlamaV2Sampler.Settings:
    settings = ExLlamaV2Sampler.Settings.greedy()
    settings.token_bias = torch.zeros(llm.model.config.padded_vocab_size)
    settings.token_bias[llm.tokenizer.tokenizer_model.piece_to_id(text)] = 100
    return settings


def check(result: Extraction[Any]) -> None:
    assert result.json in ({"paid": True}, {"paid": False})
    assert json.loads(result.text) == result.json
    assert result.finish_reason == "stop"


def test_thoughts_are_closed_after_so_many_tokens(llm: LLM, outputs: list[Handle]) -> None:
    result = llm.extract(SCHEMA, "Ann paid 12 euros.", thinking=7)
    check(result)
    text = written(llm, outputs[0])
    assert text.count("<think>\n") == text.count("</think>\n\n") == 1
    thoughts = text.split("<think>\n")[1].split("</think>\n\n")[0]
    assert thoughts and f"<think>\n{thoughts}</think>\n\n{result.text}" in text
    assert llm.tokenizer.decode(torch.tensor(result.tokens)) == result.text
    closing = llm.tokenizer.encode_prompt("</think>\n\n").shape[1]
    opening = 0 if "Assistant" in text else llm.tokenizer.encode_prompt("<think>\n").shape[1]
    assert result.usage.output_tokens == opening + 7 + closing + len(result.tokens)


def test_a_model_may_end_its_thoughts_early(llm: LLM, outputs: list[Handle]) -> None:
    result = llm.extract(SCHEMA, "Ann paid 12 euros.", thinking=500, settings=biased(llm, "</think>"))
    check(result)
    assert "<think>\n</think>\n\n{" in written(llm, outputs[0])


def test_an_end_of_turn_does_not_end_the_thoughts(llm: LLM, outputs: list[Handle]) -> None:
    check(llm.extract(SCHEMA, "Ann paid 12 euros.", thinking=20, settings=biased(llm, llm.tokenizer.eos_token)))
    assert written(llm, outputs[0]).count(llm.tokenizer.eos_token) <= 1


def test_without_thinking_thoughts_are_closed_at_once(llm: LLM, outputs: list[Handle]) -> None:
    check(llm.extract(SCHEMA, "Ann paid 12 euros."))
    before, after = written(llm, outputs[0]).split("</think>\n\n")
    assert before.endswith("<think>\n") or before.endswith("<think>\n\n")
    assert after.startswith('{"paid":')


def test_every_door_may_think(llm: LLM, outputs: list[Handle]) -> None:
    async def ask() -> None:
        check(await llm.aextract(SCHEMA, "Ann paid 12 euros.", thinking=5))

    asyncio.run(ask())
    for result in llm.extract_many(SCHEMA, ["Ann paid 12 euros.", "Bo paid 12 euros."], thinking=5):
        assert isinstance(result, Extraction)
        check(result)
    stream = llm.extract_stream(SCHEMA, "Ann paid 12 euros.", thinking=5)
    assert [partial.json for partial in stream] in ([{"paid": True}], [{"paid": False}])
    assert all("</think>\n\n{" in written(llm, handle) for handle in outputs)


def test_a_bound_beyond_the_context_is_lowered(llm: LLM) -> None:
    result = llm.extract(SCHEMA, "Ann paid 12 euros.", thinking=10**6)
    check(result)
    room = llm.runtime.max_seq_len - result.usage.prompt_tokens
    assert 0 < result.usage.output_tokens - len(result.tokens) <= room // 2 + 10


def test_the_record_has_to_fit_after_the_thoughts(llm: LLM) -> None:
    with pytest.raises(BudgetError):
        llm.extract(SCHEMA, "Ann paid 12 euros.", thinking=20, max_new_tokens=2)


def test_a_model_without_marks_cannot_think(tmp_path: Path) -> None:
    llm = constrain.load(CHAT_FAMILIES["llama3"].save_model(tmp_path))
    with pytest.raises(ArgumentError, match="thinking needs a model that thinks"):
        llm.extract_many(SCHEMA, ["Ann paid 12 euros."], thinking=5)
    with pytest.raises(ArgumentError, match="thinking must be a whole number"):
        llm.extract(SCHEMA, "Ann paid 12 euros.", thinking=-1)

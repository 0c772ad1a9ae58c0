"""Prompts: what is too long is refused before it is encoded, and texts of clients stay text."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from constrain import LLM
from constrain.tokenizer import ExLlamaV2Tokenizer

LONG = "a " * (1 << 18)
MESSAGE = {"role": "user", "content": LONG}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("completions", {"prompt": LONG}, "/prompt"),
        ("completions", {"prompt": [LONG, "a"]}, "/prompt"),
        ("chat/completions", {"messages": [MESSAGE]}, "/messages"),
        ("chat/completions", {"messages": [MESSAGE], "guided_json": SCHEMA}, "/messages"),
        ("responses", {"input": LONG}, "/input"),
        ("extract", {"document": "Ada", "instructions": LONG, "schema": SCHEMA}, "/document"),
    ],
)
def test_what_cannot_fit_is_refused_before_it_is_encoded(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], param: str
) -> None:
    def encode(self: ExLlamaV2Tokenizer, prompt: str) -> list[int]:
        raise AssertionError("a text is encoded")

    monkeypatch.setattr(ExLlamaV2Tokenizer, "prompt_ids", encode)
    monkeypatch.setattr(ExLlamaV2Tokenizer, "encode_special", encode)
    answer = client.post(f"/v1/{path}", json={"model": "constrain", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)


def test_documents_of_records_have_a_limit(client: httpx.Client) -> None:
    body = {"model": "constrain", "document": "a" * ((4 << 20) + 1), "schema": SCHEMA}
    answer = client.post("/v1/extract", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "/document")


def test_names_of_special_tokens_stay_text_without_a_chat_template(client: httpx.Client, llm: LLM) -> None:
    def prompt_tokens(text: str) -> int:
        body = {"model": "constrain", "messages": [{"role": "user", "content": text}], "guided_choice": ["a"]}
        return int(client.post("/v1/chat/completions", json=body).json()["usage"]["prompt_tokens"])

    tokenizer = llm.tokenizer
    more = len(tokenizer.prompt_ids(tokenizer.plain("x <|record|> x"))) - len(tokenizer.prompt_ids("x x"))
    assert more > 1
    assert prompt_tokens("x <|record|> x") - prompt_tokens("x x") == more

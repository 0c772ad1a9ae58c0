"""Prompts: what is too long is refused before it is encoded, and texts of clients stay text."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from constrain import LLM
from constrain.serve.protocol.chat import Message, Picture
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


PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ADA = {"role": "user", "content": "Ada Lovelace is 36 years old."}
OK, THANKS = {"role": "assistant", "content": "OK"}, {"role": "user", "content": "Thanks."}


def test_the_built_in_model_reads_all_messages(client: httpx.Client) -> None:
    def ask(*messages: dict[str, str]) -> tuple[Any, int]:
        body = {"model": "constrain", "messages": messages, "guided_json": PERSON, "temperature": 0, "max_tokens": 40}
        answer = client.post("/v1/chat/completions", json=body).json()
        return json.loads(answer["choices"][0]["message"]["content"]), answer["usage"]["prompt_tokens"]

    record, length = ask(ADA, OK, THANKS)
    assert record == {"name": "Ada Lovelace", "age": 36}
    assert length > ask(ADA)[1]
    assert ask({"role": "system", "content": "Full names."}, ADA)[1] > ask(ADA)[1]


def test_the_built_in_model_reads_the_response_that_is_continued(client: httpx.Client) -> None:
    asked = {"model": "constrain", "temperature": 0, "max_output_tokens": 40}
    first = client.post("/v1/responses", json={**asked, "input": ADA["content"], "guided_choice": ["OK"]}).json()
    format = {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
    later = {"input": "Who was it, as a record?", "previous_response_id": first["id"], "text": format}
    output = client.post("/v1/responses", json={**asked, **later}).json()["output"]
    assert json.loads(output[0]["content"][0]["text"]) == {"name": "Ada Lovelace", "age": 36}


def test_a_text_is_not_searched_for_images() -> None:
    """Letter by letter, a long text takes seconds."""

    class Unread(str):
        def __iter__(self) -> Any:
            raise AssertionError("a text is read letter by letter")

    message = Message.model_construct(role="user", content=Unread("Ada is 36."))
    assert (message.pictures, message.text) == ([], "Ada is 36.")
    picture = Picture(content=b"x")
    assert Message(role="user", content=["a", picture]).pictures == [picture]

"""Responses have the shapes of OpenAI's: log probabilities, echoes, and chunks of streams."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

ABC = {"regex": "ab(cd|x)efgh", "temperature": 0, "max_tokens": 20}


def complete(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", json={"model": "constrain", "prompt": "a", **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


def chunks(client: httpx.Client, path: str, **fields: Any) -> list[dict[str, Any]]:
    text = client.post(f"/v1/{path}", json={"model": "constrain", "stream": True, **fields}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_tokens_have_their_places_in_the_text(client: httpx.Client) -> None:
    choice = complete(client, regex="z\u00e9\u20ac\U0001f600y[a-z]{3}", logprobs=1, max_tokens=30)
    offsets = choice["logprobs"]["text_offset"]
    assert len(offsets) == len(choice["logprobs"]["tokens"])
    assert offsets == sorted(offsets)
    for token, offset in zip(choice["logprobs"]["tokens"], offsets, strict=True):
        assert token.startswith("bytes:\\x") or choice["text"].startswith(token, offset)
    pieces = chunks(client, "completions", prompt="a", **ABC, logprobs=0)
    streamed = [offset for piece in pieces for offset in piece["choices"][0]["logprobs"]["text_offset"]]
    assert streamed == complete(client, **ABC, logprobs=0)["logprobs"]["text_offset"]
    assert streamed[-1] > 0


def test_alternatives_of_a_token_have_names_of_their_own(client: httpx.Client) -> None:
    found = complete(client, regex="[\U0001f600-\U0001f64f]{4}", logprobs=5, temperature=0, max_tokens=30)["logprobs"]
    assert any(token.startswith("bytes:\\x") for token in found["tokens"])
    for token, logprob, alternatives in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert alternatives[token] == logprob, "the token itself is reported, however unlikely it is"
        assert len(alternatives) in (5, 6)


def test_tokens_after_a_text_to_stop_at_are_not_reported(client: httpx.Client) -> None:
    assert complete(client, **ABC)["text"] == "abxefgh"
    choice = complete(client, **ABC, stop="xe", logprobs=0)
    assert (choice["text"], "".join(choice["logprobs"]["tokens"])) == ("ab", "ab")
    pieces = chunks(client, "completions", prompt="a", **ABC, stop="xe", logprobs=0)
    assert "".join(token for piece in pieces for token in piece["choices"][0]["logprobs"]["tokens"]) == "ab"


def test_special_tokens_are_reported_by_their_names(client: httpx.Client) -> None:
    body = {"model": "constrain", "messages": [{"role": "user", "content": "a"}], "guided_choice": ["xy"]}
    answer = client.post("/v1/chat/completions", json={**body, "logprobs": True, "top_logprobs": 20}).json()
    tokens = [each for entry in answer["choices"][0]["logprobs"]["content"] for each in entry["top_logprobs"]]
    assert all(each["token"] for each in tokens)
    special = [each for each in tokens if each["bytes"] is None]
    assert special
    assert all(each["token"].startswith("<") for each in special)


@pytest.mark.parametrize("prompt", ["a <|record|> b", "  a\n"])
def test_echoes_are_the_prompt_that_was_given(client: httpx.Client, prompt: str) -> None:
    assert complete(client, prompt=prompt, echo=True, guided_choice=["Z"])["text"] == f"{prompt}Z"
    pieces = chunks(client, "completions", prompt=prompt, echo=True, guided_choice=["Z"])
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == f"{prompt}Z"


@pytest.mark.parametrize(
    ("path", "asked"),
    [("completions", {"prompt": "a"}), ("chat/completions", {"messages": [{"role": "user", "content": "a"}]})],
)
def test_only_the_last_chunk_has_a_usage(client: httpx.Client, path: str, asked: dict[str, Any]) -> None:
    *pieces, last = chunks(client, path, **asked, guided_choice=["red"], stream_options={"include_usage": True})
    assert last["usage"]["completion_tokens"] > 0
    assert all(piece["usage"] is None for piece in pieces)
    assert not any("usage" in piece for piece in chunks(client, path, **asked, guided_choice=["red"]))


def test_the_best_outputs_are_those_of_the_most_likely_tokens(client: httpx.Client) -> None:
    body = {"model": "constrain", "prompt": ["a", "b"], "regex": "[a-z]{2,6}", "temperature": 2, "seed": 4}
    every = client.post("/v1/completions", json={**body, "n": 6, "logprobs": 0}).json()["choices"]
    best = client.post("/v1/completions", json={**body, "n": 2, "best_of": 6}).json()
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert all(choice["logprobs"] is None for choice in best["choices"])

    def mean(choice: dict[str, Any]) -> float:
        logprobs = choice["logprobs"]["token_logprobs"]
        return float(sum(logprobs) / len(logprobs))

    groups = (sorted(group, key=mean, reverse=True)[:2] for group in (every[:6], every[6:]))
    assert [choice["text"] for choice in best["choices"]] == [choice["text"] for group in groups for choice in group]
    assert best["usage"]["completion_tokens"] == sum(len(choice["logprobs"]["tokens"]) for choice in every)
    echoed = client.post("/v1/completions", json={**body, "n": 1, "best_of": 2, "echo": True}).json()["choices"]
    assert [choice["text"][0] for choice in echoed] == ["a", "b"]

"""Completions that begin with their prompt, with the log probabilities of its tokens."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from constrain.serve.protocol.completions import CompletionRequest

PROMPTS = ["Ada Lovelace, 36, was", "a <|record|> b\u00e9\u20ac\U0001f600", "  a\n"]


def choices(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/completions", json={"model": "constrain", "seed": 3, **fields})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["choices"])


def streamed(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "constrain", "seed": 3, "stream": True, **fields}
    lines = client.post("/v1/completions", json=body).text.split("\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [event["choices"][0] for event in events]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_tokens_of_a_prompt_have_log_probabilities(client: httpx.Client, prompt: str) -> None:
    [choice] = choices(client, prompt=prompt, echo=True, logprobs=2, regex="[xyz]{4}")
    found, text = choice["logprobs"], choice["text"]
    assert text.startswith(prompt) and len({len(values) for values in found.values()}) == 1
    # The token that begins a text in this model is before the first, and not among them.
    assert all(logprob <= 0 for logprob in found["token_logprobs"])
    assert all(2 <= len(top) <= 3 for top in found["top_logprobs"])
    for token, offset in zip(found["tokens"], found["text_offset"], strict=True):
        assert token.startswith("bytes:") or text.startswith(token, offset)
    assert found["text_offset"] == sorted(found["text_offset"])


def test_they_are_those_of_the_model(client: httpx.Client) -> None:
    """The log probability of each token is what it has when it is generated after those before it."""
    tokens = [*range(300, 330)]
    [choice] = choices(client, prompt=tokens, echo=True, logprobs=0, max_tokens=1)
    assert choice["logprobs"]["token_logprobs"][0] is None and choice["logprobs"]["top_logprobs"][0] is None
    for length in (1, 7, 29):
        [forced] = choices(
            client, prompt=tokens[:length], logprobs=0, max_tokens=1, temperature=0, logit_bias={tokens[length]: 100}
        )
        assert forced["logprobs"]["token_logprobs"][0] == pytest.approx(
            choice["logprobs"]["token_logprobs"][length], abs=1e-3
        )


def test_a_prompt_of_one_token_has_none(client: httpx.Client) -> None:
    [choice] = choices(client, prompt=[300], echo=True, logprobs=1, guided_choice=["x"])
    assert choice["logprobs"]["token_logprobs"][0] is None and len(choice["logprobs"]["tokens"]) >= 2


def test_several_prompts_and_outputs(client: httpx.Client) -> None:
    asked = {"prompt": PROMPTS[:2], "n": 2, "echo": True, "logprobs": 1, "regex": "[xyz]{3}"}
    found = choices(client, **asked)
    assert [choice["index"] for choice in found] == [0, 1, 2, 3]
    for choice, prompt in zip(found, [PROMPTS[0]] * 2 + [PROMPTS[1]] * 2, strict=True):
        assert choice["text"].startswith(prompt) and len(choice["text"]) == len(prompt) + 3
    pieces = streamed(client, **asked)
    for number, choice in enumerate(found):
        parts = [piece for piece in pieces if piece["index"] == number]
        assert "".join(part["text"] for part in parts) == choice["text"]
        for name, values in choice["logprobs"].items():
            joined = [value for part in parts for value in part["logprobs"][name]]
            assert len(joined) == len(values) and (name != "text_offset" or joined == values)
    [best] = choices(client, **{**asked, "prompt": PROMPTS[0], "n": 1, "best_of": 2})
    assert best["text"].startswith(PROMPTS[0])


def test_only_the_prompt(client: httpx.Client) -> None:
    asked = {"prompt": PROMPTS[0], "echo": True, "logprobs": 1, "max_tokens": 0}
    [choice] = choices(client, **asked)
    assert choice["text"] == PROMPTS[0] == "".join(choice["logprobs"]["tokens"]) and choice["finish_reason"] == "length"
    pieces = streamed(client, **asked)
    assert "".join(piece["text"] for piece in pieces) == PROMPTS[0] and pieces[-1]["finish_reason"] == "length"
    answer = client.post("/v1/completions", json={"model": "constrain", **asked}).json()
    assert answer["usage"]["completion_tokens"] == 0 < answer["usage"]["total_tokens"]
    refused = client.post("/v1/completions", json={"model": "constrain", **asked, "echo": False})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "/max_tokens")


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "n": 3, "best_of": 3}, "n"),
        ({"prompt": [5, 6, 7, 8, 9], "n": 3}, "n"),
        ({"prompt": ["a", "b", "c"], "n": 2}, "prompt"),
        ({"prompt": []}, "n"),
    ],
)
def test_what_makes_outputs_too_many_is_named(asked: dict[str, Any], field: str) -> None:
    assert CompletionRequest(model="m", **asked).count_field == field

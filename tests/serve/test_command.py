"""Models of the Command family, which mark thoughts, texts and calls, and whose prompts may begin the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_models import ChatFamily, byte_level
from starlette.applications import Starlette
from starlette.testclient import TestClient

import constrain
from constrain.serve import Models, create_app

TEMPLATE = (
    "{% for message in messages %}<|START_OF_TURN_TOKEN|>{{ message.role }}: {{ message.content }}<|END_OF_TURN_TOKEN|>"
    "{% endfor %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{{ begun }}{% if reasoning is defined and not reasoning %}"
    "<|START_THINKING|><|END_THINKING|>{% endif %}{% if false %}<|START_ACTION|>{% endif %}"
)
MARKS = [f"<|{side}_{kind}|>" for kind in ("THINKING", "RESPONSE", "ACTION") for side in ("START", "END")]
TURNS = ("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>")
FAMILY = ChatFamily(byte_level, TEMPLATE, ("<BOS_TOKEN>", "<EOS_TOKEN>", *TURNS, *MARKS))
THINKS = "<|START_THINKING|>"
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "additionalProperties": False}}}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Starlette:
    return create_app(Models.of({"command": constrain.load(FAMILY.save_model(tmp_path_factory.mktemp("command")))}))


def ask(app: Starlette, begun: str = "", **fields: Any) -> dict[str, Any]:
    body = {"model": "command", "messages": [{"role": "user", "content": "Is it?"}], "seed": 1, "max_tokens": 60}
    variables = {"chat_template_kwargs": {"begun": begun}}
    answer = TestClient(app).post("/v1/chat/completions", json={**body, **variables, **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


@pytest.mark.parametrize("begun", ["", "<|START_RESPONSE|>", THINKS, f"{THINKS}<|END_THINKING|>"])
def test_answers_keep_to_their_format_whatever_the_prompt_has_begun(app: Starlette, begun: str) -> None:
    choice = ask(app, begun, guided_choice=["yes", "no"])
    assert choice["message"]["content"] in ("yes", "no")
    assert choice["finish_reason"] == "stop"
    assert "reasoning_content" in choice["message"] or begun != THINKS


@pytest.mark.parametrize("begun", ["", THINKS, f"{THINKS}<|END_THINKING|>"])
def test_calls_may_follow_thoughts(app: Starlette, begun: str) -> None:
    choice = ask(app, begun, tools=[NOW], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    [call] = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("now", {})
    assert choice["finish_reason"] == "tool_calls"


def test_without_effort_the_prompt_closes_thoughts(app: Starlette) -> None:
    choice = ask(app, guided_choice=["yes", "no"], reasoning_effort="none")
    assert "reasoning_content" not in choice["message"]
    assert "reasoning_content" in ask(app, THINKS, guided_choice=["yes", "no"])["message"]


@pytest.mark.parametrize("begun", ["", "<|START_RESPONSE|>", THINKS])
def test_no_mark_is_shown(app: Starlette, begun: str) -> None:
    message = ask(app, begun, tools=[NOW], temperature=2)["message"]
    assert not any(mark in str(message.get(kind)) for mark in MARKS for kind in ("content", "reasoning_content"))

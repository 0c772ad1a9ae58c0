"""``GET /v1/responses/{id}/input_items``: what a response was asked with."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import OpenAI

from constrain.serve.endpoints.responses import messages_of
from constrain.serve.protocol.responses import ITEMS

INPUT: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hmm"}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "2"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
]


def create(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/responses", json={"model": "constrain", "regex": "ok", **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_items_are_listed_with_those_that_came_before(client: httpx.Client, url: str) -> None:
    first = create(client, input=INPUT, instructions="None of these.")
    second = create(client, input="d", previous_response_id=first["id"])
    listed = OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0).responses.input_items
    items = [*listed.list(second["id"], order="asc", limit=4)]  # several pages
    kinds = [item.type for item in items]
    assert kinds == [item.get("type", "message") for item in INPUT] + ["message", "message"]
    assert [item.id for item in items][3] == "fc_1" and items[-2].id == first["output"][0]["id"]
    texts = [item.content[0].text for item in items if item.type == "message"]  # type: ignore[union-attr]
    assert texts == ["Be brief.", "a", "b", "c", "ok", "d"]
    newest = listed.list(second["id"], limit=2, include=["message.input_image.image_url"])
    assert [item.id for item in newest.data] == [item.id for item in reversed(items)][:2] and newest.has_more
    after = listed.list(second["id"], after=items[2].id).data
    assert [item.id for item in after] == [items[1].id, items[0].id]


def test_thoughts_text_and_calls_are_one_message_until_there_is_other_text() -> None:
    thoughts = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}]}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    text: dict[str, Any] = {"role": "assistant", "content": "a"}
    items = [thoughts, text, call, text, {"role": "user", "content": "b"}, call, thoughts, call, text, text]
    images: Any = None
    found = messages_of(ITEMS.validate_python(items), "/input", images)
    assert [(each.role, each.reasoning_content, each.content, len(each.tool_calls or ())) for each in found] == [
        ("assistant", "hmm", "a", 1),
        ("assistant", None, "a", 0),
        ("user", None, "b", 0),
        ("assistant", None, None, 1),
        ("assistant", "hmm", None, 1),
        ("assistant", None, "a", 0),
        ("assistant", None, "a", 0),
    ]


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=x", "after"), ("page=2", "page"),
     ("include[]=x", "include")],
)  # fmt: skip
def test_parameters_are_checked(client: httpx.Client, query: str, param: str) -> None:
    response = create(client, input="a")
    refused = client.get(f"/v1/responses/{response['id']}/input_items?{query}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    client.delete(f"/v1/responses/{response['id']}")
    assert client.get(f"/v1/responses/{response['id']}/input_items").status_code == 404


def test_images_are_shown(client: httpx.Client) -> None:
    pixel = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    content = [{"type": "text", "text": "a"}, {"type": "input_image", "image_url": pixel}]
    response = create(client, model="seeing", input=[{"role": "user", "content": content}])
    [item] = client.get(f"/v1/responses/{response['id']}/input_items").json()["data"]
    image = {"type": "input_image", "image_url": pixel, "detail": "auto"}
    assert item["content"] == [{"type": "input_text", "text": "a"}, image]


def test_a_response_is_retrieved_with_what_was_included(client: httpx.Client, url: str) -> None:
    include = "message.output_text.logprobs"
    made = create(client, input="a", include=[include])
    responses = OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0).responses
    found = responses.retrieve(made["id"], include=[include, "reasoning.encrypted_content"], stream=False)
    assert found.model_dump(exclude_unset=True) == made
    assert found.output[0].content[0].logprobs  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("method", "query", "param"),
    [("GET", "include=x", "include"), ("GET", "stream=true", "stream"), ("GET", "starting_after=1", "starting_after"),
     ("DELETE", "include=reasoning.encrypted_content", "include")],
)  # fmt: skip
def test_parameters_of_a_response_are_checked(client: httpx.Client, method: str, query: str, param: str) -> None:
    response = create(client, input="a")
    refused = client.request(method, f"/v1/responses/{response['id']}?{query}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert client.get(f"/v1/responses/{response['id']}?include[]=message.output_text.logprobs").status_code == 200

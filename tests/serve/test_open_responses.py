"""The cases of the Open Responses compliance suite, except those with searches."""

from __future__ import annotations

import json
from base64 import b64encode
from io import BytesIO
from typing import Any

import fpdf
import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from PIL import Image
from pydantic import TypeAdapter

from constrain.serve import APIError
from constrain.serve.protocol.chat import Message
from constrain.serve.stored import StoredResponses

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}},
        "required": ["location"],
        "additionalProperties": False,
    },
}


def pdf_of(text: str) -> str:
    """A ``data:`` URL of a PDF with one page."""
    pdf = fpdf.FPDF()
    pdf.add_page()
    pdf.set_font("Helvetica")
    pdf.cell(text=text)
    return f"data:application/pdf;base64,{b64encode(pdf.output()).decode()}"


def image_url(image: Image.Image) -> str:
    """A ``data:`` URL of an image."""
    png = BytesIO()
    image.save(png, "PNG")
    return f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"


PDF = pdf_of("Title: a fixture")
CASES: dict[str, dict[str, Any]] = {
    "basic": {"input": [{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}]},
    "system prompt": {
        "input": [
            {"type": "message", "role": "system", "content": "You are a pirate. Always respond in pirate speak."},
            {"type": "message", "role": "user", "content": "Say hello."},
        ]
    },
    "streaming": {"input": [{"type": "message", "role": "user", "content": "Count from 1 to 5."}]},
    "multi-turn": {
        "input": [
            {"type": "message", "role": "user", "content": "My name is Alice."},
            {"type": "message", "role": "assistant", "content": "Hello Alice! Nice to meet you."},
            {"type": "message", "role": "user", "content": "What is my name?"},
        ]
    },
    "file input": {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Read the attached file and answer with its title only."},
                    {"type": "input_file", "filename": "fixture.pdf", "file_data": PDF},
                ],
            }
        ]
    },
    "image input": {
        "model": "seeing",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What do you see in this image? Answer in one sentence."},
                    {"type": "input_image", "image_url": image_url(Image.new("RGB", (32, 24), "red"))},
                ],
            }
        ],
    },
    "tool calling": {
        "input": [{"type": "message", "role": "user", "content": "What's the weather like in San Francisco?"}],
        "tools": [WEATHER],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    },
}
RESPONSE: TypeAdapter[Response] = TypeAdapter(Response)
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
#: Fields that the specification requires of a response.
REQUIRED = """id object created_at completed_at status incomplete_details model previous_response_id instructions output
error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs
temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata safety_identifier
prompt_cache_key""".split()


def body(case: str) -> dict[str, Any]:
    # The built-in model would not end such an answer by itself.
    limits = {} if "tools" in CASES[case] else {"regex": "[a-z]{1,20}"}
    return {"model": "constrain", "seed": 1, "max_output_tokens": 100, **limits, **CASES[case]}


def check(response: dict[str, Any], case: str) -> None:
    assert not [name for name in REQUIRED if name not in response]
    RESPONSE.validate_json(json.dumps(response), strict=True)
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["output"]
    if "tools" in CASES[case]:
        [call] = response["output"]
        assert call["type"] == "function_call"
        assert isinstance(json.loads(call["arguments"])["location"], str)


@pytest.mark.parametrize("case", CASES)
def test_responses(client: httpx.Client, case: str) -> None:
    answer = client.post("/v1/responses", json=body(case))
    assert answer.status_code == 200, answer.text
    check(answer.json(), case)


@pytest.mark.parametrize("case", CASES)
def test_streams(client: httpx.Client, case: str) -> None:
    text = client.post("/v1/responses", json={**body(case), "stream": True}).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]
    names = [line.removeprefix("event: ") for line in text.split("\n") if line.startswith("event: ")]
    assert [event["type"] for event in events] == names
    assert [EVENT.validate_json(json.dumps(event), strict=True).type for event in events] == names
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    check(events[-1]["response"], case)
    kind = "function_call" if "tools" in CASES[case] else "message"
    delta = "function_call_arguments" if "tools" in CASES[case] else "output_text"
    for name in ("added", "done"):
        items = [event["item"]["type"] for event in events if event["type"] == f"response.output_item.{name}"]
        assert items == [kind]
    pieces = [event["delta"] for event in events if event["type"] == f"response.{delta}.delta"]
    [done] = [event for event in events if event["type"] == f"response.{delta}.done"]
    assert "".join(pieces) == done.get("text", done.get("arguments"))


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/responses", json={"model": "constrain", "seed": 1, "max_output_tokens": 60, **fields})
    assert answer.status_code == 200, answer.text
    check(answer.json(), "tool calling" if "tools" in fields else "basic")
    return dict(answer.json())


def test_a_response_is_continued(client: httpx.Client) -> None:
    first = ask(client, input="Remember this code word: papaya.", instructions="Be brief.", regex="OK")
    assert first["store"]
    # Its conversation is the beginning of the prompt, without its instructions.
    second = ask(client, input="What is it?", previous_response_id=first["id"], regex="papaya")
    assert second["previous_response_id"] == first["id"]
    whole = [("user", "Remember this code word: papaya."), ("assistant", "OK"), ("user", "What is it?")]
    alone = ask(client, input=[{"role": role, "content": text} for role, text in whole], regex="papaya")
    assert second["usage"]["input_tokens"] == alone["usage"]["input_tokens"]


def test_the_output_of_a_function_is_returned_to_a_response(client: httpx.Client) -> None:
    choice = {"type": "function", "name": "get_weather"}
    first = ask(client, input="The weather in San Francisco?", tools=[WEATHER], tool_choice=choice)
    output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "64 degrees"}
    second = ask(client, input=[output], previous_response_id=first["id"], regex="[a-z]{9}")
    assert second["output"][0]["type"] == "message"
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


def test_streamed_responses_are_stored_as_others_are(client: httpx.Client) -> None:
    text = client.post("/v1/responses", json={**body("basic"), "stream": True}).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]
    path = f"/v1/responses/{events[-1]['response']['id']}"
    assert client.get(path).json() == events[-1]["response"]
    assert client.delete(path).json()["deleted"]
    assert [client.get(path).status_code, client.delete(path).status_code] == [404, 404]


def test_what_is_not_stored_is_not_continued(client: httpx.Client) -> None:
    first = ask(client, input="Hello", regex="OK", store=False)
    assert not first["store"]
    refused = client.post("/v1/responses", json={**body("basic"), "previous_response_id": first["id"]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "/previous_response_id")


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"filename": "a.pdf", "file_data": "data:application/pdf;base64,###"}, "invalid_value"),
        ({"filename": "a.pdf", "file_data": b64encode(b"no pdf").decode()}, "invalid_value"),
        ({"file_id": "file-1"}, "unsupported_content"),
    ],
)
def test_files_that_cannot_be_read_are_refused(client: httpx.Client, part: dict[str, str], code: str) -> None:
    content = [{"type": "input_file", **part}]
    refused = client.post("/v1/responses", json={"model": "constrain", "input": [{"role": "user", "content": content}]})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["code"]) == ("/input/0/content/0/file_data", code)


def test_files_of_chats_are_read(client: httpx.Client) -> None:
    file = {"type": "file", "file": {"filename": "note.txt", "file_data": b64encode(b"Ada is 36.").decode()}}
    schema = {"properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}
    format = {"type": "json_schema", "json_schema": {"name": "person", "schema": {"type": "object", **schema}}}
    request = {"messages": [{"role": "user", "content": [file]}], "response_format": format, "temperature": 0}
    answer = client.post("/v1/chat/completions", json={"model": "constrain", **request, "max_tokens": 40})
    assert json.loads(answer.json()["choices"][0]["message"]["content"]) == {"name": "Ada"}


def test_items_of_stored_responses_can_be_referred_to(client: httpx.Client) -> None:
    def ask(input: list[dict[str, Any]], **fields: Any) -> httpx.Response:
        return client.post("/v1/responses", json={"model": "constrain", "input": input, "regex": "Ada|Bob", **fields})

    user = {"role": "user", "content": "Who is it?"}
    first = ask([user]).json()
    [item] = first["output"]
    reference = {"type": "item_reference", "id": item["id"]}
    asked = [user, reference, {"role": "user", "content": "And then?"}]
    by_reference, by_value = ask(asked).json(), ask([user, item, asked[2]]).json()
    assert by_reference["usage"]["input_tokens"] == by_value["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    call = ask([user], regex=None, tools=[WEATHER], tool_choice="required", max_output_tokens=100).json()["output"][0]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    assert ask([user, {"type": "item_reference", "id": call["id"]}, answer]).status_code == 200
    client.delete(f"/v1/responses/{first['id']}")
    for input in (asked, [user, {"type": "item_reference", "id": "msg_1"}]):
        refused = ask(input)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"], error["code"]) == (400, "/input/1/id", "item_not_found")


def test_the_oldest_responses_are_forgotten() -> None:
    stored = StoredResponses(4000)
    for number in range(20):
        item = {"id": f"msg_{number}", "type": "message"}
        stored.put({"id": str(number), "output": [item]}, [Message(role="user", content="a" * 800)])
    assert stored.find("19").messages[0].content == "a" * 800
    assert stored.find("16") and stored.find_item("msg_16", "/input/0/id")["type"] == "message"
    stored.put({"id": "large"}, [Message(role="user", content="a" * 5000)])
    for forgotten in ("15", "large"):
        with pytest.raises(APIError):
            stored.find(forgotten)
    with pytest.raises(APIError):
        stored.find_item("msg_15", "/input/0/id")

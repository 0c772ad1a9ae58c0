"""The client of OpenAI against a running server."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Annotated, Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, Field, create_model

Text = Annotated[str, Field(max_length=12)]
Number = Annotated[int, Field(ge=0, le=99)]


class City(BaseModel):
    name: Text
    people: Number


@pytest.fixture(scope="module")
def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)


def random_model(rng: random.Random, name: str, depth: int = 2) -> type[BaseModel]:
    """A model with a few fields of random types."""

    def kind(level: int) -> Any:
        scalars = [Text, Number, bool, float, Literal["red", "green"], Text | None, City]
        if level == 0 or rng.random() < 0.6:
            return rng.choice(scalars)
        inner = kind(level - 1)
        return rng.choice(
            [Annotated[list[inner], Field(max_length=2)], inner | None, random_model(rng, f"{name}x", level - 1)]
        )

    fields: dict[str, Any] = {f"field_{i}": (kind(depth), ...) for i in range(rng.randint(1, 3))}
    return create_model(name, **fields)


MESSAGES: Any = [{"role": "user", "content": "Köln has 1 million people, and it rains."}]


async def parsed(client: AsyncOpenAI, kind: type[BaseModel], asked: dict[str, Any]) -> Any:
    found = await client.chat.completions.parse(**asked, messages=MESSAGES, response_format=kind)
    return found.choices[0].message.parsed


async def streamed(client: AsyncOpenAI, kind: type[BaseModel], asked: dict[str, Any]) -> Any:
    async with client.chat.completions.stream(**asked, messages=MESSAGES, response_format=kind) as stream:
        events = {event.type async for event in stream}
        assert {"chunk", "content.delta", "content.done"} <= events
        return (await stream.get_final_completion()).choices[0].message.parsed


async def called(client: AsyncOpenAI, kind: type[BaseModel], asked: dict[str, Any]) -> Any:
    tool = openai.pydantic_function_tool(kind, name="save")
    assert tool["function"]["strict"]
    choice: Any = {"type": "function", "function": {"name": "save"}}
    found = await client.chat.completions.parse(**asked, messages=MESSAGES, tools=[tool], tool_choice=choice)
    [call] = found.choices[0].message.tool_calls or ()
    return call.function.parsed_arguments


async def responded(client: AsyncOpenAI, kind: type[BaseModel], asked: dict[str, Any]) -> Any:
    limited = {"max_output_tokens": asked["max_tokens"], "model": asked["model"]}
    found = await client.responses.parse(**limited, input="Köln has 1 million people.", text_format=kind)
    return found.output_parsed


@pytest.mark.parametrize("ask", [parsed, streamed, called, responded])
def test_answers_are_what_a_model_describes(url: str, request: pytest.FixtureRequest, ask: Any) -> None:
    count = min(100, round(10 * request.config.getoption("--samples")))
    kinds = [random_model(random.Random(number), f"Model{number}") for number in range(count)]

    async def main() -> list[Any]:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0) as client:
            asked = ({"model": "constrain", "max_tokens": 300, "seed": number} for number in range(count))
            return await asyncio.gather(*(ask(client, *each) for each in zip(kinds, asked, strict=True)))

    for kind, found in zip(kinds, asyncio.run(main()), strict=True):
        assert isinstance(found, kind)


def test_strict_tools_are_parsed(client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(City, name="find_city")]
    found = client.chat.completions.parse(
        model="constrain", messages=MESSAGES, tools=tools, tool_choice="required", max_tokens=150, temperature=0
    )
    calls = found.choices[0].message.tool_calls
    assert calls and all(isinstance(call.function.parsed_arguments, City) for call in calls)
    assert found.choices[0].finish_reason == "tool_calls"


def test_a_named_tool_is_called_once(client: OpenAI) -> None:
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": {"enum": [{}]}}} for name in ("one", "two")
    ]
    named: Any = {"type": "function", "function": {"name": "two"}}
    found = client.chat.completions.create(model="constrain", messages=MESSAGES, tools=tools, tool_choice=named)
    assert [call.function.name for call in found.choices[0].message.tool_calls or ()] == ["two"]  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(3))
def test_only_allowed_tools_are_called(client: OpenAI, seed: int) -> None:
    names = ("one", "two", "three")
    functions: Any = [{"name": name, "parameters": {"enum": [{}]}} for name in names]
    tools = [{"type": "function", "function": function} for function in functions]
    allowed: Any = [{"type": "function", "function": {"name": name}} for name in names[:2]]
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}
    found = client.chat.completions.create(
        model="constrain", messages=MESSAGES, tools=tools, tool_choice=choice, max_tokens=100, seed=seed, temperature=2
    )
    calls = found.choices[0].message.tool_calls
    assert calls and {call.function.name for call in calls} <= {"one", "two"}  # type: ignore[union-attr]
    flat: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "three"}]}
    response = client.responses.create(
        model="constrain",
        input="Hi",
        tools=[{"type": "function", **function} for function in functions],
        tool_choice=flat,
        parallel_tool_calls=False,
        max_output_tokens=100,
    )
    assert [item.name for item in response.output if item.type == "function_call"] == ["three"]
    assert response.tool_choice.model_dump() == flat  # type: ignore[union-attr]


def test_allowed_tools_are_tools_of_the_request(client: OpenAI) -> None:
    tools: Any = [{"type": "function", "function": {"name": "one"}}]
    unknown: Any = [{"type": "function", "function": {"name": "two"}}]
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": unknown}}
    with pytest.raises(openai.BadRequestError, match="no function 'two'"):
        client.chat.completions.create(model="constrain", messages=MESSAGES, tools=tools, tool_choice=choice)


def test_a_top_p_of_zero_leaves_the_most_likely_token(client: OpenAI) -> None:
    asked: Any = {"model": "constrain", "prompt": "Köln", "max_tokens": 12, "extra_body": {"regex": "[a-z ]{30}"}}
    likely = client.completions.create(**asked, temperature=0)
    assert client.completions.create(**asked, temperature=2, top_p=0).choices[0].text == likely.choices[0].text


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_penalties_count_what_was_written(client: OpenAI, penalty: str) -> None:
    def written(prompt: str, regex: str, **fields: Any) -> str:
        asked: Any = {"model": "constrain", "prompt": prompt, "max_tokens": 60, "extra_body": {"regex": regex}}
        return client.completions.create(**asked, **fields).choices[0].text

    prompt = "yes\nno\nyes\n"
    for seed in range(8):
        plain = written(prompt, "yes|no!|maybe", seed=seed)
        assert written(prompt, "yes|no!|maybe", seed=seed, **{penalty: 2.0}).split("!")[0] == plain.split("!")[0]
    letters = [set(written("", "([a-z]\n){20}", temperature=0, **{penalty: value})) for value in (0.0, 2.0)]
    assert len(letters[0]) < len(letters[1])


def test_streams_of_tools_put_calls_together(client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(City, name="find_city")]
    with client.chat.completions.stream(
        model="constrain", messages=MESSAGES, tools=tools, tool_choice="required", max_tokens=150, seed=3
    ) as stream:
        events = list(stream)
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert done and all(isinstance(event.parsed_arguments, City) for event in done)


def test_none_calls_no_tool(client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(City)]
    found = client.chat.completions.create(
        model="constrain", messages=MESSAGES, tools=tools, tool_choice="none", max_tokens=5
    )
    assert found.choices[0].message.tool_calls is None


def test_responses_have_the_form_of_the_text(client: OpenAI) -> None:
    found = client.responses.parse(model="constrain", input="Köln, 99 people", text_format=City, max_output_tokens=200)
    assert isinstance(found.output_parsed, City)
    assert found.status == "completed"


def test_responses_are_streamed(client: OpenAI) -> None:
    with client.responses.stream(model="constrain", input="Köln", text_format=City, max_output_tokens=200) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert isinstance(stream.get_final_response().output_parsed, City)


def test_responses_call_tools(client: OpenAI) -> None:
    tool: Any = {"type": "function", "name": "find", "parameters": City.model_json_schema(), "strict": True}
    found = client.responses.create(
        model="constrain", input="Köln", tools=[tool], tool_choice="required", max_output_tokens=150
    )
    calls = [item for item in found.output if item.type == "function_call"]
    assert calls and all(City.model_validate_json(call.arguments) for call in calls)


def test_log_probabilities_and_several_outputs(client: OpenAI) -> None:
    found = client.chat.completions.create(
        model="constrain",
        messages=MESSAGES,
        n=3,
        logprobs=True,
        top_logprobs=2,
        max_tokens=4,
        extra_body={"regex": "[a-z]+"},
    )
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    for choice in found.choices:
        assert choice.logprobs and choice.logprobs.content and len(choice.logprobs.content[0].top_logprobs) == 2
    assert found.usage and found.usage.completion_tokens == sum(
        len(choice.logprobs.content) for choice in found.choices if choice.logprobs and choice.logprobs.content
    )


def test_completions_continue_prompts(client: OpenAI) -> None:
    found = client.completions.create(
        model="constrain", prompt=["a", "b"], extra_body={"guided_choice": ["red"]}, echo=True
    )
    assert [choice.text for choice in found.choices] == ["ared", "bred"]
    pieces = client.completions.create(model="constrain", prompt="a", extra_body={"regex": "[a-z]{9}"}, stream=True)
    assert len("".join(piece.choices[0].text for piece in pieces)) == 9


def test_errors_are_those_of_the_client(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="does not know the field") as caught:
        client.chat.completions.create(model="constrain", messages=MESSAGES, extra_body={"guided_jsn": {}})
    assert caught.value.param == "/guided_jsn"
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="gpt", messages=MESSAGES)
    with pytest.raises(openai.AuthenticationError):
        OpenAI(base_url=client.base_url, api_key="wrong").models.list()
    assert [model.id for model in client.models.list()] == ["constrain", "seeing"]


def test_values_are_reported_as_soon_as_they_are_complete(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="constrain",
        messages=MESSAGES,
        response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": City.model_json_schema()}},
        stream=True,
        extra_body={"stream_options": {"include_values": True, "include_usage": True}},
        max_tokens=100,
    )
    values, text = {}, ""
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            values |= {each["pointer"]: each["value"] for each in getattr(choice, "values", None) or ()}
    whole = json.loads(text)
    assert values == {"": whole, "/name": whole["name"], "/people": whole["people"]}

"""Other clients against a running server; each is skipped if it is not installed."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

TEXT = "Ada Lovelace is 36 years old."


class Person(BaseModel):
    name: str
    age: int


ADA = Person(name="Ada Lovelace", age=36)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA", "RESPONSES_TOOLS"])
def test_instructor(url: str, mode: str) -> None:
    instructor = pytest.importorskip("instructor")
    openai = pytest.importorskip("openai")
    client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="secret"), mode=instructor.Mode[mode])
    found = client.chat.completions.create(
        model="constrain",
        messages=[{"role": "user", "content": TEXT}],
        response_model=Person,
        temperature=0,
        max_tokens=200,
    )
    assert isinstance(found, Person)


@pytest.mark.parametrize("api", ["OpenAIChatModel", "OpenAIResponsesModel"])
@pytest.mark.parametrize("output", ["NativeOutput", "ToolOutput"])
def test_pydantic_ai(url: str, api: str, output: str) -> None:
    ai = pytest.importorskip("pydantic_ai")
    models, providers = (pytest.importorskip(f"pydantic_ai.{name}.openai") for name in ("models", "providers"))
    provider = providers.OpenAIProvider(base_url=f"{url}/v1", api_key="secret")
    model = getattr(models, api)("constrain", provider=provider)
    agent = ai.Agent(
        model, output_type=getattr(ai, output)(Person), model_settings={"temperature": 0, "max_tokens": 200}
    )
    found = asyncio.run(agent.run(TEXT)).output
    assert isinstance(found, Person)
    assert output == "ToolOutput" or found == ADA


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain(url: str, method: str, responses: bool) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(
        model="constrain",
        base_url=f"{url}/v1",
        api_key="secret",
        temperature=0,
        max_tokens=200,
        use_responses_api=responses,
    )
    found = model.with_structured_output(Person, method=method).invoke(TEXT)
    assert isinstance(found, Person)
    assert method == "function_calling" or found == ADA

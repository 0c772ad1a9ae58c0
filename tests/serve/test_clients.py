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


def test_instructor(url: str) -> None:
    instructor = pytest.importorskip("instructor")
    openai = pytest.importorskip("openai")
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{url}/v1", api_key="secret"), mode=instructor.Mode.JSON_SCHEMA
    )
    found = client.chat.completions.create(
        model="constrain", messages=[{"role": "user", "content": TEXT}], response_model=Person, temperature=0
    )
    assert isinstance(found, Person)


def test_pydantic_ai(url: str) -> None:
    ai = pytest.importorskip("pydantic_ai")
    models, providers = (pytest.importorskip(f"pydantic_ai.{name}.openai") for name in ("models", "providers"))
    provider = providers.OpenAIProvider(base_url=f"{url}/v1", api_key="secret")
    model = models.OpenAIChatModel("constrain", provider=provider)
    agent = ai.Agent(model, output_type=ai.NativeOutput(Person), model_settings={"temperature": 0})
    assert asyncio.run(agent.run(TEXT)).output == ADA


def test_langchain(url: str) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(model="constrain", base_url=f"{url}/v1", api_key="secret", temperature=0)
    assert model.with_structured_output(Person, method="json_schema").invoke(TEXT) == ADA

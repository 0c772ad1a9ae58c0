"""Fields that several kinds of requests have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: A constraint as another server would take it, as JSON or as text of JSON.
SchemaOrText = dict[str, Any] | bool | str

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class Strict(BaseModel):
    """A part of a request. A field that is not listed is refused, since it may have been meant as a constraint.

    A field that is null counts as not given: clients of OpenAI's API send null for ``None``.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class StructuredOutputs(Strict):
    """``structured_outputs`` of vLLM; only one of the constraints may be given."""

    json_: SchemaOrText | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: dict[str, Any] | str | None = None


class ConstraintFields(Strict):
    """The fields by which servers take constraints; only one may be given, see :mod:`constrain.serve.constraints`.

    OpenAI, Fireworks and others have ``response_format``; vLLM ``structured_outputs``, and ``guided_*`` in earlier
    versions; SGLang ``regex``, ``ebnf``, ``json_schema`` and ``structural_tag``; llama.cpp ``grammar`` and
    ``json_schema``; TabbyAPI ``json_schema``, ``regex_pattern`` and ``grammar_string``.
    """

    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: SchemaOrText | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: dict[str, Any] | str | None = None
    grammar: str | None = None
    regex_pattern: str | None = None
    grammar_string: str | None = None


class SamplingFields(Strict):
    """Sampling parameters, stop conditions and limits of one output."""

    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: int | None = None
    stop: str | list[Annotated[str, Field(min_length=1)]] | None = None
    stop_token_ids: list[int] | None = None
    priority: int = 0


class StreamOptions(Strict):
    """Options of a stream.

    Attributes:
        include_usage: end with a chunk that has the number of tokens.
        include_values: report the objects, arrays and other values of a JSON answer as soon as each is complete.
        include_obfuscation: accepted, without effect.
    """

    include_usage: bool = False
    include_values: bool = False
    include_obfuscation: bool | None = None


class AccountFields(Strict):
    """Fields that have no effect on an output: those by which OpenAI tells users, plans and caches apart."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None


class Function(Strict):
    """A function that the model may call, with the JSON Schema of its arguments."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

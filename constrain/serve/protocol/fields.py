"""Fields that several kinds of requests have."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

T = TypeVar("T")

#: Begins the types of errors that are about a field of the object at their place.
AT = "at_"


def refuse(field: str, reason: str) -> NoReturn:
    """Raise an error of validation that is about a field of the model that is validated."""
    raise PydanticCustomError(f"{AT}{field}", "{reason}", {"reason": reason})


def tag(kind: str) -> str:
    """Return the tag of one of the forms that :func:`by` chooses from: no name of a field, as pointers have these."""
    return f"<{kind}>"


def by(field: str, *kinds: str, default: str | None = None) -> Discriminator:
    """Return what chooses the form of an object, one of those with a tag, by a field."""

    def chosen(value: Any) -> str:
        kind = value.get(field, default) if isinstance(value, dict) else getattr(value, field, None)
        return tag(str(kind))

    return Discriminator(
        chosen, custom_error_type=f"{AT}{field}", custom_error_message=f"must be one of {', '.join(kinds)}"
    )


def _finite(value: T) -> T:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise PydanticCustomError("not_finite", "NaN and infinite numbers are not JSON") from error
    return value


#: JSON whose numbers are finite, so that it can be part of the response.
JSONValue = Annotated[Any, AfterValidator(_finite)]
JSONObject = Annotated[dict[str, Any], AfterValidator(_finite)]

#: A constraint as another server would take it, as JSON or as text of JSON.
SchemaOrText = JSONObject | bool | str

_MetadataKey = Annotated[str, Field(max_length=64)]
_MetadataValue = Annotated[str, Field(max_length=512)]

#: How long answers are to be: a hint, which has no effect.
Verbosity = Literal["low", "medium", "high"]

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class Strict(BaseModel):
    """A part of a request. A field that is not listed is refused, since it may have been meant as a constraint.

    A field that is null counts as not given: clients of OpenAI's API send null for ``None``. Otherwise values have to
    be of the type of their field: no text is taken for a number.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class StructuredOutputs(Strict):
    """``structured_outputs`` of vLLM; only one of the constraints may be given.

    Attributes:
        disable_any_whitespace: write JSON without white space.
    """

    json_: SchemaOrText | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: JSONObject | str | None = None
    disable_any_whitespace: bool | None = None


class ConstraintFields(Strict):
    """The fields by which servers take constraints; only one may be given, see :mod:`constrain.serve.constraints`.

    OpenAI, Fireworks and others have ``response_format``; vLLM ``structured_outputs``, and ``guided_*`` in earlier
    versions; SGLang ``regex``, ``ebnf``, ``json_schema`` and ``structural_tag``; llama.cpp ``grammar`` and
    ``json_schema``; TabbyAPI ``json_schema``, ``regex_pattern`` and ``grammar_string``.
    """

    response_format: JSONObject | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: SchemaOrText | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: JSONObject | str | None = None
    grammar: str | None = None
    regex_pattern: str | None = None
    grammar_string: str | None = None


class SamplingFields(Strict):
    """Sampling parameters, stop conditions and limits of one output."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    logit_bias: dict[Annotated[int, Field(strict=False)], Annotated[float, Field(ge=-100, le=100)]] | None = None
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


class StreamFields(Strict):
    """Whether and how the response is a stream."""

    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _options_are_of_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            refuse("stream_options", "needs stream")
        return self


class AccountFields(Strict):
    """Fields that have no effect on an output: those by which OpenAI tells users, plans and caches apart."""

    user: str | None = None
    metadata: Annotated[dict[_MetadataKey, _MetadataValue], Field(max_length=16)] | None = None
    store: bool | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    safety_identifier: str | None = None


#: Name of a function or of a custom tool.
ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class Function(Strict):
    """A function that the model may call, with the JSON Schema of its arguments."""

    name: ToolName
    description: str | None = None
    parameters: JSONObject | None = None
    strict: bool | None = None

"""Parameters in the addresses of requests for stored responses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import QueryParams
from typing_extensions import Self

from constrain.serve.errors import APIError
from constrain.serve.protocol.responses import Includable


class Query(BaseModel):
    """Parameters that all of them have. A parameter that is not listed is refused."""

    model_config = ConfigDict(extra="forbid")

    include: list[Includable] = Field([])

    @classmethod
    def of(cls, query: QueryParams) -> Self:
        """Read them from an address.

        Raises:
            APIError: a parameter is unknown or malformed.
        """
        single: dict[str, Any] = {name: value for name, value in query.items() if name not in ("include", "include[]")}
        included = [value for name, value in query.multi_items() if name in ("include", "include[]")]
        try:
            return cls(**single, include=included)  # type: ignore[arg-type]  # which is checked here
        except ValidationError as error:
            [first, *_] = error.errors(include_context=False)
            name = str(first["loc"][0])
            code = "unknown_parameter" if first["type"] == "extra_forbidden" else "invalid_value"
            raise APIError(f"{name}: {first['msg']}", param=name, code=code) from error


class Retrieval(Query):
    """How a response is asked for: as it is stored, with all that was included when it was made."""

    stream: Literal["false"] = "false"

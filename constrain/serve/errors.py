"""Errors in the form of the OpenAI API."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect

from constrain.errors import (
    ArgumentError,
    BudgetError,
    ConstrainError,
    DocumentError,
    ExtractionError,
    FilterError,
    GenerationError,
    GenerationTimeout,
    GrammarError,
    RegexError,
    ResourceLimit,
    SchemaError,
    StructuralTagError,
    TokenizerError,
)
from constrain.serve.protocol.fields import AT

_log = logging.getLogger(__name__)

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class APIError(ConstrainError):
    """An error that a client is told.

    Attributes:
        message: what is wrong, and what to do.
        status: HTTP status.
        param: JSON pointer to the field of the request at fault, if there is one.
        code: short name of the error, if it has one.
        headers: headers of the response.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message, self.status, self.param, self.code = message, status, param, code
        self.headers = dict(headers or {})
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        """The body of the response."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def pointer(*steps: str | int) -> str:
    """Return the JSON pointer (RFC 6901) with these steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def invalid(problems: Sequence[Mapping[str, Any]], body: Any) -> APIError:
    """Return the error response for a request that pydantic refused; it names the first problem only.

    Where a field may have several forms, pydantic has a problem for each: the one that lies deepest is of the form that
    was meant.

    Args:
        problems: of ``ValidationError.errors()``.
        body: what was validated, as parsed JSON.
    """
    found = [(_pointer_within(body, problem), problem) for problem in problems]
    found.sort(key=lambda each: each[1]["type"] == "missing")
    first = found[0][0]
    meant = [each for each in found if each[0] == first or each[0].startswith(f"{first}/")]
    at = max((each[0] for each in meant), key=lambda each: each.count("/"))
    causes = [problem for place, problem in meant if place == at]
    if any(problem["type"] == "extra_forbidden" for problem in causes):
        return APIError(f"{at}: this server does not know the field, and ignores none", param=at, code="unknown_field")
    told = "; or: ".join(dict.fromkeys(problem["msg"] for problem in causes))
    return APIError(f"{at or 'the body'}: {told}", param=at or None, code="invalid_value")


def _pointer_within(body: Any, problem: Mapping[str, Any]) -> str:
    """Return the pointer to a problem, without the steps by which pydantic names the forms of a field."""
    steps, kind = [*problem["loc"]], problem["type"]
    missing = [steps.pop()] if kind == "missing" else []
    taken: list[str | int] = []
    for step in steps:
        if (isinstance(body, Mapping) and step in body) or (isinstance(body, list) and isinstance(step, int)):
            taken.append(step)
            body = body[step]
    if kind.startswith(AT) and isinstance(body, Mapping):
        missing = [kind.removeprefix(AT)]
    return pointer(*taken, *missing)


def in_grammar(error: GrammarError, at: str) -> APIError:
    """Return the error for a constraint that does not compile; ``at`` is the pointer to its field."""
    if isinstance(error, SchemaError) and not error.document:
        keyword = pointer(error.keyword) if error.keyword else ""
        place = f"{at}{error.pointer}{keyword}"
        return APIError(f"{place}: {error.reason}", param=place, code="schema_not_enforceable")
    if isinstance(error, ResourceLimit):
        place = at + (error.pointer or "")
        return APIError(f"{place}: {error}", param=place, code="grammar_too_large")
    if isinstance(error, StructuralTagError):
        place = at + error.pointer
        return APIError(f"{place}: {error.reason}", param=place, code="invalid_value")
    code = "invalid_regex" if isinstance(error, RegexError) else "invalid_grammar"
    return APIError(f"{at}: {error}", param=at, code=code)


@dataclass(frozen=True)
class Fields:
    """JSON pointers to fields of a request that errors of the model are about.

    Attributes:
        prompt: what the model is given.
        limit: the maximum number of tokens.
        count: the number of outputs.
    """

    prompt: str = "/messages"
    limit: str = "/max_tokens"
    count: str = "/n"


def as_api_error(error: Exception, fields: Fields = Fields()) -> APIError:
    """Return the error that a client is sent for an exception; ``fields``: of the request."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, BudgetError):
        needed = f"{error.budget} tokens are too few for what the constraint requires, {error.needed} do"
        return APIError(f"{fields.limit}: {needed}", param=fields.limit, code="max_tokens_too_small")
    if isinstance(error, FilterError) and isinstance(error.__cause__, ResourceLimit):
        return APIError(str(error.__cause__), code="grammar_too_large")
    if isinstance(error, ClientDisconnect):
        return APIError("the client has left", status=499, code="client_gone")
    if isinstance(error, GenerationTimeout):
        return APIError(str(error), status=504, code="timeout")
    if isinstance(error, TokenizerError):
        return APIError(f"{fields.prompt}: {error}", param=fields.prompt, code="invalid_messages")
    if isinstance(error, GenerationError):
        return APIError(f"{fields.prompt}: {error}", param=fields.prompt, code="context_length_exceeded")
    if isinstance(error, ExtractionError):
        # Before anything was written, the document is what cannot be read.
        at = fields.prompt if error.finish_reason is None else None
        told = f"{at}: {error}" if at else str(error)
        return APIError(told, status=422, param=at, code="extraction_failed")
    if isinstance(error, (ArgumentError, DocumentError, GrammarError)):
        return APIError(str(error), code="invalid_value")
    _log.error("a request failed", exc_info=error)
    told = str(error) if isinstance(error, ConstrainError) else f"internal error: {type(error).__name__}"
    return APIError(told, status=500, code="internal_error")

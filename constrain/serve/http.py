"""Requests and responses over HTTP: authorisation, bodies, errors, streams, and clients that leave."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from anyio import CancelScope, current_time
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from constrain.serve.deadline import Deadline, on_thread
from constrain.serve.errors import APIError, as_api_error, invalid
from constrain.serve.jobs import Server

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

#: Most bytes of a body that are checked between other events of the server: no more than a few milliseconds' work.
_MAX_AT_ONCE = 1 << 16

M = TypeVar("M", bound=BaseModel)

Handler = Callable[[Request], Awaitable[Response]]


def guarded(server: Server, path: str, handler: Handler, *, takes_query: bool = False) -> Handler:
    """Return a handler of a path that asks for the key, answers errors in OpenAI's form, and counts requests.

    Args:
        server: the server.
        path: the path, as metrics name it.
        handler: what answers.
        takes_query: whether it reads the parameters in the address itself; else there are none.
    """

    async def handle(request: Request) -> Response:
        try:
            check_key(request, server.settings.api_keys)
            if not takes_query:
                check_query(request)
            response = await handler(request)
        except Exception as error:
            response = error_response(error)
        server.metrics.requests.labels(path, response.status_code).inc()
        return response

    return handle


def by_method(handlers: Mapping[str, Handler]) -> Handler:
    """Return a handler that leaves requests to one of several, by their method; ``HEAD`` to that of ``GET``."""

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


def error_response(error: Exception) -> Response:
    """Return the response for an exception."""
    told = as_api_error(error)
    return JSONResponse(told.body(), told.status, told.headers)


def check_key(request: Request, keys: tuple[str, ...]) -> None:
    """Raise :class:`APIError` unless the request has one of the keys, or none is needed."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_known = [hmac.compare_digest(given.encode(), key.encode()) for key in keys]
    if keys and not (scheme.lower() == "bearer" and any(is_known)):
        message = "this server needs a key: Authorization: Bearer KEY"
        raise APIError(message, status=401, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def check_query(request: Request) -> None:
    """Raise :class:`APIError` if the request has parameters in its address: there are none that this server knows."""
    for name in request.query_params:
        raise APIError(f"{name}: this server does not know the parameter", param=name, code="unknown_parameter")


async def read_body(request: Request, kind: type[M], limit: int) -> M:
    """Read and check the body of a request.

    Raises:
        APIError: it is too large, no JSON, or not of the form of ``kind``.
        ClientDisconnect: the client has left.
    """
    _check_media_type(request)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise APIError(f"the body has more than {limit} bytes", status=413, code="body_too_large")
    if len(body) <= _MAX_AT_ONCE:
        return _parsed(kind, bytes(body))
    return await on_thread(partial(_parsed, kind, bytes(body)))


def _parsed(kind: type[M], body: bytes) -> M:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refused(error, body) from error


def _check_media_type(request: Request) -> None:
    """Raise :class:`APIError` for a body that its header says is no JSON.

    Pages of other sites can have a browser send such bodies to a server, but no JSON.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        message = f"the body has to be JSON, with Content-Type: application/json, not {media_type!r}"
        raise APIError(message, status=415, code="unsupported_media_type")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise APIError(
            f"the body is encoded as {encoding!r}: send it as it is", status=415, code="unsupported_encoding"
        )


def _refused(error: ValidationError, body: bytes) -> APIError:
    problems = error.errors(include_context=False)
    is_json = problems[0]["type"] != "json_invalid"
    return invalid(problems, json.loads(body) if is_json else None)


@contextmanager
def interrupted(receive: Receive, deadline: Deadline | None = None) -> Iterator[None]:
    """Cancel what is awaited within, if the client leaves or the time is over.

    Args:
        receive: of the request.
        deadline: the time that is left; ``None``: any.

    Raises:
        ClientDisconnect: the client has left.
        GenerationTimeout: the time is over.
    """
    left = deadline.left if deadline is not None else None
    with CancelScope(deadline=math.inf if left is None else current_time() + left) as scope:
        gone = asyncio.ensure_future(_disconnected(receive))
        gone.add_done_callback(lambda _: None if gone.cancelled() else scope.cancel())
        try:
            yield
        finally:
            gone.cancel()
    if scope.cancelled_caught:
        raise deadline.error() if deadline is not None and not gone.done() else ClientDisconnect


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Server-sent events. An error on the way is the last of them.

    However the response ends, also if the client leaves, the events are closed and ``close`` is called once.
    """

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        self._close = close
        super().__init__(_until_error(events), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(ClientDisconnect), interrupted(receive):
                await self.stream_response(send)
        finally:
            self._close()


def event(data: Any, name: str = "") -> bytes:
    """Return a server-sent event with JSON as its data."""
    text = _encode(data)
    return f"event: {name}\ndata: {text}\n\n".encode() if name else f"data: {text}\n\n".encode()


async def _until_error(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with aclosing(events) as source:  # type: ignore[type-var]  # generators are what is given
        try:
            async for each in source:
                yield each
        except Exception as error:
            yield event(as_api_error(error).body())

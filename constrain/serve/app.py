"""The server as an ASGI application."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from constrain.serve.admission import Admission
from constrain.serve.deadline import Deadline, on_thread
from constrain.serve.endpoints.chat import ChatAnswer, chat_work, limit_field
from constrain.serve.endpoints.completions import CompletionAnswer, completion_works
from constrain.serve.endpoints.extract import extract
from constrain.serve.endpoints.input_items import Paging, shown_item
from constrain.serve.endpoints.queries import Retrieval
from constrain.serve.endpoints.response_events import FIELDS, ResponseAnswer
from constrain.serve.endpoints.responses import conversation_of, items_of, messages_of, responses_work
from constrain.serve.errors import APIError, Fields, as_api_error, pointer
from constrain.serve.generation import Work
from constrain.serve.http import (
    EventStream,
    Handler,
    by_method,
    check_query,
    error_response,
    guarded,
    interrupted,
    read_body,
)
from constrain.serve.images import ImageReader
from constrain.serve.jobs import Job, Server
from constrain.serve.metrics import Metrics
from constrain.serve.models import Models, ServedModel
from constrain.serve.protocol.chat import ChatRequest, Message
from constrain.serve.protocol.completions import CompletionRequest
from constrain.serve.protocol.extract import ExtractRequest
from constrain.serve.protocol.responses import ITEMS, ResponsesRequest
from constrain.serve.settings import ServerSettings
from constrain.serve.stored import StoredResponses

M = TypeVar("M", bound=BaseModel)

#: Seconds after which a thread of the interpreter lets another go on.
_SWITCH_INTERVAL = 0.0005
#: Paths whose addresses have parameters.
_WITH_QUERY = {"/v1/responses/{id}", "/v1/responses/{id}/input_items"}


def create_app(models: Models, settings: ServerSettings | None = None) -> Starlette:
    """Return the server of some models as an ASGI application.

    Args:
        models: the models, by name.
        settings: limits and keys.
    """
    settings = settings or ServerSettings()
    server = Server(settings, Admission(settings.max_requests), Metrics(models.llms))
    endpoints = _Endpoints(models, server)
    handlers: dict[str, dict[str, Handler]] = {
        "/v1/chat/completions": {"POST": endpoints.chat},
        "/v1/completions": {"POST": endpoints.completions},
        "/v1/responses": {"POST": endpoints.responses},
        "/v1/responses/{id}": {"GET": endpoints.response, "DELETE": endpoints.delete_response},
        "/v1/responses/{id}/input_items": {"GET": endpoints.input_items},
        "/v1/extract": {"POST": endpoints.extract},
        "/v1/models": {"GET": endpoints.models},
        "/v1/models/{name:path}": {"GET": endpoints.model},
    }
    app = Starlette(
        routes=[
            *(_route(server, path, each) for path, each in handlers.items()),
            Route("/health", endpoints.health, methods=["GET"]),
            Route("/metrics", endpoints.metrics, methods=["GET"]),
        ],
        middleware=[_cors(settings.allowed_origins)] if settings.allowed_origins else [],
        exception_handlers={404: _not_found, 405: _not_allowed},
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.server = server
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Let threads take turns more often than every 5 ms: reading requests would hold up the steps of the model."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _cors(origins: Sequence[str]) -> Middleware:
    """Return what has browsers let scripts of pages of some origins read responses."""
    methods, exposed = ("GET", "POST", "DELETE"), ("Retry-After", "WWW-Authenticate")
    return Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=["*"], expose_headers=exposed
    )


def _route(server: Server, path: str, handlers: Mapping[str, Handler]) -> Route:
    handler = guarded(server, path, by_method(handlers), takes_query=path in _WITH_QUERY)
    return Route(path, handler, methods=[*handlers])


async def _not_found(request: Request, error: Exception) -> Response:
    return error_response(APIError(f"there is no {request.url.path}", status=404))


async def _not_allowed(request: Request, error: Exception) -> Response:
    headers = getattr(error, "headers", None) or {}
    message = f"{request.url.path} takes {headers.get('Allow')}, not {request.method}"
    return error_response(APIError(message, status=405, headers=headers))


class _Endpoints:
    """The handlers of the routes."""

    def __init__(self, models: Models, server: Server) -> None:
        self._models, self._server = models, server
        self._stored = StoredResponses(server.settings.max_stored_characters)

    async def chat(self, request: Request) -> Response:
        asked, model = await self._read(request, ChatRequest)
        return await self._answer(
            request,
            lambda: [chat_work(asked, model, self._server.settings)],
            lambda job: ChatAnswer(asked, model, job),
            asked.n,
            bool(asked.stream),
            Fields("/messages", limit_field(asked)),
        )

    async def completions(self, request: Request) -> Response:
        asked, model = await self._read(request, CompletionRequest)
        return await self._answer(
            request,
            lambda: completion_works(asked, model),
            lambda job: CompletionAnswer(asked, model, job),
            asked.num_generated,
            bool(asked.stream),
            Fields("/prompt", "/max_tokens", pointer(asked.count_field)),
        )

    async def responses(self, request: Request) -> Response:
        asked, model = await self._read(request, ResponsesRequest)
        continued, conversation, shown = asked.previous_response_id, list[Message](), list[Mapping[str, Any]]()
        images = ImageReader(model, self._server.settings)

        def works() -> list[Work]:
            earlier: Sequence[Message] = ()
            if continued is not None:
                before = self._stored.find(continued, "/previous_response_id", 400)
                earlier = before.messages
                shown.extend([*before.items, *before.resource["output"]])
            items = items_of(asked, self._stored)
            shown.extend(map(shown_item, items))
            conversation.extend(conversation_of(items, earlier, images))
            return [responses_work(asked, model, conversation)]

        def keep(response: dict[str, Any]) -> None:
            items = messages_of(ITEMS.validate_python(response["output"]), "/output", images)
            self._stored.put(response, [*conversation, *items], shown)

        stores = asked.store is not False and self._stored.max_characters > 0
        return await self._answer(
            request,
            works,
            lambda job: ResponseAnswer(asked, model, job, keep if stores else None),
            1,
            bool(asked.stream),
            FIELDS,
        )

    async def response(self, request: Request) -> Response:
        Retrieval.of(request.query_params)
        return JSONResponse(self._stored.find(request.path_params["id"]).resource)

    async def input_items(self, request: Request) -> Response:
        paging = Paging.of(request.query_params)
        return JSONResponse(paging.page(self._stored.find(request.path_params["id"]).items))

    async def delete_response(self, request: Request) -> Response:
        check_query(request)
        id = request.path_params["id"]
        self._stored.delete(id)
        return JSONResponse({"id": id, "object": "response", "deleted": True})

    async def extract(self, request: Request) -> Response:
        asked, model = await self._read(request, ExtractRequest)
        return JSONResponse(await extract(asked, model, self._server, request.receive))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_card(model) for model in self._models.by_name.values()]})

    async def model(self, request: Request) -> Response:
        return JSONResponse(_card(self._models.find(request.path_params["name"])))

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": list(self._models.by_name)})

    async def metrics(self, request: Request) -> Response:
        text = await run_in_threadpool(self._server.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _read(self, request: Request, kind: type[M]) -> tuple[M, ServedModel]:
        asked = await read_body(request, kind, self._server.settings.max_body_bytes)
        return asked, self._models.find(asked.model)  # type: ignore[attr-defined]  # all kinds have a model

    async def _answer(
        self,
        request: Request,
        make_works: Callable[[], Sequence[Work]],
        make_answer: Callable[[Job], Any],
        n: int,
        streams: bool,
        fields: Fields,
    ) -> Response:
        """Generate the outputs of a request, and answer with all of them, or with a stream.

        Args:
            request: the request.
            make_works: returns what is to be generated.
            make_answer: returns what writes the response.
            n: outputs of each work.
            streams: whether the response is a stream.
            fields: pointers to fields of the request.
        """
        deadline = Deadline(self._server.settings.timeout)
        job: Job | None = None
        try:
            with interrupted(request.receive, deadline):
                works = await on_thread(make_works)
                job = Job(self._server, works, n, deadline, fields.count)
                await job.submit()
            answer = make_answer(job)
            if streams:
                response, job = EventStream(answer.chunks(), job.close), None
                return response
            with interrupted(request.receive):
                return JSONResponse(await answer.whole())
        except Exception as error:
            raise as_api_error(error, fields) from error
        finally:
            if job is not None:
                job.close()


def _card(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "constrain",
        "parent": model.parent,
        "max_model_len": model.llm.runtime.max_seq_len,
    }

"""``POST /v1/responses``: the response, and the events by which it is streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from time import time
from typing import Any
from uuid import uuid4

from constrain.runtime.outputs import SampledToken
from constrain.serve.endpoints.common import chat_logprobs
from constrain.serve.errors import Fields, as_api_error
from constrain.serve.generation import Batch, Output
from constrain.serve.http import event
from constrain.serve.jobs import Job
from constrain.serve.models import ServedModel
from constrain.serve.protocol.responses import ResponsesRequest
from constrain.serve.tools.reader import CallArguments, CallStarted, Part

#: An event, and its data without the number in the stream.
_Event = dict[str, Any]

#: Pointers to the fields of requests.
FIELDS = Fields("/input", "/max_output_tokens")

#: What a status says of a response, beside its name.
_DETAILS = {"incomplete": {"reason": "max_output_tokens"}}

#: Fields of tools that a request may leave out, by their types.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "function": {"strict": True, "description": None},
    "custom": {"description": None, "format": {"type": "text"}},
}


class ResponseAnswer:
    """Writes the response to a request: all at once, or as a stream of events."""

    def __init__(
        self,
        request: ResponsesRequest,
        model: ServedModel,
        job: Job,
        keep: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        """
        Args:
            request: the request.
            model: the model.
            job: its output.
            keep: called with the whole response, to store it; ``None``: it is not stored.
        """
        self._model, self._job, self._keep = model, job, keep
        self._has_logprobs = request.has_logprobs
        #: Of tokens that the next text of a message shows.
        self._logprobs: list[dict[str, Any]] = []
        self._resource = _resource(request) | {"store": keep is not None}
        self._items: list[_Item] = []

    async def whole(self) -> dict[str, Any]:
        """Return the response, when the output has ended."""
        [batches] = await self._job.collect()
        for batch in batches:
            list(self._added(batch))
        list(self._end_item(self._status))
        return self._ended(self._job.outputs[0])

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the response as events."""
        number = 0
        async for each in self._events():
            yield event({"sequence_number": number, **each}, each["type"])
            number += 1

    async def _events(self) -> AsyncIterator[_Event]:
        yield {"type": "response.created", "response": self._current()}
        yield {"type": "response.in_progress", "response": self._current()}
        try:
            async for _, batch in self._job.stream():
                for each in self._added(batch) if batch else ():
                    yield each
            for each in self._end_item(self._status):
                yield each
        except Exception as error:
            told = as_api_error(error, FIELDS)
            problem = {"code": told.code or "server_error", "message": told.message}
            yield {"type": "response.failed", "response": {**self._current(), "status": "failed", "error": problem}}
            return
        ended = self._ended(self._job.outputs[0])
        yield {"type": f"response.{ended['status']}", "response": ended}

    def _current(self) -> dict[str, Any]:
        return {**self._resource, "output": [item.data for item in self._items]}

    def _ended(self, output: Output) -> dict[str, Any]:
        status = self._status
        completed_at = int(time()) if status == "completed" else None
        details = _DETAILS.get(status)
        ended = {"status": status, "incomplete_details": details, "completed_at": completed_at}
        response = {**self._current(), **ended, "usage": _usage(output)}
        if self._keep is not None:
            self._keep(response)
        return response

    @property
    def _status(self) -> str:
        """The status of the response, and of its last item, when the output has ended."""
        return "incomplete" if self._job.outputs[0].finish_reason == "length" else "completed"

    def _added(self, batch: Batch) -> Iterator[_Event]:
        """Add a batch; yield the events."""
        if self._has_logprobs:
            self._logprobs += (_logprob(self._model, token) for token in batch.tokens)
        for part in batch.parts:
            yield from self._add(part)

    def _add(self, part: Part) -> Iterator[_Event]:
        """Add a part to the last item, or begin a new item; yield the events."""
        kind = part.kind if not isinstance(part, (CallStarted, CallArguments)) else "call"
        is_new = isinstance(part, CallStarted) or not self._items or self._items[-1].kind != kind
        if is_new:
            yield from self._end_item()
            item = _CallItem(part) if isinstance(part, CallStarted) else _TextItem(kind)
            self._items.append(item)
            yield from self._placed(item.begin())
        if not isinstance(part, CallStarted):
            logprobs, self._logprobs = (self._logprobs, []) if kind == "content" else ([], self._logprobs)
            yield from self._placed(self._items[-1].add(part.text, logprobs))

    def _end_item(self, status: str = "completed") -> Iterator[_Event]:
        if self._items:
            yield from self._placed(self._items[-1].end(status))

    def _placed(self, events: Iterator[_Event]) -> Iterator[_Event]:
        for each in events:
            yield {**each, "output_index": len(self._items) - 1}


class _Item:
    """An item of the output.

    Attributes:
        kind: ``"content"``, ``"reasoning"`` or ``"call"``.
        data: the item as clients see it.
    """

    kind: str
    data: dict[str, Any]

    def begin(self) -> Iterator[_Event]:
        yield {"type": "response.output_item.added", "item": {**self.data}}

    def add(self, text: str, logprobs: Sequence[dict[str, Any]]) -> Iterator[_Event]:
        raise NotImplementedError

    def end(self, status: str) -> Iterator[_Event]:
        self.data["status"] = status
        yield {"type": "response.output_item.done", "item": {**self.data}}


class _TextItem(_Item):
    """A message, or thoughts."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._event = "response.output_text" if kind == "content" else "response.reasoning_text"
        if kind == "content":
            self._part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self.data = {"type": "message", "id": f"msg_{uuid4().hex}", "role": "assistant"}
        else:
            self._part = {"type": "reasoning_text", "text": ""}
            self.data = {"type": "reasoning", "id": f"rs_{uuid4().hex}", "summary": []}
        self.data |= {"status": "in_progress", "content": []}

    def begin(self) -> Iterator[_Event]:
        yield from super().begin()
        self.data["content"] = [self._part]
        yield {"type": "response.content_part.added", **self._place, "part": {**self._part}}

    def add(self, text: str, logprobs: Sequence[dict[str, Any]]) -> Iterator[_Event]:
        self._part["text"] += text
        if self.kind == "content":
            self._part["logprobs"] += logprobs
        yield {"type": f"{self._event}.delta", **self._place, "delta": text, **self._reported(logprobs)}

    def end(self, status: str) -> Iterator[_Event]:
        logprobs = self._reported(self._part.get("logprobs", ()))
        yield {"type": f"{self._event}.done", **self._place, "text": self._part["text"], **logprobs}
        yield {"type": "response.content_part.done", **self._place, "part": {**self._part}}
        yield from super().end(status)

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self.data["id"], "content_index": 0}

    def _reported(self, logprobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the log probabilities as events of texts have them: without bytes."""
        return {"logprobs": [_without_bytes(each) for each in logprobs]} if self.kind == "content" else {}


class _CallItem(_Item):
    """A call of a function, or of a custom tool."""

    kind = "call"

    def __init__(self, call: CallStarted) -> None:
        kind, prefix = ("custom_tool_call", "ctc") if call.is_custom else ("function_call", "fc")
        self._field = "input" if call.is_custom else "arguments"
        self._event = f"response.{kind}_{self._field}"
        self._named = {} if call.is_custom else {"name": call.name}
        self.data = {"type": kind, "id": f"{prefix}_{uuid4().hex}", "call_id": call.id, "name": call.name}
        self.data |= {self._field: "", "status": "in_progress"}

    def add(self, text: str, logprobs: Sequence[dict[str, Any]]) -> Iterator[_Event]:
        self.data[self._field] += text
        yield {"type": f"{self._event}.delta", "item_id": self.data["id"], "delta": text}

    def end(self, status: str) -> Iterator[_Event]:
        done = {"item_id": self.data["id"], **self._named, self._field: self.data[self._field]}
        yield {"type": f"{self._event}.done", **done}
        yield from super().end(status)


def _logprob(model: ServedModel, token: SampledToken) -> dict[str, Any]:
    """Return the log probability of a token, as messages of responses report it: special tokens have no bytes."""
    [entry] = chat_logprobs(model, [token])["content"]
    top = [{**each, "bytes": each["bytes"] or []} for each in entry["top_logprobs"]]
    return {**entry, "bytes": entry["bytes"] or [], "top_logprobs": top}


def _without_bytes(entry: dict[str, Any]) -> dict[str, Any]:
    top = [{"token": each["token"], "logprob": each["logprob"]} for each in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": top}


def _resource(request: ResponsesRequest) -> dict[str, Any]:
    """Return a response that has just begun."""
    tools = [{**_DEFAULTS[tool.type], **tool.model_dump(exclude_none=True)} for tool in request.tools or ()]
    choice = request.tool_choice or "auto"
    format = request.text.format if request.text and request.text.format else {"type": "text"}
    effort = request.reasoning.effort if request.reasoning else None
    verbosity = (request.text and request.text.verbosity) or "medium"
    return {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": int(time()),
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "error": None,
        "model": request.model,
        "instructions": request.instructions,
        "previous_response_id": request.previous_response_id,
        "output": [],
        "tools": tools,
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": None,
        "text": {"format": format, "verbosity": verbosity},
        "reasoning": {"effort": effort, "summary": None},
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "top_logprobs": request.top_logprobs or 0,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "truncation": "disabled",
        "background": False,
        "service_tier": "default",
        "metadata": request.metadata or {},
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": request.prompt_cache_key,
        "user": request.user,
        "usage": None,
    }


def _usage(output: Output) -> dict[str, Any]:
    completion = output.completion
    prompt, cached = (completion.prompt_tokens, completion.cached_tokens) if completion else (0, 0)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output.num_tokens,
        "output_tokens_details": {"reasoning_tokens": output.reasoning_tokens},
        "total_tokens": prompt + output.num_tokens,
    }

"""``POST /v1/extract``: a record from a document, as ``LLM.extract`` returns it."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive

from constrain.documents import Document
from constrain.errors import ArgumentError, GenerationTimeout, GrammarError
from constrain.extract import Extraction, Target
from constrain.extract.examples import checked_examples
from constrain.serve.deadline import Deadline, on_thread
from constrain.serve.errors import APIError, Fields, as_api_error, in_grammar
from constrain.serve.http import interrupted
from constrain.serve.images import ImageReader
from constrain.serve.jobs import Server
from constrain.serve.models import ServedModel
from constrain.serve.protocol.extract import ExtractRequest

_FIELDS = Fields("/document", "/max_tokens")


async def extract(request: ExtractRequest, model: ServedModel, server: Server, receive: Receive) -> dict[str, Any]:
    """Return the response; ``receive`` tells whether the client has left.

    Raises:
        APIError: the schema cannot be enforced, the document cannot be read or is too long, or the server has too much
            to do.
        ClientDisconnect: the client has left.
        GenerationTimeout: the time is over.
    """
    deadline, reason = Deadline(server.settings.timeout), "cancelled"
    server.admission.enter(1)
    try:
        with interrupted(receive, deadline):
            found = await _extraction(request, model, server)
        reason = found.finish_reason
    except GenerationTimeout:
        reason = "timeout"
        raise
    except GrammarError as error:
        raise in_grammar(error, "/schema") from error
    except Exception as error:
        raise as_api_error(error, _FIELDS) from error
    finally:
        server.metrics.finished.labels(reason).inc()
        server.metrics.seconds.observe(deadline.passed)
        server.admission.leave(1, deadline.passed)
    server.metrics.tokens.labels("prompt").inc(found.usage.prompt_tokens)
    server.metrics.tokens.labels("output").inc(found.usage.output_tokens)
    return {
        "object": "extraction",
        "model": request.model,
        "record": found.value,
        "finish_reason": found.finish_reason,
        "usage": {
            "prompt_tokens": found.usage.prompt_tokens,
            "completion_tokens": found.usage.output_tokens,
            "total_tokens": found.usage.prompt_tokens + found.usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": found.usage.cached_tokens},
        },
    }


async def _extraction(request: ExtractRequest, model: ServedModel, server: Server) -> Extraction[Any]:
    _check_lengths(request, model, server.settings.max_document_bytes)
    target, document = await on_thread(lambda: _target_and_document(request, model, server))
    return await model.llm.aextract(
        target,
        document,
        instructions=request.instructions,
        examples=[(each.document, each.record) for each in request.examples],
        thinking=request.thinking,
        max_new_tokens=request.max_tokens,
        temperature=request.temperature,
        seed=request.seed,
    )


def _check_lengths(request: ExtractRequest, model: ServedModel, most: int) -> None:
    """Refuse what takes too long to encode. Long documents are read in chunks, each with all that comes before them."""
    length = len(request.document.encode())
    if length > most:
        message = f"/document: it has {length} bytes, and this server reads {most} at the most; divide it"
        raise APIError(message, param="/document", code="document_too_long")
    before = [request.instructions, *(each.document for each in request.examples)]
    model.check_length(sum(len(text.encode()) for text in before))


def _target_and_document(
    request: ExtractRequest, model: ServedModel, server: Server
) -> tuple[Target[dict[str, Any]], Document]:
    """Read the request; errors as for :func:`extract`."""
    if request.thinking and model.llm.extractor.form.thinking is None:
        message = f"/thinking: the model {model.name!r} does not think"
        raise APIError(message, param="/thinking", code="invalid_value")
    target, document = Target.of(request.schema_), _document(request, ImageReader(model, server.settings))
    for number, each in enumerate(request.examples):
        try:
            checked_examples(target, [(each.document, each.record)])
        except ArgumentError as error:
            at, reason = f"/examples/{number}", str(error).removeprefix("examples[0]: ")
            raise APIError(f"{at}: {reason}", param=at, code="invalid_value") from error
    return target, document


def _document(request: ExtractRequest, images: ImageReader) -> Document:
    if request.image is None:
        return Document(request.document)
    if request.document:
        raise APIError("/image: there is a /document already; give one", param="/image", code="invalid_value")
    return Document("", image=images.read(request.image, "/image", "/image").content)

"""``POST /v1/extract``: a record from a document, as ``LLM.extract`` returns it."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool

from constrain.documents import Document
from constrain.errors import GrammarError
from constrain.extract import Target
from constrain.serve.errors import APIError, in_grammar
from constrain.serve.images import ImageReader
from constrain.serve.models import ServedModel
from constrain.serve.protocol.extract import ExtractRequest
from constrain.serve.settings import ServerSettings


async def extract(request: ExtractRequest, model: ServedModel, settings: ServerSettings) -> dict[str, Any]:
    """Return the response.

    Raises:
        APIError: the schema cannot be enforced, or the image cannot be read.
        ConstrainError: as for :meth:`constrain.LLM.extract`.
    """
    document = await run_in_threadpool(_document, request, ImageReader(model, settings))
    try:
        found = await model.llm.aextract(
            Target.of(request.schema_),
            document,
            instructions=request.instructions,
            examples=[(each.document, each.record) for each in request.examples],
            thinking=request.thinking,
            max_new_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            timeout=settings.timeout,
        )
    except GrammarError as error:
        raise in_grammar(error, "/schema") from error
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


def _document(request: ExtractRequest, images: ImageReader) -> Document:
    if request.image is None:
        return Document(request.document)
    if request.document:
        raise APIError("/image: there is a /document already; give one", param="/image", code="invalid_value")
    return Document("", image=images.read(request.image, "/image", "/image").content)

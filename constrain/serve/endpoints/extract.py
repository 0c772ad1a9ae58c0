"""``POST /v1/extract``: a record from a document, as ``LLM.extract`` returns it."""

from __future__ import annotations

from typing import Any

from constrain.errors import GrammarError
from constrain.extract import Target
from constrain.serve.errors import in_grammar
from constrain.serve.models import ServedModel
from constrain.serve.protocol.extract import ExtractRequest


async def extract(request: ExtractRequest, model: ServedModel, timeout: float | None) -> dict[str, Any]:
    """Return the response.

    Raises:
        APIError: the schema cannot be enforced.
        ConstrainError: as for :meth:`constrain.LLM.extract`.
    """
    try:
        found = await model.llm.aextract(
            Target.of(request.schema_),
            request.document,
            instructions=request.instructions,
            examples=[(each.document, each.record) for each in request.examples],
            thinking=request.thinking,
            max_new_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            timeout=timeout,
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

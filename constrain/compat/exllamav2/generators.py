"""The generators with the behaviour of exllamav2, where it differs from its documentation."""

from __future__ import annotations

from typing import Any

import torch

from constrain import generator as native
from constrain.compat.exllamav2.filters import takes_filters
from constrain.errors import GenerationError
from constrain.model import ExLlamaV2Cache_8bit

_generate_simple = takes_filters(native.ExLlamaV2BaseGenerator.generate_simple)
_make_job = takes_filters(native.ExLlamaV2DynamicJob.__init__)


class ExLlamaV2BaseGenerator(native.ExLlamaV2BaseGenerator):
    """:class:`constrain.generator.ExLlamaV2BaseGenerator`, with support for third-party filters.

    By default, filters need not complete their text within ``num_tokens``.
    """

    def generate_simple(self, *args: Any, **kwargs: Any) -> Any:
        """See :meth:`constrain.generator.ExLlamaV2BaseGenerator.generate_simple`."""
        return _generate_simple(self, *args, **{"complete_within_budget": False, **kwargs})


class ExLlamaV2StreamingGenerator(native.ExLlamaV2StreamingGenerator, ExLlamaV2BaseGenerator):
    """:class:`constrain.generator.ExLlamaV2StreamingGenerator`, with these differences.

    Each call returns one token, even if several have been sampled. Top tokens are returned as two tensors, and
    probabilities with a batch dimension. Returned logits are those after the sampler's filters.
    """

    one_token_per_call = True
    raw_logits = False
    begin_stream_ex = takes_filters(native.ExLlamaV2StreamingGenerator.begin_stream_ex)

    def stream_ex(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """See :meth:`constrain.generator.ExLlamaV2StreamingGenerator.stream_ex`.

        Returns:
            Its result, except for ``probs``: float32 of shape (1, n); and ``top_tokens`` and ``top_probs``: int64 and
            float32 of shape (1, n, k).
        """
        result = super().stream_ex(*args, **kwargs)
        if "probs" in result:
            result["probs"] = result["probs"].view(1, -1)
        if "top_tokens" in result:
            shape = (1, result["chunk_token_ids"].shape[1], -1 if result["top_tokens"] else 0)
            ids, probs = zip(*result["top_tokens"], strict=True) if result["top_tokens"] else ((), ())
            result["top_tokens"] = torch.tensor(ids, dtype=torch.long).view(shape)
            result["top_probs"] = torch.tensor(probs, dtype=torch.float).view(shape)
        return result


class ExLlamaV2DynamicJob(native.ExLlamaV2DynamicJob):
    """:class:`constrain.generator.ExLlamaV2DynamicJob`, with these differences.

    ``min_new_tokens`` delays stop tokens, but not stop strings. Returned logits are those after the sampler's filters.
    By default, filters need not complete their text within ``max_new_tokens``.
    """

    early_stop_strings = True
    raw_logits = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _make_job(self, *args, **{"complete_within_budget": False, **kwargs})


class ExLlamaV2DynamicGenerator(native.ExLlamaV2DynamicGenerator):
    """:class:`constrain.generator.ExLlamaV2DynamicGenerator`, with these differences.

    An 8-bit cache is refused. With ``return_last_results``, :meth:`generate` returns a tuple of its results without and
    with it, and raises the errors of jobs.
    """

    job_type = ExLlamaV2DynamicJob
    texts_with_results = True

    def __init__(self, model: Any, cache: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(cache, ExLlamaV2Cache_8bit):
            raise GenerationError("the dynamic generator does not take an 8-bit cache; use ExLlamaV2Cache_Q8")
        super().__init__(model, cache, *args, **kwargs)


class ExLlamaV2DynamicGeneratorAsync(native.ExLlamaV2DynamicGeneratorAsync):
    """:class:`constrain.generator.ExLlamaV2DynamicGeneratorAsync`, with the generator and its jobs above."""

    generator_type = ExLlamaV2DynamicGenerator

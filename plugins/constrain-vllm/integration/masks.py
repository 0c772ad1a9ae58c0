"""Time of masks in one process: the plugin, and the back end of vLLM that it takes the place of.

Each schema is compiled for two outputs, one after the other: the plugin keeps masks of the first for those that follow.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from constrain_vllm.backend import ConstrainBackend
from constrain_vllm.grammar import ConstrainGrammar
from transformers.integrations.mistral import convert_tekken_tokenizer
from vllm.config import StructuredOutputsConfig
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_types import StructuredOutputOptions

#: Tokens by which ``max_tokens`` exceeds an output.
_SPARE = 200


def main() -> None:
    run = json.load(sys.stdin)
    tokenizer = large_tokenizer()
    backends = [made(config_of(tokenizer), tokenizer, len(tokenizer)) for made in (ConstrainBackend, GuidanceBackend)]
    times: dict[str, list[list[float]]] = {name: [[], []] for name in ("first", "again")}
    for request in run["requests"]:
        tokens = [*tokenizer.encode(request["text"], add_special_tokens=False), tokenizer.eos_token_id]
        for totals in times.values():
            found = [seconds_of_masks(backend, request["schema"], tokens) for backend in backends]
            if None not in found:
                for total, each in zip(totals, found, strict=True):
                    total.extend(each)
    Path(run["output"]).write_text(json.dumps({name: summary(*totals) for name, totals in times.items()}))


def large_tokenizer() -> Any:
    """Return the tokenizer of Mistral Nemo, which comes with vLLM: masks of small vocabularies are cheap for all."""
    files = resources.files("mistral_common") / "data" / "tekken_240718.json"
    return convert_tekken_tokenizer(str(files))


def config_of(tokenizer: Any) -> Any:
    """Return what the back ends read of vLLM's configuration."""
    model = SimpleNamespace(
        try_get_generation_config=dict, hf_text_config=SimpleNamespace(eos_token_id=tokenizer.eos_token_id)
    )
    return SimpleNamespace(structured_outputs_config=StructuredOutputsConfig(), model_config=model)


def seconds_of_masks(backend: Any, schema: Any, tokens: list[int]) -> list[float] | None:
    """Return the seconds of the mask before each token; ``None`` if the schema or a token is refused."""
    try:
        grammar = backend.compile_grammar(StructuredOutputOptions.JSON, json.dumps(schema))
    except ValueError:
        return None
    output: list[int] = []
    if isinstance(grammar, ConstrainGrammar):
        grammar.begin(_Request(len(tokens) + _SPARE, output), 10**6)
    bits, found = backend.allocate_token_bitmask(1), []
    for token in tokens:
        start = time.thread_time()
        grammar.fill_bitmask(bits, 0)
        found.append(time.thread_time() - start)
        output.append(token)
        if not grammar.accept_tokens("one", [token]):
            return None
    return found


class _Request(SimpleNamespace):
    """The part of a request that the plugin reads."""

    def __init__(self, max_tokens: int, output: list[int]) -> None:
        super().__init__(max_tokens=max_tokens, num_prompt_tokens=1, output=output)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output)


def summary(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Return number and mean and median microseconds of masks, and the ratio of the means."""
    means = [1e6 * statistics.fmean(each) for each in (ours, theirs)]
    medians = [1e6 * statistics.median(each) for each in (ours, theirs)]
    return {
        "masks": len(ours),
        "constrain_mean_us": means[0],
        "guidance_mean_us": means[1],
        "constrain_median_us": medians[0],
        "guidance_median_us": medians[1],
        "ratio": means[0] / means[1],
    }


if __name__ == "__main__":
    main()

"""One run of vLLM: reads requests from standard input, and writes what becomes of each to a file."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from vllm import LLM, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import StructuredOutputsParams

from constrain.demo import model_dir
from constrain.demo.export import write_dense

_DRAFTS = {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1}


def main() -> None:
    run = json.load(sys.stdin)
    drafts = {"speculative_config": {**_DRAFTS, "num_speculative_tokens": run["drafts"]}} if run["drafts"] else {}
    bias = _lure() if run["lured"] else None
    # With drafts, vLLM on the CPU mistakes the temperature, and then also samples tokens that the mask excludes.
    temperature = 0.0 if run["drafts"] else 1.0
    with tempfile.TemporaryDirectory() as folder:
        llm = LLM(
            str(write_dense(Path(folder))),  # vLLM on the CPU reads no quantised embeddings
            max_num_seqs=32,
            enforce_eager=True,
            structured_outputs_config={"backend": run["backend"]},
            **drafts,
        )
        found = generate(llm, [_params(*each, temperature, bias) for each in enumerate(run["requests"])])
    Path(run["output"]).write_text(json.dumps(found))


def generate(llm: LLM, params: list[SamplingParams]) -> list[dict[str, Any]]:
    """Return of each request its text, or why it is refused."""
    found: list[dict[str, Any]] = []
    for number, each in enumerate(params):
        try:
            llm.llm_engine.add_request(str(number), f"Example {number}:\n", each)
            found.append({})
        except (VLLMValidationError, ValueError) as error:
            found.append({"refused": str(error)})
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            if output.finished:
                written = output.outputs[0]
                found[int(output.request_id)] = {"text": written.text}
    return found


def _params(number: int, request: dict[str, Any], temperature: float, bias: dict[int, float] | None) -> SamplingParams:
    return SamplingParams(
        max_tokens=request["max_tokens"],
        temperature=temperature,
        seed=number,
        logit_bias=bias,
        structured_outputs=StructuredOutputsParams(json=request["schema"]),
    )


def _lure() -> dict[int, float]:
    """Return a bias towards white space and digits, which make outputs long."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir())
    texts = {token: tokenizer.decode([token]) for token in range(len(tokenizer))}
    return {token: 12.0 for token, text in texts.items() if text and (text.isspace() or text.isdigit())}


if __name__ == "__main__":
    main()

"""Evaluation of confidence on held-out documents: ``python -m constrain.demo.confidence``.

Values of records are compared with gold. AUROC says how well a number tells right from wrong values: the confidence,
the calibrated confidence, or what needs no constraint, the mean log probability of the tokens of the value. The
expected calibration error is that of the confidence before and after calibration on the other half of the documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import click
import torch

import constrain
from constrain.completion import Failure, PendingResult, run_many
from constrain.demo.handwritten import read_handwritten
from constrain.demo.synth import Split, example
from constrain.engine.pointers import pointer
from constrain.evaluation import correctness
from constrain.evaluation.calibration import held_out_calibrated
from constrain.evaluation.metrics import auroc, expected_calibration_error
from constrain.extract import Extraction, Target
from constrain.extract.calibration import Sample, value_kind
from constrain.extract.leaves import find_leaves
from constrain.extract.options import ExtractionOptions
from constrain.filters.vocabularies import vocabulary_of

_MAX_NEW_TOKENS = 1000


class Document(NamedTuple):
    """A text with a schema and the record that is right."""

    text: str
    schema: dict[str, Any]
    record: Any


class Value(NamedTuple):
    """A value of a record: what calibration needs of it, and the mean log probability of its tokens."""

    sample: Sample
    mean_logprob: float


def generated(count: int, seed: int) -> list[Document]:
    """Return documents of held-out families."""
    examples = (example(seed, Split.FAMILIES, number) for number in range(count))
    return [Document(each.text, each.schema, each.record) for each in examples]


def handwritten(folder: Path) -> list[Document]:
    """Return documents written by hand."""
    return [Document(each.text, each.schema, each.record) for each in read_handwritten(folder)]


def values(llm: constrain.LLM, documents: Sequence[Document]) -> list[list[Value]]:
    """Extract a record from each document, and return its values; none if that failed, or took several requests."""

    def submit(number: int, document: Document) -> PendingResult[Extraction[Any]]:
        submit_one = llm.extractor.submitter(Target.of(document.schema), max_new_tokens=_MAX_NEW_TOKENS)
        return submit_one(number, document.text)

    results = run_many(llm.runtime, submit, documents)
    return [
        [] if isinstance(result, Failure) else list(_values(llm, document, result))
        for document, result in zip(documents, results, strict=True)
    ]


def _values(llm: constrain.LLM, document: Document, extraction: Extraction[Any]) -> Iterator[Value]:
    logprobs = _mean_logprobs(llm, document, extraction)
    right = correctness(extraction.json, document.record)
    for where, value in _leaves(extraction.json):
        if where in logprobs and where in right and where in extraction.confidence:
            confidence = extraction.confidence[where]
            kind = value_kind(value, confidence.alternatives, where in extraction.spans)
            yield Value(Sample(kind, confidence.probability, right[where]), logprobs[where])


def _leaves(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, (dict, list)) or not node:
        yield pointer(path), node
        return
    for step, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield from _leaves(child, (*path, step))


def _mean_logprobs(llm: constrain.LLM, document: Document, extraction: Extraction[Any]) -> dict[str, float]:
    """Return the mean log probability, without the constraint, of the tokens of each value; nothing if unknown."""
    options = ExtractionOptions.of(Target.of(document.schema), {})
    prompt = llm.extractor.encode_prompt(document.text, options)
    ids = torch.cat([prompt, torch.tensor([extraction.tokens])], dim=1)
    spell = vocabulary_of(llm.tokenizer).token_bytes
    pieces = [spell(token) for token in extraction.tokens]
    if ids.shape[1] > llm.model.config.max_input_len or not _is_record(b"".join(pieces)):
        return {}
    with torch.inference_mode():
        logits = llm.model.forward(ids)[0, prompt.shape[1] - 1 : -1].float().cpu()
    logprobs = logits.log_softmax(1)[torch.arange(len(pieces)), torch.tensor(extraction.tokens)].tolist()
    ends = list(accumulate(map(len, pieces)))
    return {
        pointer(leaf.path): mean(
            logprob
            for logprob, end, text in zip(logprobs, ends, pieces, strict=True)
            if end > leaf.start and end - len(text) < leaf.end
        )
        for leaf in find_leaves(b"".join(pieces))
    }


def _is_record(text: bytes) -> bool:
    """Whether tokens are those of one record: of a document in chunks there are several."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def report(found: Sequence[Sequence[Value]]) -> Iterator[str]:
    """Yield the measures of values, by document."""
    samples = [[value.sample for value in each] for each in found]
    flat = [*chain(*samples)]
    right = [sample.is_right for sample in flat]
    probabilities = [sample.probability for sample in flat]
    calibrated = held_out_calibrated(samples)
    yield f"{len(flat):,} values of {len(found):,} documents, {mean(right):.1%} right"
    yield f"AUROC of the mean log probability: {auroc([value.mean_logprob for value in chain(*found)], right):.3f}"
    yield f"AUROC of the confidence: {auroc(probabilities, right):.3f}, calibrated {auroc(calibrated, right):.3f}"
    before, after = (expected_calibration_error(each, right) for each in (probabilities, calibrated))
    yield f"expected calibration error: {before:.3f}, calibrated {after:.3f}"


@click.command()
@click.option("--model", type=click.Path(path_type=Path), help="Model folder; the built-in model if omitted.")
@click.option("--count", default=300, show_default=True, help="Generated documents of held-out families; 0 for none.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--documents",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with documents written by hand, such as tests/data/documents.",
)
def main(model: Path | None, count: int, seed: int, documents: Path | None) -> None:
    """Evaluate the confidence of a model on held-out documents."""
    llm = constrain.load(model)
    sets = {"held-out families": generated(count, seed) if count else []}
    sets["written by hand"] = handwritten(documents) if documents else []
    for name, given in sets.items():
        if given:
            click.echo("\n  ".join([name, *report(values(llm, given))]))


if __name__ == "__main__":
    main()

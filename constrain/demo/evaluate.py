"""Evaluation of the built-in model on held-out documents: ``python -m constrain.demo.evaluate``.

A record is extracted from every document twice, with greedy sampling: with its schema as a constraint and without.
There are two splits: held-out wordings of families in the training set, and held-out families. For documents written by
hand, it is extracted with the constraint only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import jsonschema_rs

import constrain
from constrain.completion import Completion, Failure, PendingResult, run_many
from constrain.demo.handwritten import Handwritten, read_handwritten
from constrain.demo.measure import Measure, measure
from constrain.demo.scoring import Score, score
from constrain.demo.synth import Example, Split, example
from constrain.errors import BudgetError, ExtractionError
from constrain.extract import Extraction, Target, build_prompt
from constrain.extract.evidence import with_quotes
from constrain.generator import ExLlamaV2Sampler

_LIMIT = 400
#: Most tokens of the record of a document written by hand.
_HANDWRITTEN_LIMIT = 2000


def samples(llm: constrain.LLM, split: Split, count: int, seed: int) -> Iterator[Example]:
    """Yield the first ``count`` examples of a split that fit into the model's context together with an answer."""
    index = 0
    while count:
        sample = example(seed, split, index)
        index += 1
        prompt, answer = (
            llm.tokenizer.encode(text, add_bos=True, encode_special_tokens=True).shape[-1]
            for text in (build_prompt(sample.schema, sample.text), sample.answer)
        )
        if answer <= _LIMIT and prompt + _LIMIT <= llm.model.config.max_seq_len:
            count -= 1
            yield sample


def constrained(llm: constrain.LLM, samples: Sequence[Example]) -> list[str]:
    """Extract records with the constraint; an empty string for one that is incomplete."""

    def begin(number: int, sample: Example) -> PendingResult[Extraction[Any]]:
        return llm.extractor.submitter(Target.of(sample.schema), max_new_tokens=_LIMIT)(number, sample.text)

    return [_text(each) for each in run_many(llm.runtime, begin, samples)]


def unconstrained(llm: constrain.LLM, samples: Sequence[Example]) -> list[str]:
    """Extract records without the constraint."""
    prompts = (build_prompt(sample.schema, sample.text) for sample in samples)
    settings = ExLlamaV2Sampler.Settings.greedy()
    completions = llm.generate_many(prompts, max_new_tokens=_LIMIT, settings=settings)
    return [_text(each) for each in completions]


def _text(result: Completion | Extraction[Any] | Failure) -> str:
    """Return the output; an empty string if there is no record."""
    if isinstance(result, Failure):
        _check(result)
        return ""
    return result.text


def _check(failure: Failure) -> None:
    """Raise an error that is not about the document."""
    if not isinstance(failure.error, (BudgetError, ExtractionError)):
        raise failure.error


def evaluate(llm: constrain.LLM, split: Split, count: int, seed: int) -> tuple[Score, Score]:
    """Compute the scores with and without constraint on ``count`` examples of a split."""
    examples = list(samples(llm, split, count, seed))

    def scored(texts: list[str]) -> Score:
        return score(((text, s.record, s.schema) for text, s in zip(texts, examples, strict=True)), _matches)

    return scored(constrained(llm, examples)), scored(unconstrained(llm, examples))


def measure_handwritten(llm: constrain.LLM, documents: Sequence[Handwritten]) -> Measure:
    """Measure the records, with constraint, of documents written by hand."""

    def begin(number: int, document: Handwritten) -> PendingResult[Extraction[Any]]:
        submit = llm.extractor.submitter(Target.of(document.schema), max_new_tokens=_HANDWRITTEN_LIMIT)
        return submit(number, document.text)

    records = map(_record, run_many(llm.runtime, begin, documents))
    return measure(zip(documents, records, strict=True))


def _record(result: Extraction[Any] | Failure) -> Any | None:
    """Return the record; ``None`` if there is none."""
    if isinstance(result, Failure):
        _check(result)
        return None
    return result.json


def _matches(record: object, schema: dict[str, object]) -> bool:
    # A record that is merged from parts of a document has no quotes.
    return any(jsonschema_rs.Draft202012Validator(form).is_valid(record) for form in (with_quotes(schema), schema))


def _sorts(documents: Sequence[Handwritten]) -> dict[str, list[Handwritten]]:
    """Group documents by their sort: the kinds that people mostly extract from begin with ``everyday_``."""
    sorts: dict[str, list[Handwritten]] = {}
    for document in documents:
        sorts.setdefault("everyday" if document.kind.startswith("everyday_") else "difficult", []).append(document)
    return sorts


@click.command()
@click.option("--model", type=click.Path(path_type=Path), help="Model folder; the built-in model if omitted.")
@click.option("--count", default=500, show_default=True, help="Documents of each split; 0 for none.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--documents",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with documents written by hand, such as tests/data/documents.",
)
def main(model: Path | None, count: int, seed: int, documents: Path | None) -> None:
    """Evaluate a model on held-out documents, with and without constraint."""
    llm = constrain.load(model)
    for split in (Split.WORDINGS, Split.FAMILIES) if count else ():
        bound, free = evaluate(llm, split, count, seed)
        click.echo(f"{split.value}, {count} documents\n  with constraint:    {bound}\n  without constraint: {free}")
    for sort, group in _sorts(read_handwritten(documents) if documents else []).items():
        click.echo(f"{sort}, written by hand\n{measure_handwritten(llm, group)}")


if __name__ == "__main__":
    main()

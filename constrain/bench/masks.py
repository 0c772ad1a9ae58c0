"""Comparison of constraint engines on the same cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from constrain.bench.cases import Case
from constrain.bench.engines import Tokens
from constrain.bench.measure import Measurement, Verdict
from constrain.bench.summary import Summary, compiled_by_all
from constrain.bench.worker import Limits, Ready, Worker
from constrain.engine import Vocabulary


@dataclass
class Outcome:
    """Results of one engine.

    Attributes:
        set_up: time and memory of its set-up.
        resident: peak over all cases of its process's resident memory after a case, in bytes.
        results: measurements by case name.
    """

    set_up: Ready
    resident: int = 0
    results: dict[str, Measurement] = field(default_factory=dict)


def token_table(folder: Path) -> Tokens:
    """Return the tokens of the tokenizer in a folder."""
    vocabulary = Vocabulary.from_pretrained(folder)
    texts = [vocabulary.token_bytes(i) for i in range(vocabulary.size)]
    return Tokens(folder, texts, list(vocabulary.eos_token_ids))


def run_masks(engines: Sequence[str], tokens: Tokens, cases: Iterable[Case], limits: Limits) -> dict[str, Outcome]:
    """Measure engines on cases.

    Each engine runs in its own process. Engines run one at a time and alternate case by case, so that other load on the
    machine affects all of them equally; the order rotates from case to case.

    Raises:
        BenchmarkError: an engine cannot be set up.
    """
    workers: list[Worker] = []
    try:
        for name in engines:
            workers.append(Worker(name, tokens, limits))
        outcomes = {worker.name: Outcome(worker.ready) for worker in workers}
        for number, case in enumerate(cases):
            first = number % len(workers)
            for worker in workers[first:] + workers[:first]:
                outcome = outcomes[worker.name]
                outcome.results[case.name] = worker.run(case)
                outcome.resident = worker.resident
        return outcomes
    finally:
        for worker in workers:
            worker.stop()


def summaries(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """Return all figures of a run as JSON types: over all cases, and over those that every engine compiled."""
    common = compiled_by_all({name: outcome.results for name, outcome in outcomes.items()})
    return {
        name: {
            "set_up": {"seconds": outcome.set_up.seconds, "resident_bytes": outcome.set_up.resident},
            "resident_bytes": outcome.resident,
            "all": Summary.of(outcome.results.values()).json(),
            "compiled_by_all": Summary.of([outcome.results[case] for case in common]).json(),
            "failures": {
                case: {"verdict": result.verdict.value, "reason": result.reason}
                for case, result in outcome.results.items()
                if result.verdict is not Verdict.PASSED
            },
        }
        for name, outcome in outcomes.items()
    }

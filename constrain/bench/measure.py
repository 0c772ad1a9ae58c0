"""Measurement of one engine on one case: its times and its verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter_ns

from constrain.bench.cases import Case, Instance
from constrain.bench.engines.base import Engine


class Verdict(str, Enum):
    """Result of an engine on a case."""

    PASSED = "passed"
    REFUSED = "refused the schema"
    REJECTED = "rejected a valid document"
    ACCEPTED = "accepted an invalid document"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    CRASHED = "crashed"


@dataclass
class Measurement:
    """Measurements of one case. Times are in nanoseconds.

    Attributes:
        verdict: over all documents of the case; a schema refused as unsatisfiable rejects all of them.
        reason: why the verdict is not ``PASSED``.
        compile: time to compile the schema; ``None`` if that failed.
        first_mask: time from the schema to the first mask.
        masks, commits: time per mask, and time per accepted token.
        counters: the engine's own counters.
    """

    verdict: Verdict = Verdict.PASSED
    reason: str = ""
    compile: int | None = None
    first_mask: int | None = None
    masks: list[int] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)


def measure(engine: Engine, case: Case) -> Measurement:
    """Compile the schema of a case, then run its documents through the engine, computing a mask before each token."""
    result = Measurement()
    begin = perf_counter_ns()
    try:
        engine.compile(case.schema)
    except engine.unsatisfiable as error:
        if any(instance.valid for instance in case.instances):
            result.verdict, result.reason = Verdict.REJECTED, _told(error)
        return result
    except MemoryError as error:
        result.verdict, result.reason = Verdict.OUT_OF_MEMORY, _told(error)
        return result
    except Exception as error:  # engines refuse schemas with arbitrary exceptions
        result.verdict, result.reason = Verdict.REFUSED, _told(error)
        return result
    result.compile = perf_counter_ns() - begin
    try:
        for number, instance in enumerate(case.instances):
            _judge(result, number, instance, _takes(engine, instance, result))
    except MemoryError as error:
        result.verdict, result.reason = Verdict.OUT_OF_MEMORY, _told(error)
    except Exception as error:
        result.verdict, result.reason = Verdict.CRASHED, _told(error)
    result.counters = engine.counters()
    return result


def _takes(engine: Engine, instance: Instance, result: Measurement) -> bool:
    begin = perf_counter_ns()
    engine.start()
    started = perf_counter_ns() - begin
    for token in instance.tokens:
        begin = perf_counter_ns()
        engine.mask()
        result.masks.append(perf_counter_ns() - begin)
        if result.first_mask is None and result.compile is not None:
            result.first_mask = result.compile + started + result.masks[0]
        if not engine.allowed(token):
            return False
        begin = perf_counter_ns()
        taken = engine.commit(token)
        result.commits.append(perf_counter_ns() - begin)
        if not taken:
            return False
    return engine.may_end()


def _judge(result: Measurement, number: int, instance: Instance, taken: bool) -> None:
    if taken != instance.valid and result.verdict is Verdict.PASSED:
        result.verdict = Verdict.ACCEPTED if taken else Verdict.REJECTED
        result.reason = f"document {number}"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]

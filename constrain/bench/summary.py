"""Summary statistics of an engine's measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from constrain.bench.measure import Measurement, Verdict

PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class Times:
    """Distribution of times, in microseconds. Percentiles are by nearest rank."""

    count: int
    mean: float
    percentiles: dict[str, float]
    max: float

    @classmethod
    def of(cls, nanoseconds: Iterable[int]) -> Times | None:
        """Return the distribution of the given times, or ``None`` if there are none."""
        times = sorted(nanoseconds)
        if not times:
            return None
        ranks = {f"p{p:g}": times[min(len(times) - 1, int(len(times) * p / 100))] for p in PERCENTILES}
        return cls(
            count=len(times),
            mean=sum(times) / len(times) / 1000,
            percentiles={name: time / 1000 for name, time in ranks.items()},
            max=times[-1] / 1000,
        )


@dataclass(frozen=True)
class Summary:
    """Statistics of one engine over a set of cases.

    Attributes:
        cases: number of cases.
        verdicts: number of cases per verdict.
        compile, first_mask, mask, commit: see :class:`constrain.bench.measure.Measurement`.
        counters: the engine's own counters, summed over all cases.
    """

    cases: int
    verdicts: dict[str, int]
    compile: Times | None
    first_mask: Times | None
    mask: Times | None
    commit: Times | None
    counters: dict[str, int]

    @classmethod
    def of(cls, results: Collection[Measurement]) -> Summary:
        """Summarise measurements."""
        verdicts = Counter(result.verdict for result in results)
        counters: Counter[str] = Counter()
        for result in results:
            counters.update(result.counters)
        return cls(
            cases=len(results),
            verdicts={verdict.value: verdicts[verdict] for verdict in Verdict},
            compile=Times.of(result.compile for result in results if result.compile is not None),
            first_mask=Times.of(result.first_mask for result in results if result.first_mask is not None),
            mask=Times.of(time for result in results for time in result.masks),
            commit=Times.of(time for result in results for time in result.commits),
            counters=dict(counters),
        )

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON types."""
        return asdict(self)


def compiled_by_all(results: Mapping[str, Mapping[str, Measurement]]) -> list[str]:
    """Return the names of the cases that every engine compiled, whose times can be compared.

    Args:
        results: measurements by engine and case.
    """
    by_engine = [{case for case, result in cases.items() if result.compile is not None} for cases in results.values()]
    return sorted(set.intersection(*by_engine)) if by_engine else []

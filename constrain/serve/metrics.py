"""Metrics in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from constrain.llm import LLM

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters and histograms of a server, and gauges of its runtimes."""

    def __init__(self, llms: Sequence[LLM]) -> None:
        """``llms``: the models that are loaded."""
        self._registry = CollectorRegistry()
        self._registry.register(_Runtimes(llms))
        self.requests = Counter(
            "constrain_requests", "Requests, by HTTP status", ["path", "status"], registry=self._registry
        )
        self.tokens = Counter("constrain_tokens", "Tokens of prompts and outputs", ["kind"], registry=self._registry)
        self.finished = Counter("constrain_outputs", "Outputs, by why they ended", ["reason"], registry=self._registry)
        self.seconds = Histogram(
            "constrain_request_seconds", "Time of requests", buckets=_SECONDS, registry=self._registry
        )
        self.first_token = Histogram(
            "constrain_first_token_seconds", "Time to the first token", buckets=_SECONDS, registry=self._registry
        )

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)


class _Runtimes:
    """Gauges that are read from the runtimes when they are asked for."""

    def __init__(self, llms: Sequence[LLM]) -> None:
        self._runtimes = [llm.runtime for llm in llms]

    def collect(self) -> Iterable[Metric]:
        gauges = {
            "running": ("Sequences that run", [len(each.scheduler.running) for each in self._runtimes]),
            "waiting": ("Sequences that wait", [len(each.scheduler.waiting) for each in self._runtimes]),
            "pages": ("Pages of the KV caches", [len(each.allocator.pages) for each in self._runtimes]),
            "idle_pages": ("Pages that no sequence uses", [len(each.allocator.idle) for each in self._runtimes]),
        }
        for name, (description, values) in gauges.items():
            yield GaugeMetricFamily(f"constrain_{name}", description, value=sum(values))

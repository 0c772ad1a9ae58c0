"""The workers of a run on a Ray cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import ray

from constrain.completion import Failure, Inputs
from constrain.documents import Document
from constrain.errors import RunError
from constrain.extract import Calibration, Target
from constrain.integrations.ray.calls import CALLS, Calls, Result
from constrain.llm import load


class Workers:
    """Workers of a Ray cluster in place of the :class:`constrain.LLM` of a run, each with a model of its own.

    A worker that dies is started again, and what it was working on is repeated by those that are free.
    """

    def __init__(
        self,
        address: str,
        model: str | Path | None = None,
        *,
        number: int | None = None,
        max_batch_size: int | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """
        Args:
            address: of the cluster; ``"auto"`` for the one that this machine belongs to, ``"local"`` to start one here.
            model: folder of the model, the same on every machine; the built-in one if omitted.
            number: number of workers; by default one for each GPU, or without GPUs, one for each machine.
            max_batch_size: most requests that run at a time in a worker, see :func:`constrain.load`.
            calibration: see there, too.
        """
        self._address, self._number, self._model = address, number, None if model is None else str(model)
        self._loading = {"max_batch_size": max_batch_size, "calibration": calibration, "images": None}

    def extract_many(
        self,
        target: Target[Any],
        documents: Inputs[Document],
        *,
        ordered: Literal[False] = False,
        **options: Any,
    ) -> Generator[Result, None, None]:
        """Extract a record from each document, and yield the results as they come.

        Args:
            target: schema and type of the records. The workers know only the schema.
            documents: the documents.
            ordered: there is no other order than that in which the results come.
            options: as for :meth:`constrain.LLM.extract`.

        Raises:
            RunError: there is no such cluster, or the workers cannot be started.
        """
        if "examples" in options:
            options["examples"] = [(text, target.dump(record)) for text, record in options["examples"]]
        with _connected(self._address), self._started(target.schema, options) as workers:
            yield from Calls(target, workers).results(documents)

    @contextmanager
    def _started(self, schema: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[list[Any]]:
        """Start the workers, and end them."""
        number, resources = _resources(self._number)
        make = ray.remote(_Worker).options(max_restarts=-1, max_task_retries=-1, max_concurrency=CALLS, **resources)
        workers = [make.remote(schema, self._model, self._loading, options) for _ in range(number)]
        try:
            yield workers
        finally:
            for worker in workers:
                ray.kill(worker)


class _Worker:
    """Extracts documents in a process of its own."""

    def __init__(self, schema: Any, model: str | None, loading: Mapping[str, Any], options: Any) -> None:
        self._llm, self._target = load(model, **loading), Target.of(schema)
        self._options = options

    def extract(self, documents: Sequence[Document]) -> list[Result]:
        """Extract a record from each document; the results, in order, are without the documents."""
        results = self._llm.extract_many(self._target, documents, **self._options)
        return [each if isinstance(each, Failure) else replace(each, document=Document("")) for each in results]


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to a cluster, unless this process is connected."""
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(f"cannot connect to a Ray cluster at {address!r}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _resources(number: int | None) -> tuple[int, dict[str, int]]:
    """Return how many workers a cluster has room for, at most ``number``, and what each of them takes."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if num_gpus := sum(int(node.get("GPU", 0)) for node in nodes):
        return min(number or num_gpus, num_gpus), {"num_gpus": 1}
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    if not cpus:
        raise RunError("the cluster has no machine with a CPU for workers")
    number = min(number or len(cpus), sum(cpus))
    sizes = range(max(cpus), 0, -1)
    return number, {"num_cpus": next(size for size in sizes if sum(each // size for each in cpus) >= number)}

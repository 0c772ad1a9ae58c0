"""Extraction on many machines with Ray: in the batches of a Ray dataset, or as a run with workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import ray
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

from constrain.completion import Failure, Inputs
from constrain.documents import Document, Source
from constrain.errors import DocumentError, ExtractionError, RunError
from constrain.extract import Calibration, Extraction, ExtractOptions, Target
from constrain.llm import load
from constrain.runs import LazyModel, Line, Run, encode_line, settings_of
from constrain.runs.work import read_works

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from constrain.runs.missing import Missing

__all__ = ["Extractor", "Workers"]

#: Documents that a worker is given in one call, and calls that it works on at a time: so it never waits for the driver,
#: and has as many documents as a large batch of a GPU.
_BATCH, _CALLS = 16, 4
#: Times that a call is repeated whose worker has died, before its documents fail.
_RETRIES = 3
#: Seconds between looks for documents that have been read meanwhile.
_POLL = 0.05

_Result: TypeAlias = "Extraction[Any] | Failure"


class Extractor:
    """Extracts a record from each row of a dataset; a class for ``map_batches`` with a pool of actors.

    Each row gets the columns ``key``, the key of its work; ``line``, the line that ``constrain extract`` would write,
    as JSON text; and ``failed``, whether that has an error instead of a record.
    """

    def __init__(
        self,
        schema: Any,
        *,
        model: str | Path | None = None,
        column: str = "text",
        source_column: str | None = None,
        done: Collection[str] = (),
        **options: Unpack[ExtractOptions],
    ) -> None:
        """
        Args:
            schema: schema of the records, as for :meth:`constrain.LLM.extract`.
            model: folder of the model, on every machine; the built-in one if omitted.
            column: column of the texts.
            source_column: column that says where the texts come from.
            done: keys of an earlier run; the rows with these keys are left out.
            options: as for :meth:`constrain.LLM.extract`.

        Raises:
            ModelError: the model cannot be used.
            SchemaError: the schema is not valid.
            ArgumentError: an option is wrong, or has no JSON form.
        """
        self._llm, self._target = load(model), Target.of(schema)
        self._column, self._source_column = column, source_column
        self._done, self._options = frozenset(done), options
        self._settings = settings_of(LazyModel.of(self._llm), self._target, options)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Extract from the rows of a batch, given by column.

        Raises:
            RunError: many rows in a row failed unexpectedly.
        """
        inputs = list(map(_input, self._values(batch, self._column), self._values(batch, self._source_column)))
        keys = [work.key for work in read_works(self._settings, inputs)]
        lines = _Lines(self._done)
        Run(self._extract, self._target, self._settings, lines).extract(inputs)
        kept = np.array([key not in self._done for key in keys], dtype=bool)
        found = [lines.by_key[key] for key in keys if key not in self._done]
        return {
            **{name: np.asarray(values)[kept] for name, values in batch.items()},
            "key": np.array(keys, dtype=object)[kept],
            "line": np.array([encode_line(line).decode() for line in found], dtype=object),
            "failed": np.array(["error" in line for line in found], dtype=bool),
        }

    def _values(self, batch: Mapping[str, Any], column: str | None) -> list[Any]:
        """Return the values of a column, ``None`` for each row if there is no such column."""
        if column is None:
            return [None] * len(batch[self._column])
        return list(np.asarray(batch[column]).tolist())

    def _extract(self, missing: Missing) -> Generator[_Result, None, None]:
        return self._llm.extract_many(self._target, missing, ordered=False, **self._options)


@dataclass
class _Lines:
    """The output of a run over one batch."""

    done: frozenset[str]
    by_key: dict[str, Line] = field(default_factory=dict)

    def has_record(self, key: str) -> bool:
        return key in self.done

    def has_failure(self, key: str) -> bool:
        return False

    def append(self, line: Line, position: int = 0) -> None:
        self.by_key[line["key"]] = line

    def finish(self, keys: Iterable[str]) -> None:
        pass


def _input(text: Any, source: Any) -> Document | Source:
    name = None if source is None else str(source)
    if isinstance(text, str):
        return Document(text, name)

    def fail() -> Document:
        raise DocumentError(name or "", f"it is not a text ({type(text).__name__})")

    return Source(name or "", fail)


class Workers:
    """Workers of a Ray cluster in place of the :class:`constrain.LLM` of a run, each with a model of its own.

    A worker that dies is started again, and what it was working on is repeated.
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
            calibration: see there.
        """
        self._address, self._number, self._model = address, number, None if model is None else str(model)
        self._loading = {"max_batch_size": max_batch_size, "calibration": calibration}

    def extract_many(
        self, target: Target[Any], documents: Inputs[Document], *, ordered: bool = False, **options: Any
    ) -> Generator[_Result, None, None]:
        """Extract a record from each document, and yield the results as they come.

        Args:
            target: schema and type of the records. The workers know only the schema.
            documents: the documents.
            ordered: must be false.
            options: as for :meth:`constrain.LLM.extract`.

        Raises:
            RunError: there is no such cluster, or the workers cannot be started.
        """
        if "examples" in options:
            options["examples"] = [(text, target.dump(record)) for text, record in options["examples"]]
        with _connected(self._address), self._started(target.schema, options) as workers:
            yield from _Calls(target, workers).results(documents)

    @contextmanager
    def _started(self, schema: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[list[Any]]:
        """Start the workers, and end them."""
        number, resources = _resources(self._number)
        make = ray.remote(_Worker).options(
            max_restarts=-1, max_task_retries=_RETRIES, max_concurrency=_CALLS, **resources
        )
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

    def extract(self, documents: Sequence[Document]) -> list[_Result]:
        """Extract a record from each document; the results, in order, are without the documents."""
        results = self._llm.extract_many(self._target, documents, **self._options)
        return [each if isinstance(each, Failure) else replace(each, document=Document("")) for each in results]


@dataclass
class _Call:
    """Documents that a worker has, with the position of the first."""

    worker: Any
    start: int
    documents: list[Document]


class _Calls:
    """The calls of workers that are in progress."""

    def __init__(self, target: Target[Any], workers: Sequence[Any]) -> None:
        self._target = target
        self._free = deque(worker for _ in range(_CALLS) for worker in workers)
        self._calls: dict[Any, _Call] = {}
        self._num_documents = 0

    def results(self, documents: Inputs[Document]) -> Iterator[_Result]:
        """Yield the results of documents as they come; if reading them fails, those of earlier ones first."""
        source, is_open, broken = iter(documents), True, None
        while is_open or self._calls:
            is_open = is_open and not documents.is_stopped()
            while is_open and self._free and (not self._calls or documents.is_ready()):
                try:
                    is_open = self._start(_ready(source, documents))
                except Exception as error:
                    is_open, broken = False, error
            for reference in self._done(_POLL if is_open and self._free else None):
                yield from self._finish(reference)
        if broken is not None:
            raise broken

    def _done(self, timeout: float | None) -> list[Any]:
        """Wait for a call that is done."""
        return list(ray.wait(list(self._calls), timeout=timeout)[0]) if self._calls else []

    def _start(self, documents: list[Document]) -> bool:
        """Give documents to the worker that has the fewest; return whether there are any."""
        if documents:
            call = _Call(self._free.popleft(), self._num_documents, documents)
            self._calls[call.worker.extract.remote(documents)] = call
            self._num_documents += len(documents)
        return bool(documents)

    def _finish(self, reference: Any) -> Iterator[_Result]:
        call = self._calls.pop(reference)
        self._free.append(call.worker)
        for result, document in zip(_results(reference, len(call.documents)), call.documents, strict=True):
            yield self._placed(result, call.start + result.index, document)

    def _placed(self, result: _Result, index: int, document: Document) -> _Result:
        """Return a result of a worker with what only this process knows: position, document and type."""
        if isinstance(result, Failure):
            return Failure(index, result.error)
        try:
            return replace(result, index=index, document=document, value=self._target.value_of(result.json))
        except ExtractionError as error:
            return Failure(index, error)


def _ready(source: Iterator[Document], documents: Inputs[Document]) -> list[Document]:
    """Return the documents of a call: the next one, for which it waits, and those that are there."""
    found = list(islice(source, 1))
    while found and len(found) < _BATCH and documents.is_ready() and (more := next(source, None)) is not None:
        found.append(more)
    return found


def _results(reference: Any, number: int) -> list[_Result]:
    """Return the results of a call; if its worker died again and again, as many failures."""
    try:
        found: list[_Result] = ray.get(reference)
        return found
    except RayTaskError as error:
        raise error.cause from error
    except ActorDiedError as error:
        raise RunError(f"a worker cannot be started: {error}") from error
    except RayActorError as error:
        return [Failure(index, error) for index in range(number)]


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to a cluster, unless this process is connected."""
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
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
    number = min(number or len(cpus), sum(cpus))
    return number, {"num_cpus": max(1, min(*cpus, sum(cpus) // number))}

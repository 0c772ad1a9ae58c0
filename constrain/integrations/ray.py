"""Extraction on many machines with Ray: in the batches of a Ray dataset, or as a run with workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ImportError as error:
    raise ImportError("constrain.integrations.ray needs Ray: pip install 'constrain[ray]'") from error

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
#: Workers that die over a document before it fails.
_DEATHS = 4
#: Seconds between looks for documents that have been read meanwhile, and for Ctrl-C.
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
        calibration: Calibration | None = None,
        **options: Unpack[ExtractOptions],
    ) -> None:
        """
        Args:
            schema: schema of the records, as for :meth:`constrain.LLM.extract`.
            model: folder of the model, on every machine; the built-in one if omitted.
            column: column of the texts.
            source_column: column that says where the texts come from.
            done: keys of an earlier run; the rows with these keys are left out.
            calibration: see :func:`constrain.load`.
            options: as for :meth:`constrain.LLM.extract`.

        Raises:
            ModelError: the model cannot be used.
            SchemaError: the schema is not valid.
            ArgumentError: an option is wrong, or has no JSON form.
        """
        self._llm, self._target = load(model, calibration=calibration), Target.of(schema)
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
        self._loading = {"max_batch_size": max_batch_size, "calibration": calibration}

    def extract_many(
        self,
        target: Target[Any],
        documents: Inputs[Document],
        *,
        ordered: Literal[False] = False,
        **options: Any,
    ) -> Generator[_Result, None, None]:
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
            yield from _Calls(target, workers).results(documents)

    @contextmanager
    def _started(self, schema: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[list[Any]]:
        """Start the workers, and end them."""
        number, resources = _resources(self._number)
        make = ray.remote(_Worker).options(max_restarts=-1, max_task_retries=-1, max_concurrency=_CALLS, **resources)
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


@dataclass(frozen=True)
class _Call:
    """Documents for a worker, with the position of the first, and how many workers have died over them."""

    start: int
    documents: Sequence[Document]
    deaths: int = 0

    def repeated(self) -> list[_Call]:
        """Return a call for each document, so that one that kills its worker is found."""
        return [_Call(self.start + index, [each], self.deaths + 1) for index, each in enumerate(self.documents)]


class _Batches:
    """The documents of a run, as calls.

    Attributes:
        is_open: whether there may be more.
        error: what reading the documents raised.
    """

    def __init__(self, documents: Inputs[Document]) -> None:
        self._documents, self._source = documents, iter(documents)
        self._num_documents = 0
        self.is_open = True
        self.error: Exception | None = None

    def next(self, is_idle: bool) -> _Call | None:
        """Return the next call; ``None`` at the end. If not idle, also if no document is there yet."""
        self.is_open = self.is_open and not self._documents.is_stopped()
        if not self.is_open or not (is_idle or self._documents.is_ready()):
            return None
        found = self._read()
        call = _Call(self._num_documents, found)
        self._num_documents += len(found)
        self.is_open = bool(found)
        return call if found else None

    def _read(self) -> list[Document]:
        """Return the next document, for which it waits, and those that are there."""
        found: list[Document] = []
        try:
            while len(found) < _BATCH and (not found or self._documents.is_ready()):
                found.append(next(self._source))
        except StopIteration:
            pass
        except Exception as error:
            self.error = error
        return found


class _Calls:
    """The calls that workers work on. If a worker dies, they are repeated by others, which do not wait for it."""

    def __init__(self, target: Target[Any], workers: Sequence[Any]) -> None:
        self._target = target
        self._starting = {worker.__ray_ready__.remote(): worker for worker in workers}
        self._started: list[Any] = []
        self._running: dict[Any, tuple[Any, _Call]] = {}
        self._repeated: deque[_Call] = deque()

    def results(self, documents: Inputs[Document]) -> Iterator[_Result]:
        """Yield the results of documents as they come; if reading them fails, those of earlier ones first."""
        batches = _Batches(documents)
        while batches.is_open or self._running or self._repeated:
            while (worker := self._free()) is not None and (call := self._next(batches)) is not None:
                # The calls of a worker that has died are repeated here; Ray would wait until it has started again.
                self._running[worker.extract.options(max_task_retries=0).remote(call.documents)] = worker, call
            for reference in ray.wait([*self._running, *self._starting], timeout=_POLL)[0]:
                yield from self._finish(reference)
        if batches.error is not None:
            raise batches.error

    def _free(self) -> Any:
        """Return the worker with the fewest calls; ``None`` if all have enough."""
        counts = Counter(worker for worker, _ in self._running.values())
        worker = min(self._started, key=counts.__getitem__, default=None)
        return None if counts[worker] == _CALLS else worker

    def _next(self, batches: _Batches) -> _Call | None:
        return self._repeated.popleft() if self._repeated else batches.next(is_idle=not self._running)

    def _finish(self, reference: Any) -> Iterator[_Result]:
        """Take notice that a worker has started, or of the results of a call."""
        if reference in self._starting:
            self._started.append(_checked(self._starting.pop(reference), reference))
            return
        worker, call = self._running.pop(reference)
        try:
            results = ray.get(reference)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            self._restart(worker)
            results = self._repeat(call, error)
        for result in results:
            yield self._placed(call, result)

    def _restart(self, worker: Any) -> None:
        """Wait until a worker that has died has started again, unless an earlier call has seen that."""
        if worker in self._started:
            self._started.remove(worker)
            self._starting[worker.__ray_ready__.remote()] = worker

    def _repeat(self, call: _Call, error: RayError) -> list[Failure]:
        """Repeat a call; if enough workers have died over it, return failures."""
        if call.deaths + 1 < _DEATHS:
            self._repeated.extend(call.repeated())
            return []
        return [Failure(index, error) for index in range(len(call.documents))]

    def _placed(self, call: _Call, result: _Result) -> _Result:
        """Return a result of a worker with what only this process knows: position, document and type."""
        index, document = call.start + result.index, call.documents[result.index]
        if isinstance(result, Failure):
            return Failure(index, result.error)
        try:
            return replace(result, index=index, document=document, value=self._target.value_of(result.json))
        except ExtractionError as error:
            return Failure(index, error)


def _checked(worker: Any, reference: Any) -> Any:
    """Return a worker if it has started."""
    try:
        ray.get(reference)
    except RayError as error:
        raise RunError(f"a worker cannot be started: {error}") from error
    return worker


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

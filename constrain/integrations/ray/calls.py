"""The calls of the workers of a run: which documents each of them has, and what happens if one dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import ray
from ray.exceptions import RayError, RayTaskError

from constrain.completion import Failure, Inputs
from constrain.documents import Document
from constrain.errors import ExtractionError, RunError
from constrain.extract import Extraction, Target

#: Documents that a worker is given in one call, and calls that it works on at a time: so it never waits for the driver,
#: and has as many documents as a large batch of a GPU.
_BATCH, CALLS = 16, 4
#: Workers that die over a document before it fails.
_DEATHS = 4
#: Seconds between looks for documents that have been read meanwhile, and for Ctrl-C.
_POLL = 0.05

Result: TypeAlias = "Extraction[Any] | Failure"


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
        self.is_open = bool(found) and self.error is None
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


class Calls:
    """The calls that workers work on. If a worker dies, they are repeated by others, which do not wait for it."""

    def __init__(self, target: Target[Any], workers: Sequence[Any]) -> None:
        self._target = target
        self._starting = {worker.__ray_ready__.remote(): worker for worker in workers}
        self._started: list[Any] = []
        self._running: dict[Any, tuple[Any, _Call]] = {}
        self._repeated: deque[_Call] = deque()

    def results(self, documents: Inputs[Document]) -> Iterator[Result]:
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
        return None if counts[worker] == CALLS else worker

    def _next(self, batches: _Batches) -> _Call | None:
        return self._repeated.popleft() if self._repeated else batches.next(is_idle=not self._running)

    def _finish(self, reference: Any) -> Iterator[Result]:
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

    def _placed(self, call: _Call, result: Result) -> Result:
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

"""The outputs of one request: admitted, submitted, awaited, and cancelled when nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import uniform
from typing import Any

from constrain.completion import submitted
from constrain.errors import GenerationTimeout
from constrain.serve.admission import Admission
from constrain.serve.deadline import Deadline
from constrain.serve.errors import APIError
from constrain.serve.generation import Batch, Output, Work
from constrain.serve.metrics import Metrics
from constrain.serve.settings import ServerSettings

#: Batches per second of all streams together, each of which costs the model a part of a step, ...
_BATCHES_PER_SECOND = 750
#: ... and seconds that a stream waits for its next tokens at the most. The waits are random, from half of the time on:
#: streams that began together would go on at the same moments, and hold up a step each time.
_MAX_REST = 0.1
#: Seconds between two batches of outputs that are sent when they have ended.
_COLLECT_REST = 1.0


@dataclass(frozen=True)
class Server:
    """State that the requests of a server share.

    Attributes:
        settings: limits and keys.
        admission: counts the outputs in progress.
        metrics: its metrics.
        jobs: the requests in progress whose outputs are submitted.
    """

    settings: ServerSettings
    admission: Admission
    metrics: Metrics
    jobs: set[Job] = field(default_factory=set)

    def end(self) -> None:
        """End the requests in progress with an error that says that the server stops."""
        for job in [*self.jobs]:
            job.fail(APIError("the server stops: send the request again", status=503, code="server_stopping"))


class Job:
    """The outputs of one request, from its admission until its response has ended.

    Attributes:
        works: what is generated.
        outputs: the outputs, once they are submitted.
    """

    def __init__(self, server: Server, works: Sequence[Work], n: int, deadline: Deadline, count: str = "/n") -> None:
        """
        Args:
            server: the server.
            works: what is generated.
            n: number of outputs of each work.
            deadline: until when.
            count: JSON pointer to the field that says how many outputs there are.

        Raises:
            APIError: the server has too much to do.
        """
        self._server, self.works, self._n, self._deadline = server, works, n, deadline
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True
        self._error: Exception | None = None
        self.outputs: list[Output] = []
        server.admission.enter(len(works) * n, count)
        server.jobs.add(self)

    async def submit(self) -> None:
        """Submit the outputs; errors as for :func:`constrain.completion.submit`."""
        for work in self.works:
            for number in range(self._n):
                self.outputs.append(await _submitted(work, number))
                if self._error is not None:
                    raise self._error
        left = self._deadline.left
        if left is not None:
            self._timer = asyncio.get_running_loop().call_later(left, lambda: self.fail(self._deadline.error()))

    async def collect(self) -> list[list[Batch]]:
        """Return all that each output has gained, when all have ended; errors as for :meth:`Output.batches`."""
        found: list[list[Batch]] = [[] for _ in self.outputs]
        async for number, batch in self._batches(lambda: _COLLECT_REST):
            if batch is not None:
                found[number].append(batch)
        return found

    def stream(self) -> AsyncIterator[tuple[int, Batch | None]]:
        """Yield what the outputs gain, with their numbers, and ``None`` when one has ended.

        A single stream has each token as soon as it is there. The more streams there are, the more tokens are sent
        together.
        """

        def rest() -> float:
            return uniform(0.5, 1) * min(_MAX_REST, self._server.admission.active / _BATCHES_PER_SECOND)

        return self._batches(rest)

    async def _batches(self, rest: Callable[[], float]) -> AsyncIterator[tuple[int, Batch | None]]:
        is_first = True
        async for number, batch in _merged(self.outputs, rest):
            if is_first:
                self._server.metrics.first_token.observe(self._deadline.passed)
                is_first = False
            yield number, batch

    def close(self) -> None:
        """Cancel what still runs, and count the request as ended; no-op afterwards."""
        if not self._is_open:
            return
        self._is_open = False
        self._server.jobs.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        for output in self.outputs:
            if not output.done:
                loop.run_in_executor(None, output.cancel)
            self._count(output)
        seconds = self._deadline.passed
        self._server.metrics.seconds.observe(seconds)
        self._server.admission.leave(len(self.works) * self._n, seconds)

    def _count(self, output: Output) -> None:
        metrics, completion = self._server.metrics, output.completion
        unfinished = "timeout" if isinstance(output.error, GenerationTimeout) else "cancelled"
        reason = output.finish_reason if completion else unfinished
        metrics.finished.labels(reason).inc()
        metrics.tokens.labels("output").inc(output.num_tokens)
        if completion is not None:
            metrics.tokens.labels("prompt").inc(completion.prompt_tokens)

    def fail(self, error: Exception) -> None:
        """End the outputs that are in progress, or are not submitted yet, with an error."""
        self._error = error
        for output in self.outputs:
            if not output.done:
                output.fail(error)
                asyncio.get_running_loop().run_in_executor(None, output.release)


async def _submitted(work: Work, number: int) -> Output:
    """Submit an output, on a worker thread if there is something to compile."""
    if work.format is not None:
        return await submitted(partial(work.submit, number))
    await asyncio.sleep(0)  # for other requests, and to be cancelled
    return work.submit(number)


async def _merged(outputs: Sequence[Output], rest: Callable[[], float]) -> AsyncIterator[tuple[int, Batch | None]]:
    """Yield the batches of several outputs as they come, and ``None`` when one has ended."""
    if len(outputs) == 1:
        async for batch in outputs[0].batches(rest):
            yield 0, batch
        yield 0, None
        return
    queue: asyncio.Queue[tuple[int, Batch | None] | Exception] = asyncio.Queue()
    tasks = [asyncio.ensure_future(_forward(number, output, queue, rest)) for number, output in enumerate(outputs)]
    try:
        open_outputs = len(tasks)
        while open_outputs:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            open_outputs -= item[1] is None
            yield item
    finally:
        for task in tasks:
            task.cancel()


async def _forward(number: int, output: Output, queue: asyncio.Queue[Any], rest: Callable[[], float]) -> None:
    try:
        async for batch in output.batches(rest):
            queue.put_nowait((number, batch))
        queue.put_nowait((number, None))
    except Exception as error:  # whoever reads the queue raises it
        queue.put_nowait(error)

"""A worker process for one engine, isolating others from its timeouts, out-of-memory errors and crashes."""

from __future__ import annotations

import multiprocessing
import resource
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from constrain.bench.cases import Case
from constrain.bench.engines import ENGINES, Tokens, engine_class
from constrain.bench.measure import Measurement, Verdict, measure
from constrain.errors import BenchmarkError

#: Timeout of an engine's set-up.
SET_UP_SECONDS = 600.0


@dataclass(frozen=True)
class Ready:
    """Message of a worker whose engine is set up.

    Attributes:
        seconds: time of the set-up, without imports.
        resident: bytes by which the set-up increased resident memory.
    """

    seconds: float
    resident: int


@dataclass
class Limits:
    """Limits of a case: seconds, and bytes of memory of the whole process."""

    seconds: float
    memory: int


class Worker:
    """The process of one engine, restarted after a timeout or crash.

    Attributes:
        name: of the engine.
        ready: set-up figures of the first start.
        resident: peak over all cases of the process's resident memory after a case, in bytes.
    """

    def __init__(self, name: str, tokens: Tokens, limits: Limits) -> None:
        self.name = name
        self.resident = 0
        self._tokens = tokens
        self._limits = limits
        self.ready = self._start()

    def run(self, case: Case) -> Measurement:
        """Measure the engine on a case. If the process dies, the next case starts a new one."""
        if not self._process.is_alive():
            self._start()
        result: Measurement
        try:
            self._pipe.send(case)
            if not self._pipe.poll(self._limits.seconds):
                self.stop()
                return Measurement(Verdict.TIMED_OUT, f"after {self._limits.seconds:g} s")
            result, resident = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.stop()
            return Measurement(Verdict.CRASHED, f"the process ended with code {self._process.exitcode}")
        self.resident = max(self.resident, resident)
        return result

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _start(self) -> Ready:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (ENGINES[self.name], self._tokens, self._limits.memory, theirs)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        try:
            answer = self._pipe.recv() if self._pipe.poll(SET_UP_SECONDS) else "it took too long"
        except EOFError:
            answer = "its process ended"
        if not isinstance(answer, Ready):
            self.stop()
            raise BenchmarkError(f"the engine {self.name} cannot be set up: {answer}")
        return answer


def _serve(target: str, tokens: Tokens, memory: int, pipe: Connection) -> None:
    try:
        kind = engine_class(target)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        before, begin = _resident(), perf_counter()
        engine = kind(tokens)
        pipe.send(Ready(perf_counter() - begin, _resident() - before))
    except Exception as error:  # missing or incompatible packages raise arbitrary exceptions
        pipe.send(f"{type(error).__name__}: {error}")
        return
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send((measure(engine, case), _resident()))


def _resident() -> int:
    """Return the resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()

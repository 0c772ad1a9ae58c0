"""Faithful sampling: outputs from the distribution of the model, given that the constraint allows them.

A mask at every step keeps outputs in the language of a constraint, but shifts their distribution: where the model gives
little to the allowed tokens, it is made to take one of them as if it were sure. Sequential Monte Carlo corrects that.
The particles of a request, which run in one batch, carry weights::

    weight of a particle = product over its tokens of  sum of p(token | text so far) over the allowed tokens

so that weighted particles stand for the distribution of the model over complete outputs (Lew et al. 2023, Loula et al.
2025). Where few particles have most of the weight, all are resampled: likely ones are forked, and unlikely ones end.
``lineage.py`` says how few particles go a long way. Adaptive weighted rejection sampling (Lipkin et
al. 2025) estimates the sum from the tokens that a constraint accepts; here masks are known, so it is exact, which is
the estimate of the least variance.

Forks share the full pages of the KV cache, and copy the last one. The pages of all particles are reserved when the
request starts, so a fork never has to wait for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from constrain.errors import DeadEnd, NoTokenLeft
from constrain.runtime.decode_loop import Outcome
from constrain.runtime.outputs import Finish, Output, Update
from constrain.runtime.page_allocator import PageAllocator, pages_of
from constrain.runtime.request import Request
from constrain.runtime.sequence import SequenceState
from constrain.runtime.smc.lineage import Lineage, apportion, random_number, seeds_of

#: Share of the particles below which their effective number leads to resampling.
_MIN_EFFECTIVE = 0.5


class Particles:
    """The particles of all faithful requests that run."""

    def __init__(self, allocator: PageAllocator) -> None:
        self._allocator = allocator
        self._groups: dict[SequenceState, _Group] = {}

    def step(
        self, ready: Sequence[SequenceState], decode: Callable[[Sequence[SequenceState]], list[Outcome]]
    ) -> list[Outcome]:
        """Decode sequences, with the particles of faithful requests in place of their sequences.

        Args:
            ready: the sequences, whose prompts are cached.
            decode: decodes sequences, and returns the outcomes.

        Returns:
            The outcomes; of a faithful request, only the last.
        """
        leaders = [each for each in ready if each.request.faithful]
        if not leaders:
            return decode(ready)
        outcomes = self._begin(leaders)
        owners = {member: self._groups[leader] for leader in leaders for member in self._groups[leader].members}
        others = [each for each in ready if not each.request.faithful]
        for sequence, update in decode([*others, *(each for each in owners if each.finish is None)]):
            if sequence in owners:
                owners[sequence].outputs[sequence].add(update)
            else:
                outcomes.append((sequence, update))
        running = [leader for leader in leaders if leader.finish is None]
        ends = [(leader, leader.guarded(self._groups[leader].advance)) for leader in running]
        return outcomes + [(leader, update) for leader, update in ends if update is not None]

    def drop(self, sequence: SequenceState) -> None:
        """End the particles of a sequence, if it has any."""
        group = self._groups.pop(sequence, None)
        if group is not None:
            group.drop(group.members)

    def _begin(self, leaders: Sequence[SequenceState]) -> list[Outcome]:
        new = [leader for leader in leaders if leader not in self._groups]
        for leader in new:
            self._groups[leader] = _Group(leader, self._allocator)
        ends = [(leader, leader.guarded(self._groups[leader].begin)) for leader in new]
        return [(leader, update) for leader, update in ends if update is not None]


class _Group:
    """The particles of a request.

    Attributes:
        members: the particles.
        outputs: the output of each.
    """

    def __init__(self, leader: SequenceState, allocator: PageAllocator) -> None:
        """
        Args:
            leader: the sequence of the request, which holds the prompt and the pages, and is not decoded itself.
            allocator: copies pages.
        """
        self.members: list[SequenceState] = []
        self.outputs: dict[SequenceState, Output] = {}
        self._leader, self._allocator = leader, allocator
        self._seed = self._num_resampled = 0

    def begin(self) -> Update | None:
        """Fork the first particles; return an update if the constraint fails."""
        leader, request = self._leader, self._leader.request
        failed = leader.begin()
        if failed is not None:
            return failed
        self._num_pages = pages_of(len(leader), leader.max_new_tokens, self._allocator.page_size)
        self._seed, *seeds = seeds_of(request.seed, 1 + request.particles)
        self._requests = [replace(request, seed=seed) for seed in seeds]
        first = leader.fork(self._requests[0], leader.rows[0].block_table[: self._num_pages])
        self.members, self.outputs = [first] * request.particles, {first: Output()}
        self._fork([request.particles] + [0] * (request.particles - 1))
        lineage = Lineage(0.0)
        for each in self.members:
            each.join(lineage)
        return None

    def advance(self) -> Update | None:
        """Resample if the weights have become uneven; return the last update once all particles have ended."""
        self._check()
        log_weights = np.array([_lineage(each).log_weight for each in self.members])
        greatest = float(np.max(log_weights))
        if greatest == -math.inf:
            raise NoTokenLeft("no particle has completed an output that the constraint allows")
        if all(each.finish is not None for each in self.members):
            for each, log_weight in zip(self.members, log_weights.tolist(), strict=True):
                self.outputs[each].log_weight = log_weight
            return Update(finish=Finish("particles"), particles=[self.outputs[each] for each in self.members])
        weights = np.exp(log_weights - greatest)
        log_total = greatest + math.log(weights.sum())
        shares = weights / weights.sum()
        if self._is_uneven(shares):
            self._resample(shares, log_total)
        return None

    def drop(self, members: Iterable[SequenceState]) -> None:
        """End particles, whose pages are used for others from now on."""
        for each in members:
            each.rows[0].block_table = ()
            each.constraint.close()

    def _check(self) -> None:
        """Raise the error of a particle that failed, and give those that cannot be completed the weight 0."""
        for each in self.members:
            error = None if each.finish is None else each.finish.error
            if error is not None and not isinstance(error, (DeadEnd, NoTokenLeft)):
                raise error
            if each.finish is not None and each.request.constraint is not None and not each.is_complete:
                _lineage(each).fail()

    def _is_uneven(self, shares: npt.NDArray[np.float64]) -> bool:
        """Return whether particles that have not ended stand for too much: one for others, or all together."""
        running = shares[[each.finish is None for each in self.members]]
        total, fair = running.sum(), running.sum() * len(shares)
        return bool(
            total**2 < _MIN_EFFECTIVE * len(running) * (running**2).sum() or len(running) < _MIN_EFFECTIVE * fair
        )

    def _resample(self, shares: npt.NDArray[np.float64], log_total: float) -> None:
        """Replace particles, so that the number of those that have not ended is in proportion to their weight."""
        lineages = [_lineage(each) for each in self.members]
        number = random_number(self._seed, self._num_resampled)
        self._num_resampled += 1
        copies, weights = apportion(lineages, shares, [each.finish is not None for each in self.members], number)
        self._fork(copies)
        fresh = {old: Lineage(log_total + math.log(weight)) for old, weight in weights.items()}
        for each in self.members:
            each.join(fresh[_lineage(each)])
            each.epoch += 1  # forks lag behind tokens in flight, which are sampled again

    def _fork(self, copies: Sequence[int]) -> None:
        """Replace particles: ``copies[i]`` of them become particle ``i``, or a fork of it."""
        old, kept = self.members, [each for each, count in zip(self.members, copies, strict=True) if count]
        self.drop(each for each in old if each not in kept)
        used = {page for each in kept for page in each.rows[0].block_table}
        free = [page for page in self._leader.rows[0].block_table if page not in used]
        forked = [each for each, count in zip(old, copies, strict=True) for _ in range(count - 1)]
        pages: list[tuple[int, int]] = []
        self.members = [
            each if count else self._forked(forked.pop(), request, free, pages)
            for each, count, request in zip(old, copies, self._requests, strict=True)
        ]
        self.outputs = {each: self.outputs[each] for each in self.members}
        longest = max(len(each) for each in kept)
        length = min(longest, self._allocator.page_size)
        self._allocator.copy([source for source, _ in pages], [target for _, target in pages], length)

    def _forked(
        self, ancestor: SequenceState, request: Request, free: list[int], pages: list[tuple[int, int]]
    ) -> SequenceState:
        """Fork a particle, on free pages after those that are full; a page that is not is to be copied."""
        table: list[int] = []
        if ancestor.finish is None:
            before = ancestor.rows[0].block_table
            whole, rest = divmod(len(ancestor) - 1, self._allocator.page_size)
            table = [*before[:whole], *(free.pop() for _ in range(self._num_pages - whole))]
            if rest:
                pages.append((before[whole], table[whole]))
        fork = ancestor.fork(request, table)
        output = self.outputs[ancestor]
        self.outputs[fork] = Output(output.text, list(output.tokens), output.finish)
        return fork


def _lineage(particle: SequenceState) -> Lineage:
    assert particle.lineage is not None
    return particle.lineage

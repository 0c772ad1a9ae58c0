"""Speculative decoding at acceptance rates of 100% and 0%, compared with the same outputs without drafts.

All drafts are accepted for

- n-grams, if a filter forces the output to repeat the prompt;
- a draft model under that filter, since drafts obey it too;
- a draft model without a filter, by replacing its tokens: the output, sampled from few tokens at a temperature that
  makes them equally likely, depends on the seed alone, so a run without drafts reveals it. The draft model's forward
  passes still run.

None are accepted for n-grams if tokens repeat but no pair of adjacent tokens does, and for a draft model with random
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from constrain.bench.doors.filters import Fixed
from constrain.bench.doors.lab import Door, Lab, Runs
from constrain.bench.doors.plain import Dynamic
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import ExLlamaV2, ExLlamaV2Cache
from constrain.runtime import SequenceState
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.runtime.speculative.draft_model import DraftModel

_DRAFTED = 4
_NGRAM = {"use_ngram_draft": True, "num_draft_tokens": _DRAFTED}
#: Target speedups if all drafts are accepted: n-grams at one sequence and at several, a draft model at one.
WANTED_NGRAM, WANTED_NGRAM_BATCH, WANTED_MODEL = 3.0, 2.0, 2.0
#: Target ratios to the rate without drafts if none are accepted.
WANTED_NGRAM_REFUSED, WANTED_MODEL_REFUSED = 0.90, 0.80
_SEVERAL = 8
#: Number of equally likely tokens, and the temperature that makes them so.
_CHOICES, _HEAT = 16, 1000.0


def speculation_doors(lab: Lab, draft: Callable[[], ExLlamaV2] | None) -> Iterator[Door]:
    """Yield doors of n-gram drafts, and of a draft model if there is one."""
    yield Door("n-gram draft, all accepted", 1, WANTED_NGRAM, partial(_forced_ngrams, lab, 1))
    yield Door("n-gram draft, all accepted", _SEVERAL, WANTED_NGRAM_BATCH, partial(_forced_ngrams, lab, _SEVERAL))
    yield Door("n-gram draft, none accepted", 1, WANTED_NGRAM_REFUSED, partial(_unrepeated, lab))
    if draft is not None:
        yield Door("draft model, all accepted", 1, WANTED_MODEL, partial(_accepted_drafts, lab, draft))
        yield Door("draft model under a filter, all accepted", 1, WANTED_MODEL, partial(_forced_drafts, lab, draft))
        yield Door("draft model, none accepted", 1, WANTED_MODEL_REFUSED, partial(_refused_drafts, lab, draft))


class Drafting:
    """A pair of generators, with and without drafts, that run the same jobs."""

    def __init__(self, lab: Lab, batch: int, prompt: int, **options: Any) -> None:
        """
        Args:
            lab: has the model.
            batch: batch size.
            prompt: tokens of each prompt.
            options: arguments that make a generator draft.
        """
        self._lab, self._batch = lab, batch
        self._positions = lab.positions(batch, prompt + lab.forced_tokens + _DRAFTED + 1)
        if "draft_model" in options:
            options["draft_cache"] = ExLlamaV2Cache(options["draft_model"], max_seq_len=self._positions)
        self.plain, self.drafting = self._generator(), self._generator(**options)
        self._notes: dict[str, Any] = {}

    def runs(self, make_job: Callable[[int], ExLlamaV2DynamicJob]) -> Runs:
        """Return runs of the same jobs on both generators."""
        self.plain.rate(make_job)
        return Runs(partial(self._rate, make_job), partial(self.plain.rate, make_job), self._notes)

    def _generator(self, **options: Any) -> Dynamic:
        cache = ExLlamaV2Cache(self._lab.model, max_seq_len=self._positions)
        generator = ExLlamaV2DynamicGenerator(
            self._lab.model, cache, self._lab.tokenizer, max_batch_size=self._batch, **options
        )
        return Dynamic(generator, self._batch)

    def _rate(self, make_job: Callable[[int], ExLlamaV2DynamicJob]) -> float:
        jobs: list[ExLlamaV2DynamicJob] = []

        def make(number: int) -> ExLlamaV2DynamicJob:
            jobs.append(make_job(number))
            return jobs[-1]

        rate = self.drafting.rate(make)
        accepted = sum(job.accepted_draft_tokens for job in jobs)
        drafted = accepted + sum(job.rejected_draft_tokens for job in jobs)
        self._notes |= {"drafted": drafted, "accepted": accepted}
        return rate


def _prompt_that_comes_again(lab: Lab) -> torch.Tensor:
    text = " ".join(f"item {i} costs {i * 7 % 13} and weighs {i * 11 % 17} grams;" for i in range(14))
    return lab.tokenizer.encode(text)[:, : lab.forced_tokens]


def _forced(lab: Lab, ids: torch.Tensor, number: int) -> ExLlamaV2DynamicJob:
    """Create a job whose output repeats its prompt."""
    filters = [Fixed(lab.model, lab.tokenizer, ids[0].tolist())]
    return lab.job(number, input_ids=ids, max_new_tokens=lab.forced_tokens, filters=filters)


def _forced_ngrams(lab: Lab, batch: int) -> Runs:
    ids = _prompt_that_comes_again(lab)
    return Drafting(lab, batch, ids.shape[1], **_NGRAM).runs(partial(_forced, lab, ids))


def _forced_drafts(lab: Lab, draft: Callable[[], ExLlamaV2]) -> Runs:
    ids = _prompt_that_comes_again(lab)
    drafting = Drafting(lab, 1, ids.shape[1], draft_model=draft(), num_draft_tokens=_DRAFTED)
    return drafting.runs(partial(_forced, lab, ids))


def _refused_drafts(lab: Lab, draft: Callable[[], ExLlamaV2]) -> Runs:
    drafting = Drafting(lab, 1, lab.prompt, draft_model=draft(), num_draft_tokens=_DRAFTED)
    return drafting.runs(partial(lab.job, max_new_tokens=lab.forced_tokens))


def _unrepeated(lab: Lab) -> Runs:
    """Measure n-gram drafts on an output in which no pair of adjacent tokens repeats, so that all are rejected."""
    ids = [lab.word_ids[place] for place in never_again(lab.prompt + lab.forced_tokens)]
    prompt = torch.tensor([ids[: lab.prompt]])

    def job(number: int) -> ExLlamaV2DynamicJob:
        filters = [Fixed(lab.model, lab.tokenizer, ids[lab.prompt :])]
        return lab.job(number, input_ids=prompt, max_new_tokens=lab.forced_tokens, filters=filters)

    return Drafting(lab, 1, lab.prompt, **_NGRAM).runs(job)


def never_again(count: int) -> list[int]:
    """Return ``count`` numbers, few of them distinct, in which no ordered pair of neighbours occurs twice."""
    prime = next(n for n in range(2, count + 3) if n * (n - 1) >= count and all(n % d for d in range(2, n)))
    # Cycle through the residues in steps of 1, then in steps of 2, and so on; each cycle starts at 0.
    return [place * step % prime for step in range(1, prime) for place in range(prime)][:count]


def _accepted_drafts(lab: Lab, draft: Callable[[], ExLlamaV2]) -> Runs:
    """Measure a draft model without a filter whose drafts are all accepted."""
    drafting = Drafting(lab, 1, lab.prompt, draft_model=draft(), num_draft_tokens=_DRAFTED)
    bias = torch.full((lab.model.config.padded_vocab_size,), -torch.inf)
    bias[lab.word_ids[:_CHOICES]] = 0.0
    settings = ExLlamaV2Sampler.Settings(
        temperature=_HEAT, top_k=_CHOICES, top_p=0.0, token_repetition_penalty=1.0, token_bias=bias
    )
    prompt = lab.prompt_ids()
    job = partial(lab.job, settings=settings, input_ids=prompt, max_new_tokens=lab.forced_tokens)
    known = {0: _tokens(drafting.plain, job(0), lab.prompt)}
    runtime = drafting.drafting.generator.runtime
    assert isinstance(runtime.speculation.proposer, DraftModel)
    runner = runtime.speculation.proposer.runner
    runtime.speculation.proposer = RightDrafts(
        runner.model, runner.cache, PAGED_PAGE_SIZE, lab.vocabulary, _DRAFTED, known, lab.prompt
    )
    return drafting.runs(job)


def _tokens(dynamic: Dynamic, job: ExLlamaV2DynamicJob, prompt: int) -> list[int]:
    """Run a job and return its output tokens."""
    dynamic.rate(lambda _: job)
    return job.sequences[0].tokens(prompt)


class RightDrafts(DraftModel):
    """A draft model that runs its forward passes, but proposes the tokens of known outputs."""

    def __init__(
        self,
        model: ExLlamaV2,
        cache: Any,
        page_size: int,
        width: int,
        num_tokens: int,
        known: Mapping[int, Sequence[int]],
        prompt: int,
    ) -> None:
        """
        Args:
            model, cache, page_size, width, num_tokens: as for :class:`DraftModel`.
            known: outputs by the seeds of their requests.
            prompt: tokens of each prompt.
        """
        super().__init__(model, cache, page_size, width, num_tokens)
        self._known, self._prompt = known, prompt

    def propose(self, sequences: Sequence[SequenceState], limits: Sequence[int]) -> list[list[int]]:
        drafted = super().propose(sequences, limits)
        return [self._right(each, len(tokens)) for each, tokens in zip(sequences, drafted, strict=True)]

    def _right(self, sequence: SequenceState, count: int) -> list[int]:
        start = len(sequence) - self._prompt
        return list(self._known[sequence.request.seed][start : start + count])

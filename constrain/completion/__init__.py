"""Completions of prompts: options, submission as requests, and results, blocking, asynchronous or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.lazy import lazy_names

if TYPE_CHECKING:
    from constrain.completion.inputs import Inputs
    from constrain.completion.many import Failure, arun_many, asuccesses, run_many, successes
    from constrain.completion.options import Options
    from constrain.completion.pending import Pending, PendingResult
    from constrain.completion.result import Completion, FinishReason, TokenLogprobs
    from constrain.completion.rounds import PendingRounds, Rounds, submit_all
    from constrain.completion.stream import AsyncStream, Stream, submitted
    from constrain.completion.submission import encode, fresh_filters, runtime_of, submit, submit_faithful
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "constrain.completion.inputs": ["Inputs"],
            "constrain.completion.many": ["Failure", "arun_many", "asuccesses", "run_many", "successes"],
            "constrain.completion.options": ["Options"],
            "constrain.completion.pending": ["Pending", "PendingResult"],
            "constrain.completion.result": ["Completion", "FinishReason", "TokenLogprobs"],
            "constrain.completion.rounds": ["PendingRounds", "Rounds", "submit_all"],
            "constrain.completion.stream": ["AsyncStream", "Stream", "submitted"],
            "constrain.completion.submission": ["encode", "fresh_filters", "runtime_of", "submit", "submit_faithful"],
        },
    )

__all__ = [
    "AsyncStream",
    "Completion",
    "Failure",
    "FinishReason",
    "Inputs",
    "Options",
    "Pending",
    "PendingResult",
    "PendingRounds",
    "Rounds",
    "Stream",
    "TokenLogprobs",
    "arun_many",
    "asuccesses",
    "encode",
    "fresh_filters",
    "run_many",
    "runtime_of",
    "submit",
    "submit_all",
    "submit_faithful",
    "submitted",
    "successes",
]

"""Completions of prompts: options, submission as requests, and results, blocking, asynchronous or streamed."""

from constrain.completion.many import Failure, arun_many, run_many
from constrain.completion.options import Options
from constrain.completion.pending import Pending
from constrain.completion.result import Completion, FinishReason, TokenLogprobs
from constrain.completion.stream import AsyncStream, Stream, submitted
from constrain.completion.submit import encode, fresh_filters, runtime_of, submit

__all__ = [
    "AsyncStream",
    "Completion",
    "Failure",
    "FinishReason",
    "Options",
    "Pending",
    "Stream",
    "TokenLogprobs",
    "arun_many",
    "encode",
    "fresh_filters",
    "run_many",
    "runtime_of",
    "submit",
    "submitted",
]

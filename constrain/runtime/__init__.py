"""The inference runtime: scheduling, paged KV cache, decode graphs, constrained sampling, speculative decoding."""

from constrain.runtime.events import Output
from constrain.runtime.handle import Handle
from constrain.runtime.request import Request
from constrain.runtime.runtime import Event, Runtime
from constrain.runtime.sampler.params import SamplingParams
from constrain.runtime.sequence import SequenceState

__all__ = ["Event", "Handle", "Output", "Request", "Runtime", "SamplingParams", "SequenceState"]

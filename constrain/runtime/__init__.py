"""The inference runtime: scheduling, paged KV cache, decode graphs, constrained sampling, speculative decoding.

A step is ``Runtime.step`` in ``runtime.py``; ``decode_loop.py`` lists the files of its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.lazy import lazy_names

if TYPE_CHECKING:
    from constrain.runtime.handle import Handle
    from constrain.runtime.outputs import Output
    from constrain.runtime.request import Request
    from constrain.runtime.runtime import Event, Runtime
    from constrain.runtime.sampler.params import SamplingParams
    from constrain.runtime.sequence import SequenceState
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "constrain.runtime.outputs": ["Output"],
            "constrain.runtime.handle": ["Handle"],
            "constrain.runtime.request": ["Request"],
            "constrain.runtime.runtime": ["Event", "Runtime"],
            "constrain.runtime.sampler.params": ["SamplingParams"],
            "constrain.runtime.sequence": ["SequenceState"],
        },
    )

__all__ = ["Event", "Handle", "Output", "Request", "Runtime", "SamplingParams", "SequenceState"]

"""Extraction on many machines with Ray: in the batches of a Ray dataset, or as a run with workers."""

try:
    import ray  # noqa: F401  # the extra is named here, once
except ImportError as error:
    raise ImportError("constrain.integrations.ray needs Ray: pip install 'constrain-lm[ray]'") from error

from constrain.integrations.ray.dataset import Extractor
from constrain.integrations.ray.workers import Workers

__all__ = ["Extractor", "Workers"]

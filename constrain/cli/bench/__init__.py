"""``constrain bench``: benchmarks of constraint engines and of inference."""

from constrain.cli.bench import kernels, masks, models, runtime
from constrain.cli.bench.group import bench

__all__ = ["bench", "kernels", "masks", "models", "runtime"]

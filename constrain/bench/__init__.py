"""Benchmarks of inference, and of constraint engines: ours and others on the same cases in one run."""

"""constrain as the structured output back end of vLLM.

vLLM calls :func:`register` in each of its processes, through the entry point ``vllm.general_plugins``.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Take the place of the back ends ``auto`` and ``guidance``; to be called any number of times."""
    from constrain_vllm.install import install

    install()

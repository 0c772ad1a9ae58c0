"""Retrieval of documents that a JSON Schema refers to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from constrain.arguments import refused

if TYPE_CHECKING:
    from referencing import Registry


def retriever(registry: Registry[Any] | None) -> Callable[[str], Any]:
    """Return a function from the URI of a document to its contents, or to ``None`` if it is not found.

    It looks in the registry, then among the documents of the JSON Schema specification. Nothing is fetched unless the
    registry itself does so.

    Raises:
        ArgumentError: the argument is not a registry.
    """
    if registry is not None and not hasattr(registry, "get_or_retrieve"):
        raise refused("registry", registry, "a referencing.Registry")

    def retrieve(uri: str) -> Any:
        from jsonschema_specifications import REGISTRY
        from referencing.exceptions import NoSuchResource, Unretrievable

        for source in (registry, REGISTRY):
            if source is None:
                continue
            try:
                return source.get_or_retrieve(uri).value.contents
            except (NoSuchResource, Unretrievable):
                continue
        return None

    return retrieve

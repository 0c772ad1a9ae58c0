"""Responses that later requests continue, in the memory of the server."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from constrain.serve.errors import APIError
from constrain.serve.protocol.chat import Message


@dataclass(frozen=True)
class StoredResponse:
    """A response, and the conversation that it ends.

    Attributes:
        resource: the response as clients see it.
        messages: the conversation, the response included, without the instructions of its requests.
        items: what was asked, as clients see it, with all that came before.
        size: number of characters that it counts for.
    """

    resource: dict[str, Any]
    messages: Sequence[Message]
    items: Sequence[Mapping[str, Any]]
    size: int


class StoredResponses:
    """The latest responses, by id; the oldest are forgotten first.

    Whoever knows the id of a response may continue it; ids cannot be guessed.
    """

    def __init__(self, max_characters: int) -> None:
        """``max_characters``: most characters of all conversations together; 0: none is stored."""
        self._left = self.max_characters = max_characters
        self._by_id: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[str, Mapping[str, Any]] = {}
        self._lock = Lock()

    def put(
        self, resource: dict[str, Any], messages: Sequence[Message], items: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Store a response; no-op if it alone is too large."""
        size = sum(len(str(each)) for each in (resource, *items))
        size += sum(len(message.model_dump_json(exclude_none=True)) for message in messages)
        if size > self.max_characters:
            return
        with self._lock:
            self._by_id[resource["id"]] = StoredResponse(resource, tuple(messages), tuple(items), size)
            self._items |= _items(resource)
            self._left -= size
            while self._left < 0:
                _, oldest = self._by_id.popitem(last=False)
                self._forget(oldest)

    def find(self, id: str, param: str | None = None, status: int = 404) -> StoredResponse:
        """Return a response.

        Raises:
            APIError: there is none with this id; with ``param`` and ``status``.
        """
        with self._lock:
            found = self._by_id.get(id)
        if found is None:
            raise _unknown("response", id, param, status)
        return found

    def find_item(self, id: str, param: str) -> Mapping[str, Any]:
        """Return an item of the output of a response.

        Raises:
            APIError: there is none with this id; with ``param``.
        """
        with self._lock:
            found = self._items.get(id)
        if found is None:
            raise _unknown("item", id, param, 400)
        return found

    def delete(self, id: str) -> None:
        """Forget a response.

        Raises:
            APIError: there is none with this id.
        """
        with self._lock:
            found = self._by_id.pop(id, None)
            if found is not None:
                self._forget(found)
        if found is None:
            raise _unknown("response", id, None, 404)

    def _forget(self, response: StoredResponse) -> None:
        self._left += response.size
        for id in _items(response.resource):
            self._items.pop(id, None)


def _items(resource: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {item["id"]: item for item in resource.get("output", ())}


def _unknown(what: str, id: str, param: str | None, status: int) -> APIError:
    message = f"there is no {what} {id!r}: this server does not store it, or has forgotten it"
    place = f"{param}: " if param else ""
    return APIError(f"{place}{message}", status=status, param=param, code=f"{what}_not_found")

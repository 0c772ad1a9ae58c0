"""``GET /v1/responses/{id}/input_items``: what a response was asked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field

from constrain.serve.endpoints.queries import Query
from constrain.serve.errors import APIError
from constrain.serve.protocol.responses import Item, MessageItem

_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}


class Paging(Query):
    """Which items of a list are asked for: parameters of the address."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"

    def page(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the items that are asked for, of all in their order.

        Raises:
            APIError: there is no item to begin after.
        """
        ordered = [*items] if self.order == "asc" else [*reversed(items)]
        ids = [item["id"] for item in ordered]
        if self.after is not None and self.after not in ids:
            raise APIError(f"after: there is no item {self.after!r}", param="after", code="invalid_value")
        start = 0 if self.after is None else ids.index(self.after) + 1
        found = ordered[start : start + self.limit]
        first, last = (found[0]["id"], found[-1]["id"]) if found else (None, None)
        has_more = start + self.limit < len(ordered)
        return {"object": "list", "data": found, "first_id": first, "last_id": last, "has_more": has_more}


def shown_item(item: Item) -> dict[str, Any]:
    """Return an item of a request as clients see it: with an id, a status, and the parts of its content."""
    shown = item.model_dump(exclude_none=True)
    if isinstance(item, MessageItem):
        shown["content"] = _content(item)
    return {"id": f"{_PREFIXES[item.type]}_{uuid4().hex}", "status": "completed", **shown}


def _content(item: MessageItem) -> list[dict[str, Any]]:
    kind = "output_text" if item.role == "assistant" else "input_text"
    if isinstance(item.content, str):
        return [_text(kind, {"text": item.content})]
    parts = [part.model_dump(exclude_none=True) for part in item.content]
    return [_text(kind, part) if "text" in part else {**_DEFAULTS.get(part["type"], {}), **part} for part in parts]


_DEFAULTS: dict[str, dict[str, Any]] = {"input_image": {"detail": "auto"}}


def _text(kind: str, part: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "input_text":
        return {"type": kind, "text": part["text"]}
    return {"annotations": [], "logprobs": [], **part, "type": kind}

"""``constrain serve``: keys, and requests that a stopping server ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner

from constrain.cli import serve as command


@pytest.mark.parametrize(
    ("arguments", "environment", "keys"),
    [
        ([], {"CONSTRAIN_API_KEY": "k1 k2"}, ("k1 k2",)),
        ([], {"CONSTRAIN_API_KEY": ""}, ()),
        (["--api-key", "a b", "--api-key", "c"], {"CONSTRAIN_API_KEY": "d"}, ("a b", "c")),
    ],
)
def test_a_key_of_the_environment_is_one(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], keys: tuple[str, ...]
) -> None:
    found: list[Any] = []

    def models(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(command, "_models", models)
    callback = command.serve.callback
    monkeypatch.setattr(command.serve, "callback", lambda **given: found.append(given["api_keys"]) or callback(**given))
    CliRunner().invoke(command.serve, arguments, env=environment)
    assert found == [keys]


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_server_ends_its_requests_before_it_cuts_them_off(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    ended = asyncio.Event()

    class Requests:
        def end(self) -> None:
            ended.set()

    async def shutdown(self: uvicorn.Server, sockets: Any = None) -> None:
        await asyncio.wait_for(ended.wait(), 30)

    monkeypatch.setattr(uvicorn.Server, "shutdown", shutdown)
    config = uvicorn.Config("app", timeout_graceful_shutdown=seconds)
    asyncio.run(command.stopping_server(config, Requests()).shutdown())  # type: ignore[arg-type]

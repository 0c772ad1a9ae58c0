"""Scripts of pages in browsers, which ask whether they may read responses."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from constrain.cli import serve as command
from constrain.errors import ArgumentError
from constrain.serve import Models, ServerSettings, create_app

PAGE = "http://localhost:3000"
ALLOWED = "access-control-allow-origin"


def client(*origins: str) -> TestClient:
    return TestClient(create_app(Models(), ServerSettings(api_keys=("secret",), allowed_origins=origins)))


def preflight(made: TestClient, origin: str) -> tuple[int, str | None]:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    asked = "authorization,content-type,x-stainless-lang"
    answer = made.options("/v1/chat/completions", headers={**headers, "Access-Control-Request-Headers": asked})
    assert answer.status_code != 200 or answer.headers["access-control-allow-headers"] == asked
    return answer.status_code, answer.headers.get(ALLOWED)


def test_pages_of_allowed_origins_may_use_the_server() -> None:
    made = client(PAGE, "https://example.com")
    assert preflight(made, PAGE) == (200, PAGE)
    assert preflight(made, "https://evil.example") == (400, None)
    for key, status in (("secret", 200), ("wrong", 401)):  # browsers hide errors without the header
        answer = made.get("/v1/models", headers={"Origin": PAGE, "Authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.headers[ALLOWED]) == (status, PAGE)
    answer = made.get("/v1/models", headers={"Origin": "https://evil.example", "Authorization": "Bearer secret"})
    assert ALLOWED not in answer.headers


def test_all_origins_or_none_may_be_allowed() -> None:
    assert preflight(client("*"), "https://any.example") == (200, "*")
    assert preflight(client(), PAGE) == (405, None)


@pytest.mark.parametrize("origin", ["localhost:3000", f"{PAGE}/", "https://example.com/page", "https://", ""])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ArgumentError, match="is no origin"):
        ServerSettings(allowed_origins=(origin,))
    result = CliRunner().invoke(command.serve, ["--allow-origin", origin])
    assert isinstance(result.exception, ArgumentError)

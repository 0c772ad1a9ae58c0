"""Images in messages of clients: by data: URL on every endpoint, by address only where that is allowed and public."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from ipaddress import ip_address
from typing import Any, ClassVar

import httpx
import pytest
from PIL import Image
from starlette.applications import Starlette

from constrain import LLM
from constrain.serve import Models, ServerSettings, create_app, fetch
from constrain.serve.fetch import FetchError, is_public

SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["total"],
    "additionalProperties": False,
}


def png(colour: str = "red", size: tuple[int, int] = (24, 16)) -> bytes:
    written = BytesIO()
    Image.new("RGB", size, colour).save(written, "PNG")
    return written.getvalue()


def url(content: bytes) -> str:
    return f"data:image/png;base64,{b64encode(content).decode()}"


@pytest.fixture(scope="module")
def app(llm: LLM, seeing: LLM) -> Starlette:
    settings = ServerSettings(max_images=2, max_image_pixels=4000, max_image_bytes=2000)
    return create_app(Models.of({"constrain": llm, "seeing": seeing}), settings)


def post(app: Starlette, path: str, body: dict[str, Any]) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=60) as client:
            return await client.post(path, json={"model": "seeing", "seed": 1, **body})

    return asyncio.run(main())


def chat(*urls: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": each, "detail": "low"}} for each in urls]
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "Is it?"}, *parts]}], "max_tokens": 8}


def responses(*urls: str) -> dict[str, Any]:
    parts = [{"type": "input_image", "image_url": each} for each in urls]
    return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Is it?"}, *parts]}]}


def test_the_same_prompt_on_every_endpoint(app: Starlette, seeing: LLM) -> None:
    """Prompts of clients are those of ``LLM.generate`` for the same messages."""
    asked = chat(url(png()), url(png("blue")))
    prompt, _ = seeing.encode_prompt(asked["messages"])
    found = post(app, "/v1/chat/completions", {**asked, "regex": "[a-z]{4}"}).json()
    assert found["usage"]["prompt_tokens"] == prompt.shape[1]
    again = post(app, "/v1/responses", {**responses(url(png()), url(png("blue"))), "regex": "[a-z]{4}"}).json()
    assert again["usage"]["input_tokens"] == prompt.shape[1]
    assert again["output"][0]["content"][0]["text"] == found["choices"][0]["message"]["content"]


def test_a_response_with_an_image_is_continued(app: Starlette) -> None:
    first = post(app, "/v1/responses", {**responses(url(png())), "regex": "yes"}).json()
    more = {"previous_response_id": first["id"], "regex": "[a-z]{3}"}
    second = post(app, "/v1/responses", {"input": "And now?", **more}).json()
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 6
    refused = post(app, "/v1/responses", {"model": "constrain", "input": "And now?", **more})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "/previous_response_id"), refused.text


def test_a_record_of_an_image(app: Starlette, seeing: LLM) -> None:
    found = post(app, "/v1/extract", {"image": url(png()), "schema": SCHEMA})
    assert found.json()["record"] == seeing.extract(SCHEMA, Image.new("RGB", (24, 16), "red")).json


LARGE = "an image of 100 by 50 pixels; at most 4,000 are read"
CHAT, RESPONSES, EXTRACT = "chat/completions", "responses", "extract"
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (CHAT, chat(url(png()[:60])), "/messages/0/content/1/image_url/url", "a broken image"),
    (CHAT, chat("data:image/png;base64,###"), "/messages/0/content/1/image_url/url", "not base64"),
    (CHAT, chat(url(b"<svg/>")), "/messages/0/content/1/image_url/url", "no image that can be read"),
    (CHAT, chat(url(png(size=(100, 50)))), "/messages/0/content/1/image_url/url", LARGE),
    (CHAT, chat(*[url(png())] * 3), "/messages/0/content/3", "a request has at most 2 images"),
    (CHAT, chat("https://example.org/a.png"), "/messages/0/content/1/image_url/url", "fetches no images"),
    (CHAT, chat("file:///etc/passwd"), "/messages/0/content/1/image_url/url", "fetches no images"),
    (CHAT, {"model": "constrain", **chat(url(png()))}, "/messages/0/content/1/type", "reads texts and documents only"),
    (RESPONSES, responses(url(png()[:60])), "/input/0/content/1/image_url", "a broken image"),
    (RESPONSES, responses("http://example.org/a.png"), "/input/0/content/1/image_url", "fetches no images"),
    (RESPONSES, {"model": "constrain", **responses(url(png()))}, "/input/0/content/1/type", "no images"),
    (
        RESPONSES,
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]},
        "/input/0/content/0/image_url",
        "not by an id",
    ),
    (
        RESPONSES,
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": b64encode(png()).decode()}]}]},
        "/input/0/content/0/file_data",
        "images are parts of their own",
    ),
    (EXTRACT, {"image": url(png()[:60]), "schema": SCHEMA}, "/image", "a broken image"),
    (EXTRACT, {"image": url(png()), "document": "a", "schema": SCHEMA}, "/image", "give one"),
    (EXTRACT, {"model": "constrain", "image": url(png()), "schema": SCHEMA}, "/image", "no images"),
]


@pytest.mark.parametrize(("path", "body", "param", "message"), REFUSED)
def test_what_cannot_be_seen_is_refused(
    app: Starlette, path: str, body: dict[str, Any], param: str, message: str
) -> None:
    refused = post(app, f"/v1/{path}", body)
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert error["param"] == param
    assert message in error["message"]


# Addresses


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("::ffff:100.64.0.1", False),
        ("::ffff:224.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_public_addresses(address: str, expected: bool) -> None:
    assert is_public(ip_address(address)) is expected


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://localhost/a.png", "not at a public address"),
        ("http://127.1/a.png", "not at a public address"),
        ("http://[::1]/a.png", "not at a public address"),
        ("http://2130706433/a.png", "not at a public address"),
        ("http://a:b@example.org/a.png", "without credentials"),
        ("ftp://example.org/a.png", "only http and https"),
        ("https:///a.png", "only http and https"),
        ("http://[::1/a.png", "cannot be fetched"),
    ],
)
def test_other_addresses_are_not_fetched(address: str, message: str) -> None:
    with pytest.raises(FetchError, match=message):
        fetch.fetch(address, 1000, 1)


class _Pages(BaseHTTPRequestHandler):
    """A picture, and addresses that lead elsewhere."""

    targets: ClassVar = {
        "/moved": "/picture",
        "/inside": "http://10.0.0.1/picture",
        "/file": "file:///etc/passwd",
        "/loop": "/loop",
    }

    #: Lines that a slow answer had before it was given up.
    lines = 0

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.slowly()
            return
        target = self.targets.get(self.path)
        content = png() if self.path == "/picture" else b"x" * 3000
        self.send_response(302 if target else 404 if self.path == "/none" else 200)
        self.send_header(*(("Location", target) if target else ("Content-Length", str(len(content)))))
        self.end_headers()
        self.wfile.write(b"" if target else content)

    def slowly(self) -> None:
        with suppress(OSError):
            self.wfile.write(b"HTTP/1.0 200 OK\r\n")
            for _ in range(80):
                self.wfile.write(b"X: y\r\n")
                type(self).lines += 1
                time.sleep(0.05)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    """The address of a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def fetching(llm: LLM, seeing: LLM, monkeypatch: pytest.MonkeyPatch) -> Starlette:
    """A server that fetches images, and takes this machine for a public one."""
    monkeypatch.setattr(fetch, "is_public", lambda address: str(address) == "127.0.0.1" or is_public(address))
    settings = ServerSettings(fetch_images=True, max_image_bytes=2000)
    return create_app(Models.of({"seeing": seeing}), settings)


@pytest.mark.parametrize("path", ["/picture", "/moved"])
def test_images_are_fetched_where_that_is_allowed(fetching: Starlette, pages: str, path: str) -> None:
    found, expected = (post(fetching, "/v1/chat/completions", chat(each)) for each in (f"{pages}{path}", url(png())))
    assert json.dumps(found.json()["choices"]) == json.dumps(expected.json()["choices"])


def test_slow_answers_are_given_up(pages: str, fetching: Starlette) -> None:
    with pytest.raises(FetchError):
        fetch.fetch(f"{pages}/slow", 1000, 0.2)
    assert _Pages.lines < 80


def test_the_host_is_named_without_the_usual_port() -> None:
    for scheme, port in (("http", 80), ("https", 443)):
        connection = fetch._Pinned("example.org", port, "93.184.216.34", 1, scheme == "https")
        connection.putrequest("GET", "/", skip_accept_encoding=True)
        assert b"\r\n".join(connection._buffer).endswith(b"Host: example.org")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/inside", "10.0.0.1 is not at a public address"),
        ("/file", "only http and https"),
        ("/loop", "more than 3 redirects"),
        ("/none", "status 404"),
        ("/large", "more than 2,000 bytes"),
    ],
)
def test_redirects_and_answers_are_checked(fetching: Starlette, pages: str, path: str, message: str) -> None:
    error = post(fetching, "/v1/chat/completions", chat(f"{pages}{path}")).json()["error"]
    assert error["param"] == "/messages/0/content/1/image_url/url"
    assert message in error["message"]

"""A server of the built-in model: in the process of the tests, and behind a socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import chat_models
import httpx
import pytest
import uvicorn
from seeing_models import save_seeing_model
from starlette.applications import Starlette
from starlette.testclient import TestClient

import constrain
from constrain import LLM
from constrain.serve import Models, ServerSettings, create_app


@pytest.fixture(scope="session")
def llm() -> LLM:
    return constrain.load()


@pytest.fixture(scope="session")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """A random model with a vision tower."""
    return constrain.load(save_seeing_model(tmp_path_factory.mktemp("seeing")), images=True, max_seq_len=1024)


@pytest.fixture(scope="session")
def app(llm: LLM, seeing: LLM) -> Starlette:
    return create_app(Models.of({"constrain": llm, "seeing": seeing}), ServerSettings(api_keys=("secret",)))


@pytest.fixture(scope="session")
def url(app: Starlette) -> Iterator[str]:
    """The address of a running server."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer secret"}, timeout=60) as made:
        yield made


@pytest.fixture(scope="session")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The client of a server of a random model that thinks, ``thinker``."""
    llm = constrain.load(chat_models.CHAT_FAMILIES["qwen3"].save_model(tmp_path_factory.mktemp("thinker")))
    with TestClient(create_app(Models.of({"thinker": llm}))) as made:
        yield made

"""``constrain serve``: a server with the API of OpenAI."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from constrain.cli.heap import freeze_heap
from constrain.cli.options import GpuOptions, gpu_options

if TYPE_CHECKING:
    import uvicorn

    from constrain.serve import Models
    from constrain.serve.jobs import Server

_BUILT_IN = "constrain"
#: Connections that wait to be accepted, as uvicorn has it.
_BACKLOG = 2048
#: Requests that still run this many seconds before the shutdown time-out end with an error.
_NOTICE = 1


class _Key(click.types.StringParamType):
    """A key. That of the environment is one, whatever it contains."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv] if rv else []


@click.command()
@click.option(
    "--model",
    "model_dirs",
    multiple=True,
    metavar="[NAME=]FOLDER",
    help="A model, under the name of its folder or another; several are allowed.  [default: the built-in model]",
)
@click.option(
    "--lora",
    "loras",
    multiple=True,
    metavar="NAME=FOLDER[@MODEL]",
    help="An adapter of a model, by default of the first one; several are allowed.",
)
@gpu_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen at.")
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    envvar="CONSTRAIN_API_KEY",
    type=_Key(),
    help="Key that clients have to send; several are allowed, but one in the environment.",
)
@click.option(
    "--allow-origin",
    "allowed_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Origin of pages whose scripts may use the server in a browser, such as https://example.com, or * for all;"
    " several are allowed.",
)
@click.option("--tool-form", help="How the models write calls of functions.  [default: as their chat templates say]")
@click.option("--max-seq-len", type=click.IntRange(min=1), help="Longest prompt and answer together, in tokens.")
@click.option("--cache-tokens", type=click.IntRange(min=1), help="Size of the KV cache, in tokens.")
@click.option(
    "--max-requests",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Most outputs that run or wait; further requests are answered with 429.",
)
@click.option(
    "--max-stored-characters",
    type=click.IntRange(min=0),
    default=64 << 20,
    show_default=True,
    help="Most characters of stored responses, which later requests may continue; 0 stores none.",
)
@click.option(
    "--images/--no-images",
    default=True,
    show_default=True,
    help="Whether models that have a vision tower read images in messages.",
)
@click.option(
    "--fetch-images",
    is_flag=True,
    help="Fetch images that clients give by http and https addresses, public ones only; else as data: URLs.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=600, show_default=True, help="Most seconds for a request."
)
@click.option(
    "--shutdown-timeout",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="Most seconds to finish running requests after a signal to stop.",
)
def serve(
    model_dirs: tuple[str, ...],
    loras: tuple[str, ...],
    host: str,
    port: int,
    api_keys: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    tool_form: str | None,
    max_seq_len: int | None,
    cache_tokens: int | None,
    max_requests: int,
    max_stored_characters: int,
    images: bool,
    fetch_images: bool,
    timeout: float,
    shutdown_timeout: int,
    gpus: GpuOptions,
) -> None:
    """Serve models by the API of OpenAI.

    There are /v1/chat/completions, /v1/completions, /v1/responses, /v1/extract, /v1/models, /health and /metrics.
    Constraints of a request hold, or the request is refused.
    """
    try:
        import uvicorn

        from constrain.serve import ServerSettings, create_app
    except ImportError as error:
        raise click.ClickException(f"{error}; pip install constrain-lm[serve]") from error
    limits = ServerSettings(
        api_keys,
        max_requests,
        timeout,
        max_stored_characters=max_stored_characters,
        fetch_images=fetch_images,
        allowed_origins=allowed_origins,
    )
    models = _models(model_dirs, loras, tool_form, max_seq_len, cache_tokens, images, gpus)
    freeze_heap(click.get_current_context())
    app = create_app(models, limits)
    with _listening(host, port) as listener:
        click.echo(f"serving {', '.join(models.by_name)} at http://{host}:{listener.getsockname()[1]}/v1", err=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=shutdown_timeout)
        with suppress(KeyboardInterrupt):  # which uvicorn raises again once it has stopped
            stopping_server(config, app.state.server).run([listener])


def stopping_server(config: uvicorn.Config, server: Server) -> uvicorn.Server:
    """Return what runs a server, and ends the requests that are left with an error before it cuts them off."""
    import uvicorn

    class Stopping(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            seconds = max(0, (config.timeout_graceful_shutdown or 0) - _NOTICE)
            timer = asyncio.get_running_loop().call_later(seconds, server.end)
            try:
                await super().shutdown(sockets)
            finally:
                timer.cancel()

    return Stopping(config)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise click.ClickException(f"cannot listen at {host}:{port}: {error.strerror}") from error


def _models(
    model_dirs: tuple[str, ...],
    loras: tuple[str, ...],
    tool_form: str | None,
    max_seq_len: int | None,
    cache_tokens: int | None,
    images: bool,
    gpus: GpuOptions,
) -> Models:
    from constrain.llm import load
    from constrain.serve import Models

    models = Models()
    for name, folder in map(_named_folder, model_dirs) if model_dirs else [(_BUILT_IN, None)]:
        vision = None if images else False
        llm = load(folder, max_seq_len=max_seq_len, cache_tokens=cache_tokens, images=vision, **gpus)
        models.add(name, llm, tool_form)
    for given in loras:
        name, _, rest = given.partition("=")
        adapter, _, base = rest.partition("@")
        if not (name and adapter):
            raise click.BadParameter(f"{given!r}: an adapter is given as NAME=FOLDER", param_hint="--lora")
        models.add_lora(name, base or next(iter(models.by_name)), adapter)
    return models


def _named_folder(given: str) -> tuple[str, Path]:
    name, separator, folder = given.partition("=")
    path = Path(folder if separator else given)
    if not path.is_dir():
        raise click.BadParameter(f"there is no folder {str(path)!r}", param_hint="--model")
    return (name if separator else path.resolve().name), path

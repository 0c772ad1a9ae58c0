"""A small web socket server with JSON messages.

A message has an ``action``: ``echo``, ``estimate_token``, ``lefttrim_token``, ``infer`` or ``stop``. Its
``request_id`` and ``response_id`` are repeated in every reply.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from constrain.compat.exllamav2.generators import ExLlamaV2StreamingGenerator
from constrain.errors import ConstrainError, GenerationError
from constrain.generator import ExLlamaV2Sampler
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Names of settings in requests, with their names here and defaults.
_SETTINGS = {
    "temperature": ("temperature", 0.9),
    "top_k": ("top_k", 100),
    "top_p": ("top_p", 0.8),
    "top_a": ("top_a", 0.0),
    "min_p": ("min_p", 0.0),
    "typical": ("typical", 0.0),
    "rep_pen": ("token_repetition_penalty", 1.05),
    "freq_pen": ("token_frequency_penalty", 0.0),
    "pres_pen": ("token_presence_penalty", 0.0),
    "skew": ("skew", 0.0),
}
_ECHOED = ("action", "request_id", "response_id")


class Socket(Protocol):
    """A connection."""

    def __aiter__(self) -> AsyncIterator[str | bytes]: ...
    async def send(self, message: str) -> None: ...


@dataclass
class _Inference:
    """A parsed ``infer`` request."""

    ids: torch.Tensor
    settings: ExLlamaV2Sampler.Settings
    max_new_tokens: int
    stop_conditions: list[int | str]
    token_healing: bool
    reply: dict[str, Any]
    text: str = ""


class ExLlamaV2WebSocketServer:
    """Serves one model; ``infer`` requests run one at a time.

    Args:
        ip, port: address to listen on.
        model, tokenizer, cache: the model, its tokenizer and a KV cache.
    """

    def __init__(
        self, ip: str, port: int, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, cache: ExLlamaV2CacheBase
    ) -> None:
        self.ip, self.port = ip, port
        self.model, self.tokenizer, self.cache = model, tokenizer, cache
        self.generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
        self._inference_lock = asyncio.Lock()
        self._served: Socket | None = None
        self._stopped = False

    def serve(self) -> None:
        """Listen until the program ends. Needs the package ``websockets``."""
        asyncio.run(self._serve())

    async def handle(self, socket: Socket) -> None:
        """Answer the messages of a connection until it closes."""
        running: set[asyncio.Task[None]] = set()
        async for message in socket:
            # Concurrent, so that a "stop" message is read while a request runs.
            task = asyncio.create_task(self._answer(message, socket))
            running.add(task)
            task.add_done_callback(running.discard)
        self._stopped |= self._served is socket
        await asyncio.gather(*running, return_exceptions=True)

    async def _serve(self) -> None:
        import websockets

        async with websockets.serve(self.handle, self.ip, self.port):
            await asyncio.Future()

    async def _answer(self, message: str | bytes, socket: Socket) -> None:
        try:
            request = json.loads(message)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            await _send(socket, {"error": "not a JSON object"})
            return
        reply = {key: request[key] for key in _ECHOED if key in request}
        try:
            await self._act(request, reply, socket)
        except (ConstrainError, KeyError, TypeError, ValueError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            await _send(socket, {**reply, "error": reason})

    async def _act(self, request: dict[str, Any], reply: dict[str, Any], socket: Socket) -> None:
        action = request.get("action")
        if action == "infer":
            inference = self._read(request, reply)
            async with self._inference_lock:
                await self._infer(inference, bool(request["stream"]), bool(request.get("stream_full")), socket)
        elif action == "stop":
            self._stopped = True
            await _send(socket, reply)
        elif action == "estimate_token":
            await _send(socket, {**reply, "num_tokens": self.tokenizer.num_tokens(request["text"])})
        elif action == "lefttrim_token":
            ids = self.tokenizer.encode(request["text"])[0]
            trimmed = ids[max(0, len(ids) - request["trimmed_length"]) :]
            await _send(socket, {**reply, "trimmed_text": self.tokenizer.decode(trimmed)})
        elif action == "echo":
            await _send(socket, reply)
        else:
            raise ValueError(f"unknown action {action!r}")

    def _read(self, request: dict[str, Any], reply: dict[str, Any]) -> _Inference:
        values = {name: request.get(key, default) for key, (name, default) in _SETTINGS.items()}
        settings = ExLlamaV2Sampler.Settings(**values)
        if request.get("bann_bann"):
            settings.disallow_tokens(self.tokenizer, request["bann_bann"])
        max_new_tokens = int(request["max_new_tokens"])
        bos = self.tokenizer.encode(request.get("customBos") or "", encode_special_tokens=True)
        ids = self.tokenizer.encode(request["text"], encode_special_tokens=True)
        max_prompt = min(self.model.config.max_seq_len, self.cache.max_seq_len) - max_new_tokens - bos.shape[1]
        if max_prompt < 1 or max_new_tokens < 1:
            raise GenerationError(
                f"max_new_tokens={max_new_tokens} leaves no room for a prompt, or is no number of tokens"
            )
        eos = self.tokenizer.eos_token_id
        return _Inference(
            torch.cat([bos, ids[:, max(0, ids.shape[1] - max_prompt) :]], dim=1),
            settings,
            max_new_tokens,
            [*([] if eos is None else [eos]), *request.get("stop_conditions", ())],
            bool(request.get("token_healing")),
            {**reply, **({"tag": request["tag"]} if "tag" in request else {})},
        )

    async def _infer(self, inference: _Inference, stream: bool, full: bool, socket: Socket) -> None:
        self._served, self._stopped = socket, False
        generator = self.generator
        generator.set_stop_conditions(inference.stop_conditions)
        await asyncio.to_thread(
            generator.begin_stream_ex, inference.ids, inference.settings, token_healing=inference.token_healing
        )
        reason = "num_tokens"
        for _ in range(inference.max_new_tokens):
            if self._stopped:
                reason = "interrupted"
                break
            result = await asyncio.to_thread(generator.stream_ex)
            inference.text += result["chunk"]
            if stream and result["chunk"]:
                so_far = {"response": inference.text} if full else {}
                await _send(socket, {**inference.reply, "response_type": "chunk", "chunk": result["chunk"], **so_far})
            if result["eos"]:
                reason = "eos"
                break
        prompt = self.tokenizer.decode(inference.ids[0], decode_special_tokens=True)
        end = {"response_type": "full", "util_text": prompt, "response": inference.text, "stop_reason": reason}
        await _send(socket, {**inference.reply, **end})


async def _send(socket: Socket, message: dict[str, Any]) -> None:
    await socket.send(json.dumps(message, ensure_ascii=False))

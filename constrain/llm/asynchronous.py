"""Asynchronous methods of :class:`constrain.LLM`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from constrain.arguments import check_count
from constrain.completion import AsyncStream, Completion, Failure, arun_many, asuccesses, submitted
from constrain.documents import DocumentLike
from constrain.extract import Extraction, ExtractOptions, Target
from constrain.llm.base import BaseLLM, GenerateOptions, Messages, PromptOrMessages, one_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncMethods(BaseLLM):
    """Asynchronous methods of :class:`constrain.LLM`."""

    @overload
    async def agenerate(  # type: ignore[overload-overlap]  # 1 is an int
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: Literal[1] = ...,
        faithful: bool = ...,
        **options: Unpack[GenerateOptions],
    ) -> Completion: ...

    @overload
    async def agenerate(
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: int,
        faithful: bool = ...,
        **options: Unpack[GenerateOptions],
    ) -> list[Completion]: ...

    async def agenerate(
        self,
        prompt: str | None = None,
        *,
        messages: Messages | None = None,
        n: int = 1,
        faithful: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion]:
        """Generate completions asynchronously; as :meth:`generate`. Cancelling the task cancels the requests."""
        check_count("n", n, 1)
        ask = one_of(prompt, messages)
        if faithful:
            weighted = await (await submitted(partial(self.submit_faithful, options, n, ask))).aresult()
            return weighted[0] if n == 1 else weighted
        submit_one = await asyncio.to_thread(self.submitter, options, n > 1, n > 1)
        if n == 1:
            return await (await submitted(partial(submit_one, 0, ask))).aresult()
        return await asuccesses(arun_many(self.runtime, lambda number, _: submit_one(number, ask), range(n)))

    def astream(
        self, prompt: str | None = None, *, messages: Messages | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncStream:
        """Stream a completion, for ``async for``; as :meth:`generate` with ``stream=True``."""
        ask = one_of(prompt, messages)
        return AsyncStream(lambda: self.submitter(options, copied=False)(0, ask))

    def agenerate_many(
        self,
        prompts: Iterable[PromptOrMessages] | AsyncIterable[PromptOrMessages],
        *,
        ordered: bool = True,
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[Completion | Failure, None]:
        """Complete many prompts, for ``async for``; as :meth:`generate_many`. Takes async iterables too."""
        return arun_many(self.runtime, self.submitter(options, copied=True), prompts, ordered=ordered)

    @overload
    async def aextract(
        self, schema: type[T] | Target[T], document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> Extraction[T]: ...

    @overload
    async def aextract(
        self, schema: Any, document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> Extraction[Any]: ...

    async def aextract(self, schema: Any, document: DocumentLike, **options: Unpack[ExtractOptions]) -> Extraction[Any]:
        """Extract a record asynchronously; as :meth:`extract`. Cancelling the task cancels the request."""
        return await self.extractor.aextract(Target.of(schema), document, **options)

    @overload
    def aextract_many(
        self,
        schema: type[T] | Target[T],
        texts: Iterable[DocumentLike] | AsyncIterable[DocumentLike],
        *,
        ordered: bool = ...,
        **options: Unpack[ExtractOptions],
    ) -> AsyncGenerator[Extraction[T] | Failure, None]: ...

    @overload
    def aextract_many(
        self,
        schema: Any,
        texts: Iterable[DocumentLike] | AsyncIterable[DocumentLike],
        *,
        ordered: bool = ...,
        **options: Unpack[ExtractOptions],
    ) -> AsyncGenerator[Extraction[Any] | Failure, None]: ...

    def aextract_many(
        self,
        schema: Any,
        texts: Iterable[DocumentLike] | AsyncIterable[DocumentLike],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> AsyncGenerator[Extraction[Any] | Failure, None]:
        """Extract many records, for ``async for``; as :meth:`extract_many`. Takes async iterables too."""
        return self.extractor.aextract_many(Target.of(schema), texts, ordered=ordered, **options)

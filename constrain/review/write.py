"""The file of a review: what is shown, and what is left out to keep its size within a limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from constrain.documents.page_images import page_images
from constrain.errors import DocumentError, RunError
from constrain.review.blocks import data_block, grouped, image_block
from constrain.review.entries import detail, index_entry, without_text
from constrain.review.fields import Fields
from constrain.review.page import render_page
from constrain.review.sources import Sources
from constrain.runs import read_lines

T = TypeVar("T")

#: Bytes of the largest file.
MAX_BYTES = 40_000_000

_LEFT_OUT = "The text is left out, to keep the size of this file within its limit."
#: Bytes that the index needs to name an image.
_IMAGE_NAME = 32


@dataclass(frozen=True)
class Review:
    """A page that was written.

    Attributes:
        path: the file.
        documents: number of its documents, failures included.
        failures: documents without a record.
        without_text: documents whose text is not shown.
        changed: documents whose text is not the one that the record was extracted from.
        pages_as_text: pages whose image was left out.
    """

    path: Path
    documents: int
    failures: int
    without_text: int
    changed: int
    pages_as_text: int


def write_review(
    records: str | Path,
    output: str | Path,
    *,
    encoding: str | None = None,
    max_bytes: int = MAX_BYTES,
    show_progress: bool = False,
) -> Review:
    """Write a page on which records are looked at beside their sources, and corrected: one file, without any other.

    Args:
        records: JSON Lines, as ``constrain extract`` writes them. Their sources are read again, by the same paths.
        output: the page, in HTML.
        encoding: the encoding of the sources, if the run was told it.
        max_bytes: most bytes of the page. What is beyond is left out: images of pages, then texts, first those of the
            surest records. Records are never left out.
        show_progress: show progress bars on standard error.

    Raises:
        RunError: the records cannot be read, the page cannot be written, or would replace one of their sources.
    """
    lines = read_lines(records)
    fields, sources = Fields(), Sources(lines, encoding)
    if sources.has(Path(output)):
        raise RunError(f"{output} would be replaced, but is a source of the records: choose another file for the page")
    entries = [index_entry(line, fields) for line in lines]
    found = [sources.find(line) for line in _tracked(lines, "document", show_progress)]
    shown = [_Shown(entry, detail(line, each)) for entry, line, each in zip(entries, lines, found, strict=True)]
    index = {
        "goldName": f"{Path(records).stem}.gold.jsonl",
        "fields": [field.to_json() for field in fields.all],
        "documents": entries,
    }
    page = _Page(Path(records).name, index, sorted(shown, key=_Shown.order), max_bytes)
    page.add_texts()
    page.add_images(show_progress)
    _write(Path(output), page.render())
    return Review(
        path=Path(output),
        documents=len(lines),
        failures=sum("error" in line for line in lines),
        without_text=sum(each.detail["text"] is None for each in shown),
        changed=sum(each.document is not None and not each.is_unchanged for each in found),
        pages_as_text=page.pages_as_text,
    )


@dataclass
class _Shown:
    """A document as the page has it: its entry of the index, and the rest."""

    entry: dict[str, Any]
    detail: dict[str, Any]

    def order(self) -> tuple[bool, float]:
        """Return what sorts documents: the least sure first, failures last."""
        least = self.entry["least"]
        return self.entry["error"] is not None, math.inf if least is None else least


class _Page:
    """The data of a page, as far as there is room for it.

    Attributes:
        pages_as_text: pages whose image was left out.
    """

    def __init__(self, name: str, index: dict[str, Any], documents: Sequence[_Shown], max_bytes: int) -> None:
        """
        Args:
            name: name of the file of records.
            index: index of the page, which is completed.
            documents: the documents, those first that have to be there most.
            max_bytes: most bytes of the page.
        """
        self._name, self._index, self._documents = name, index, documents
        self._groups = list(grouped(documents, lambda each: each.detail))
        for number, group in enumerate(self._groups):
            for position, each in enumerate(group):
                each.entry["block"] = number, position
        self._blocks: list[str] = []
        self._images: dict[tuple[str, int], int] = {}
        self._room = max_bytes - len(self.render())
        self.pages_as_text = 0

    def render(self) -> str:
        """Return the page with what has been added."""
        return render_page(self._name, data_block("index", self._index), "".join(self._blocks))

    def add_texts(self) -> None:
        """Add records and texts, the texts as far as there is room."""
        for number, group in enumerate(self._groups):
            block = data_block(f"documents-{number}", [each.detail for each in group])
            if len(block) > self._room:
                for each in group:
                    each.detail = without_text(each.detail, _LEFT_OUT)
                block = data_block(f"documents-{number}", [each.detail for each in group])
            self._add(block)

    def add_images(self, show_progress: bool) -> None:
        """Add the pages on which values stand, or else the first page, as far as there is room."""
        with_pages = [each for each in self._documents if each.detail["pages"]]
        for each in _tracked(with_pages, "page", show_progress):
            self._add_images_of(each)

    def _add_images_of(self, document: _Shown) -> None:
        source, pages = document.entry["source"], document.detail["pages"]
        on_pages = {place[0] for places in document.detail["boxes"].values() for place in places}
        numbers = sorted(on_pages) or [pages[0]["number"]]
        new = [number for number in numbers if (source, number) not in self._images] if self._room > 0 else []
        try:
            rendered = page_images(source, new) if new else []
        except DocumentError:  # it is no PDF, or not there any more: its text will do
            return
        for number, image in zip(new, rendered, strict=True):
            self._add_image(source, number, image)
        given = {number: self._images[source, number] for number in numbers if (source, number) in self._images}
        left_out = len(numbers) - len(given)
        document.entry |= {"images": given, "imagesLeftOut": left_out}
        self.pages_as_text += left_out

    def _add_image(self, source: str, number: int, image: bytes) -> None:
        block = image_block(f"image-{len(self._images)}", image)
        if len(block) + _IMAGE_NAME > self._room:
            self._room = 0  # so that no more are rendered
            return
        self._images[source, number] = len(self._images)
        self._room -= _IMAGE_NAME
        self._add(block)

    def _add(self, block: str) -> None:
        self._blocks.append(block)
        self._room -= len(block)


def _tracked(things: Sequence[T], unit: str, show_progress: bool) -> Iterable[T]:
    tracked: Iterable[T] = tqdm(things, unit=unit, leave=False, disable=None if show_progress else True)
    return tracked


def _write(output: Path, content: str) -> None:
    try:
        # The name of the file of records need not be text.
        output.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{output} cannot be written: {(error.strerror or str(error)).lower()}") from error

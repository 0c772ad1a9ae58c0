"""The page of ``constrain review`` in a browser without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from fpdf import FPDF
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from review_corpus import confidence, line_of, text_line, thousand_lines, write_lines

from constrain.documents import read
from constrain.review import write_review
from constrain.runs import Line

LETTERS = {
    "english": "Dear {/name=Ada Lovelace}, you owe {/sum=12.50} pounds. Yours, {/city=London}",
    "greek": "Αγαπητή κυρία {/name=Παπαδοπούλου}, οφείλετε {/sum=12,50} ευρώ. {/city=Αθήνα}",
    "chinese": "尊敬的{/name=王小明}先生，您欠{/sum=一千二百}元。{/city=北京}",
    "arabic": "السيد {/name=أحمد المحترم}، المبلغ {/sum=١٢٠٠} درهم.\n{/city=دبي}",
    "emoji": "😀🎉 Hi {/name=Zoë 👩‍👩‍👧}, 👍🏽 {/sum=12 €} 𝔘 {/city=𝔘lm 🏰}!",
    "combining": "E\u0301 {/name=Cafe\u0301 A\u030angstro\u0308m} \u0301{/sum=1\u20e32\u20e3}\n\n\t{/city=São\u0303}",
}
#: Problems in pages: errors, messages, dialogs, requests.
PROBLEMS: list[str] = []
TEXTS_OF_HIGHLIGHT = """name => [...CSS.highlights.get(name)].map((place) => {
    const range = document.createRange();
    range.setStart(place.startContainer, place.startOffset);
    range.setEnd(place.endContainer, place.endOffset);
    return String(range);
})"""
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>{/name=<b onclick=alert(3)>&amp;</b>}"


# A small file, which most tests look at


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("review")


@pytest.fixture(scope="module")
def lines(folder: Path) -> dict[str, Line]:
    """Lines by the name of their document; the letters come first, the least sure ones first."""
    lines = {
        name: text_line(
            folder / f"{name}.txt",
            markup,
            {"/paid": None, "/id": 2**60 + 1},
            confidence={"/name": confidence(0.95), "/sum": confidence(0.1 + number / 10)},
        )
        for number, (name, markup) in enumerate(LETTERS.items())
    }
    lines["invoice"] = pdf_line(folder / "invoice.pdf")
    lines["list"] = text_line(
        folder / "list.txt",
        "Apples, {/fruits/0=pears}, plums and {/fruits/1=pears and plums}. Pears? pears!",
        {"/kind": "open"},
        spans={"/fruits/0": (8, 13), "/fruits/1": (8, 36)},
        occurrences={"/fruits/0": [(8, 13), (49, 54)]},
        confidence={
            "/kind": confidence(0.8, 0.3, open=0.8, closed=0.2),
            "/fruits/0": confidence(0.97) | {"alternatives": {"present": 0.97, "null": 0.03}},
        },
        conflicts={"/kind": ["closed"]},
        finish_reason="length",
    )
    lines["hostile"] = text_line(folder / "<i>hostile.txt", HOSTILE)
    changed = lines["changed"] = text_line(folder / "changed.txt", "It was {/name=Ada}.")
    Path(changed["source"]).write_text("It was not Ada.")
    error = {"type": "ExtractionError", "message": "the record needs 1,204 tokens"}
    lines["failed"] = line_of(str(folder / "gone.txt"), "?", error=error)
    return lines


def pdf_line(path: Path) -> Line:
    pdf = FPDF(unit="pt")
    pdf.set_font("helvetica", size=12)
    for text in ("Nothing is here.", "Invoice of Ada Lovelace, for London."):
        pdf.add_page()
        pdf.write(20, text)
    pdf.output(str(path))
    document = read(path)
    values = {"name": "Ada Lovelace", "city": "London"}
    starts = {name: document.text.index(value) for name, value in values.items()}
    spans = {f"/{name}": (start, start + len(values[name])) for name, start in starts.items()}
    return line_of(str(path), document.text, record=values, spans=spans, finish_reason="stop")


@pytest.fixture(scope="module")
def url(folder: Path, lines: dict[str, Line]) -> str:
    return page_url(folder, lines)


def page_url(folder: Path, lines: dict[str, Line], name: str = "records") -> str:
    output = folder / f"{name}.html"
    write_review(write_lines(folder / f"{name}.jsonl", lines.values()), output)
    return output.as_uri()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A window without a network, that lists what goes wrong in its pages."""
    context = browser.new_context(offline=True)
    context.on("weberror", lambda problem: PROBLEMS.append(str(problem.error)))
    context.on("console", lambda message: PROBLEMS.append(message.text))
    context.on("dialog", lambda dialog: PROBLEMS.append(dialog.message))
    context.on("request", lambda request: request.is_navigation_request() or PROBLEMS.append(request.url))
    yield context
    context.close()


@pytest.fixture(scope="module")
def shared_page(context: BrowserContext, url: str) -> Iterator[Page]:
    with opened(context, url) as page:
        yield page


@pytest.fixture
def page(shared_page: Page) -> Iterator[Page]:
    """The page as it is when it is opened for the first time. Nothing may go wrong in it."""
    shared_page.emulate_media(color_scheme="light")
    shared_page.evaluate("localStorage.clear()")
    PROBLEMS.clear()
    shared_page.reload()
    wait_for_source(shared_page)
    yield shared_page
    assert not PROBLEMS


@contextmanager
def opened(context: BrowserContext, url: str) -> Iterator[Page]:
    page = context.new_page()
    page.goto(url)
    wait_for_source(page)
    yield page
    page.close()


def wait_for_source(page: Page) -> None:
    expect(page.locator("#source-body section").first).to_be_visible()


def open_document(page: Page, name: str) -> None:
    page.locator(".document", has_text=name).click()
    expect(page.locator("#document-name")).to_contain_text(name)


def field(page: Page, pointer: str) -> Locator:
    return page.locator(f'.field[data-pointer="{pointer}"]')


def selected_text(page: Page) -> str:
    return "".join(page.locator("mark.selected").all_text_contents())


def names(page: Page) -> list[str]:
    return page.locator(".document .name").all_text_contents()


# From fields to highlights and back


def test_a_click_on_a_field_highlights_exactly_its_span(page: Page, lines: dict[str, Line]) -> None:
    for name in LETTERS:
        line = lines[name]
        open_document(page, name)
        assert page.locator(".text").text_content() == Path(line["source"]).read_text(encoding="utf-8")
        for pointer in line["spans"]:
            field(page, pointer).click()
            assert selected_text(page) == line["record"][pointer[1:]]


def test_a_click_on_a_highlight_selects_its_field(page: Page) -> None:
    open_document(page, "greek")
    page.locator("mark", has_text="Αθήνα").click()
    expect(field(page, "/city")).to_have_attribute("aria-current", "true")


def test_a_click_on_highlights_that_overlap_goes_from_one_to_the_other(page: Page) -> None:
    open_document(page, "list")
    shared = page.locator("mark").first
    shared.click()
    assert selected_text(page) == "pears"
    shared.click()
    assert selected_text(page) == "pears, plums and pears and p"
    expect(field(page, "/fruits/1")).to_have_attribute("aria-current", "true")


def test_the_same_passage_elsewhere_is_shown(page: Page) -> None:
    open_document(page, "list")
    field(page, "/fruits/0").click()
    assert painted(page, "occurrence") == ["pears"]
    page.keyboard.press("o")
    assert painted(page, "current-occurrence") == ["pears"]
    field(page, "/kind").click()
    assert painted(page, "occurrence") == painted(page, "current-occurrence") == []


def painted(page: Page, name: str) -> Any:
    """Return the texts of highlights that are no elements."""
    return page.evaluate(TEXTS_OF_HIGHLIGHT, name)


def test_colours_are_those_of_fields_or_of_confidence(page: Page) -> None:
    open_document(page, "english")
    by_field = {colour(page, text) for text in ("Ada Lovelace", "12.50", "London")}
    page.keyboard.press("c")
    assert len(by_field) == 3
    assert colour(page, "Ada Lovelace") != colour(page, "12.50")
    assert not by_field & {colour(page, "12.50")}


def colour(page: Page, text: str) -> Any:
    mark = page.locator("mark", has_text=text)
    return mark.evaluate("mark => getComputedStyle(mark).backgroundColor")


# PDF


def test_pdfs_show_their_page_with_the_box_of_the_field(page: Page, folder: Path, lines: dict[str, Line]) -> None:
    open_document(page, "invoice.pdf")
    field(page, "/name").click()
    image = page.locator("figure img")
    expect(image).to_have_count(1)  # no value stands on the first page
    page.wait_for_function("document.querySelector('figure img').naturalWidth > 500")
    box, frame = page.locator(".box.selected").bounding_box(), image.bounding_box()
    document = read(folder / "invoice.pdf")
    (expected,) = document.boxes(*lines["invoice"]["spans"]["/name"])
    assert box is not None and frame is not None
    scale = frame["width"] / document.pages[1].width
    assert (box["x"] - frame["x"]) / scale == pytest.approx(expected.left, abs=1)
    assert (box["y"] - frame["y"]) / scale == pytest.approx(expected.top, abs=1)
    assert box["width"] / scale == pytest.approx(expected.right - expected.left, abs=1)
    assert box["height"] / scale == pytest.approx(expected.bottom - expected.top, abs=1)


def test_boxes_select_their_fields_and_pages_can_be_seen_as_text(page: Page) -> None:
    open_document(page, "invoice.pdf")
    page.locator(".box").nth(1).click()
    expect(field(page, "/city")).to_have_attribute("aria-current", "true")
    page.keyboard.press("v")
    assert selected_text(page) == "London"
    expect(page.locator("figure")).to_have_count(0)


# Missing data


def test_what_is_wrong_with_a_document_is_said(page: Page) -> None:
    open_document(page, "changed.txt")
    expect(page.locator(".note")).to_contain_text("has changed")
    expect(page.locator(".text")).to_have_text("It was not Ada.")
    expect(page.locator("mark")).to_have_count(0)
    open_document(page, "gone.txt")
    expect(page.locator(".note.error")).to_have_text("ExtractionError: the record needs 1,204 tokens")
    expect(page.locator(".note.missing")).to_contain_text("no such file")


def test_texts_are_never_markup(page: Page) -> None:
    open_document(page, "<i>hostile.txt")
    field(page, "/name").click()
    assert selected_text(page) == "<b onclick=alert(3)>&amp;</b>"
    expect(page.locator(".text")).to_contain_text("<img src=x onerror=alert(1)></script><script>alert(2)</script>")


# List and filters


def test_documents_are_listed_from_the_least_sure_to_failures(page: Page) -> None:
    first = [f"{name}.txt" for name in LETTERS]
    assert names(page)[:7] == [*first, "list.txt"]
    assert names(page)[-1] == "gone.txt"
    page.select_option("[name=order]", "file")
    assert names(page)[6:8] == ["invoice.pdf", "list.txt"]
    page.select_option("[name=order]", "name")
    assert names(page)[:2] == ["<i>hostile.txt", "arabic.txt"]


def test_folders_are_shown_as_seen_from_the_common_one(page: Page, context: BrowserContext, tmp_path: Path) -> None:
    expect(page.locator(".about", has_text="/")).to_have_count(0)  # all documents are in one
    lines = {}
    for name in ("may/new/a.txt", "may/b.txt", "maybe/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        lines[name] = text_line(tmp_path / name, "{/name=Ann}")
    with opened(context, page_url(tmp_path, lines)) as other:
        expect(other.locator(".about")).to_have_text(["may/new", "may", "maybe"])
        other.select_option("[name=order]", "name")
        assert names(other) == ["a.txt", "b.txt", "c.txt"]


FILTERS: list[tuple[Callable[[Page], Any], list[str]]] = [
    (lambda page: page.select_option("[name=show]", "failures"), ["gone.txt"]),
    (lambda page: page.select_option("[name=finish]", "length"), ["list.txt"]),
    (lambda page: page.check("[name=conflicts]"), ["list.txt"]),
    (lambda page: page.fill("[name=confidence]", "25"), ["english.txt", "greek.txt"]),
    (lambda page: page.select_option("[name=field]", label="fruits"), ["list.txt"]),
    (lambda page: page.select_option("[name=field]", label="paid"), []),  # null everywhere
    (lambda page: page.fill("#search", "ΟΦΕΊΛΕΤΕ"), ["greek.txt"]),
    (lambda page: page.fill("#search", "london"), ["english.txt", "invoice.pdf"]),
    (lambda page: page.fill("#search", "1,204"), ["gone.txt"]),
    (lambda page: page.fill("#search", "hostile"), ["<i>hostile.txt"]),
]


def test_filters_and_search(page: Page) -> None:
    page.locator("summary").click()
    for choose, expected in FILTERS:
        choose(page)
        expect(page.locator(".document .name")).to_have_text(expected)
        page.locator("[type=reset]").click()
        expect(page.locator(".document .name")).to_have_count(11)


def test_a_field_may_be_missing_or_null(page: Page) -> None:
    page.locator("summary").click()
    page.select_option("[name=field]", label="paid")
    page.select_option("[name=value]", "absent")
    expect(page.locator(".document .name")).to_have_count(11)
    page.select_option("[name=field]", label="name")
    expect(page.locator(".document .name")).to_have_text(["list.txt", "gone.txt"])


# Keys


def test_keys_step_through_documents_and_fields(page: Page) -> None:
    page.keyboard.press("j")
    expect(page.locator("#document-name")).to_have_text("greek.txt")
    page.keyboard.press("n")
    assert selected_text(page) == "Παπαδοπούλου"
    page.keyboard.press("n")
    assert selected_text(page) == "12,50"
    page.keyboard.press("p")
    assert selected_text(page) == "Παπαδοπούλου"
    page.keyboard.press("k")
    expect(page.locator("#document-name")).to_have_text("english.txt")
    page.keyboard.press("k")
    expect(page.locator("#position")).to_have_text("1 of 11")


def test_keys_are_letters_where_something_is_typed(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("jn")
    expect(page.locator("#search")).to_have_value("jn")
    expect(page.locator("#document-name")).to_have_text("english.txt")
    expect(page.locator(".row.selected")).to_have_count(0)


def test_a_question_mark_lists_the_keys(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next document")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


# Corrections and their export


def exported(page: Page, folder: Path) -> list[Line]:
    with page.expect_download() as download:
        page.locator("#export").click()
    assert download.value.suggested_filename == "records.gold.jsonl"
    download.value.save_as(folder / "gold.jsonl")
    return [json.loads(line) for line in (folder / "gold.jsonl").read_text(encoding="utf-8").splitlines()]


def edit(page: Page, pointer: str, text: str, kind: str | None = None) -> None:
    field(page, pointer).click()
    page.keyboard.press("e")
    if kind:
        page.select_option(".editor select", kind)
    if page.locator(".editor textarea").is_visible():
        page.fill(".editor textarea", text)
    page.locator(".editor [type=submit]").click()


def test_corrections_are_exported_as_gold(page: Page, tmp_path: Path, lines: dict[str, Line]) -> None:
    open_document(page, "emoji")
    line = lines["emoji"]
    page.keyboard.press("n")
    page.keyboard.press("y")  # and on to the next one
    page.keyboard.press("x")
    edit(page, "/city", "Zürich")
    edit(page, "/paid", "12345678901234567890", "number")
    (gold,) = exported(page, tmp_path)
    record = {**line["record"], "sum": None, "city": "Zürich", "paid": 12345678901234567890}
    assert gold == {
        "key": line["key"],
        "source": line["source"],
        "record": record,
        "spans": {"/name": list(line["spans"]["/name"])},
        "marks": {"/name": "right", "/sum": "wrong", "/city": "corrected", "/paid": "corrected"},
    }


def test_notes_are_there_again_after_a_reload(page: Page, tmp_path: Path) -> None:
    edit(page, "/city", "Cambridge")
    page.keyboard.press("a")
    before = exported(page, tmp_path)
    page.reload()
    expect(page.locator("#totals")).to_contain_text("1 reviewed")
    open_document(page, "english")
    expect(field(page, "/city")).to_contain_text("Cambridge")
    assert exported(page, tmp_path) == before
    assert set(before[0]["marks"].values()) == {"right", "corrected"}


def test_notes_belong_to_a_record(context: BrowserContext, page: Page, lines: dict[str, Line], folder: Path) -> None:
    page.keyboard.press("a")
    expect(page.locator("#totals")).to_contain_text("1 reviewed")
    with opened(context, page_url(folder, {"english": lines["english"], "list": lines["list"]}, "more")) as same:
        expect(same.locator("#totals")).to_contain_text("1 reviewed")
    other_record = lines["english"] | {"record": {"name": "Ada"}}
    with opened(context, page_url(folder, {"english": other_record}, "other")) as other:
        expect(other.locator("#totals")).to_contain_text("0 reviewed")
        expect(other.locator("#export")).to_be_disabled()


def test_notes_can_be_undone(page: Page) -> None:
    edit(page, "/city", "Cambridge")
    page.keyboard.press("u")
    expect(field(page, "/city")).to_contain_text("London")
    expect(page.locator("#export")).to_be_disabled()


def test_a_passage_of_the_text_can_be_taken_as_a_value(page: Page, tmp_path: Path, lines: dict[str, Line]) -> None:
    open_document(page, "emoji")
    field(page, "/city").click()
    page.keyboard.press("e")
    page.evaluate("getSelection().selectAllChildren(document.querySelectorAll('mark')[1])")
    page.locator("mark").nth(1).dispatch_event("mouseup")
    expect(page.locator(".editor textarea")).to_have_value("12 €")
    page.locator(".editor [type=submit]").click()
    (gold,) = exported(page, tmp_path)
    assert gold["record"]["city"] == "12 €"
    assert gold["spans"]["/city"] == list(lines["emoji"]["spans"]["/sum"])


def test_a_new_value_that_stands_once_in_the_text_has_a_span(page: Page, tmp_path: Path) -> None:
    edit(page, "/city", "Yours")
    assert selected_text(page) == "Yours"
    (gold,) = exported(page, tmp_path)
    assert gold["spans"]["/city"] == [41, 46]


def test_lists_are_corrected_as_json(page: Page, tmp_path: Path) -> None:
    open_document(page, "list")
    edit(page, "/fruits", "[1, oops", "JSON")
    expect(page.locator(".problem")).not_to_be_empty()
    page.fill(".editor textarea", '["pears", "12345678901234567890", 12345678901234567890]')
    page.keyboard.press("Enter")
    (gold,) = exported(page, tmp_path)
    assert gold["record"]["fruits"] == ["pears", "12345678901234567890", 12345678901234567890]
    assert "spans" not in gold


def test_alternatives_and_conflicts_are_offered(page: Page, tmp_path: Path) -> None:
    open_document(page, "list")
    field(page, "/kind").click()
    expect(page.locator(".offer")).to_have_text(["closed", "open80%", "closed20%"])
    expect(page.locator(".details")).to_contain_text("up to 30% of the probability")
    page.locator(".offer").first.click()
    field(page, "/fruits/0").click()
    expect(page.locator(".offer")).to_have_text(["a value97%", "null3%"])
    expect(page.locator(".offer").first).to_be_disabled()
    page.locator(".offer").last.click()
    (gold,) = exported(page, tmp_path)
    assert gold["record"]["kind"] == "closed"
    assert gold["record"]["fruits"] == [None, "pears and plums"]


def test_a_document_is_opened_though_the_list_is_rendered_during_the_click(page: Page) -> None:
    row = page.locator(".document", has_text="gone.txt")
    row.scroll_into_view_if_needed()
    row.hover()
    page.mouse.down()
    page.locator("#list").dispatch_event("scroll")
    page.mouse.up()
    expect(page.locator("#document-name")).to_contain_text("gone.txt")


def test_a_record_can_be_given_where_there_is_none(page: Page, tmp_path: Path) -> None:
    open_document(page, "gone.txt")
    edit(page, "", '{"name": "Ada"}')
    (gold,) = exported(page, tmp_path)
    assert gold["record"] == {"name": "Ada"}
    page.keyboard.press("a")
    expect(page.locator("#totals")).to_contain_text("1 reviewed")


# Dark and light


def test_dark_and_light(page: Page) -> None:
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    page.keyboard.press("d")
    assert background(page) == light
    page.reload()
    assert background(page) == light
    page.locator("#theme").click()
    assert background(page) == dark


def background(page: Page) -> Any:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_a_narrow_window_has_room_for_the_name(page: Page) -> None:
    size = page.viewport_size
    assert size is not None
    open_document(page, "invoice.pdf")
    page.keyboard.press("c")  # there are most controls
    for width in (900, 1100, 1440):
        page.set_viewport_size({"width": width, "height": 700})
        is_whole = "name => name.scrollWidth <= name.clientWidth"
        assert page.locator("#document-name").evaluate(is_whole), width
        assert page.locator(".source > header").evaluate(is_whole), width
    page.set_viewport_size(size)


# A large file


def test_a_thousand_documents_are_one_small_file(context: BrowserContext, tmp_path: Path) -> None:
    write_review(write_lines(tmp_path / "records.jsonl", thousand_lines(tmp_path)), tmp_path / "records.html")
    assert (tmp_path / "records.html").stat().st_size < 40_000_000
    with opened(context, (tmp_path / "records.html").as_uri()) as page:
        expect(page.locator("#totals")).to_contain_text("1,000 documents")
        assert page.locator(".document").count() < 50
        page.locator("#list").focus()
        page.keyboard.press("End")
        expect(page.locator("#document-name")).to_have_text("0.txt")
        field(page, "/sum").click()
        assert selected_text(page) == "0"
        assert page.locator(".document").count() < 50

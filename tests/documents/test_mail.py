"""E-mails of several parts, and texts that only begin like e-mails."""

from __future__ import annotations

from base64 import encodebytes
from email import message_from_string, policy
from email.message import EmailMessage, MIMEPart
from typing import Any

import pytest
from fpdf import FPDF

from constrain.documents import Document, read_bytes

HEADERS = "From: Ada <ada@example.com>\r\nDate: Fri, 03 May 2024 10:00:00 +0200\r\nSubject: Pears\r\n"


def part(content: str | bytes, kind: str = "plain", **options: Any) -> MIMEPart:
    made = MIMEPart()
    if isinstance(content, bytes):
        made.set_content(content, maintype="application", subtype=kind, **options)
    else:
        made.set_content(content, subtype=kind, **options)
    return made


def mail(kind: str, *parts: MIMEPart) -> EmailMessage:
    made = EmailMessage()
    made["From"] = "ada@example.com"
    {"mixed": made.make_mixed, "alternative": made.make_alternative, "related": made.make_related}[kind]()
    for each in parts:
        made.attach(each)
    return made


def body(message: EmailMessage) -> str:
    return read_bytes(bytes(message), "a.eml").text.partition("\n\n")[2]


def nested(kind: str, *parts: MIMEPart) -> MIMEPart:
    made = mail(kind, *parts)
    del made["From"]
    return made


IMAGE = {"disposition": "inline", "filename": "pear.png"}


def test_all_texts_that_a_mail_shows_are_read_in_order() -> None:
    message = mail("mixed", part("one"), part(b"png", "png", **IMAGE), part("two"), part("<p>three</p>", "html"))
    assert body(message) == "one\n\ntwo\n\nthree"
    assert read_bytes(bytes(message), "a.eml").metadata["attachments"] == ["pear.png"]


def test_one_of_several_alternatives_is_read() -> None:
    page = nested("related", part("<p>page</p>", "html"), part(b"png", "png"))
    assert body(mail("mixed", nested("alternative", part("plain"), page), part("end"))) == "plain\n\nend"
    assert body(mail("alternative", part(" "), page)).strip() == "page"
    assert body(mail("alternative", part("<p>page</p>", "html"), part("plain"))) == "plain"
    apple = nested("mixed", part("<p>page</p>", "html"), part(b"%PDF", "pdf", filename="a.pdf"))
    message = mail("alternative", part("plain"), apple)
    assert body(message) == "plain"
    assert read_bytes(bytes(message), "a.eml").metadata["attachments"] == ["a.pdf"]


def test_images_of_a_page_are_no_attachments() -> None:
    attached = part(b"%PDF", "pdf", filename="a.pdf", disposition="attachment")
    message = mail("related", part("<p>page</p>", "html"), part(b"png", "png", **IMAGE), attached)
    assert body(message) == "page"
    assert read_bytes(bytes(message), "a.eml").metadata["attachments"] == ["a.pdf"]


def test_a_text_with_a_name_is_the_text_of_a_mail_that_has_no_other() -> None:
    message = mail("mixed", part("the text", filename="text.txt"), part("more", filename="more.txt"))
    assert body(message) == "the text\n\n\n---------- Attachment: more.txt ----------\nmore"
    assert read_bytes(bytes(message), "a.eml").metadata["attachments"] == ["text.txt", "more.txt"]


def test_an_invitation_is_read() -> None:
    message = EmailMessage()
    message.set_content("BEGIN:VCALENDAR\nSUMMARY:Tea\nEND:VCALENDAR\n", subtype="calendar")
    assert "SUMMARY:Tea" in read_bytes(bytes(message), "a.eml").text


def test_attached_texts_follow_after_their_names() -> None:
    inner = EmailMessage()
    inner["Subject"] = "Inner"
    inner.set_content("inside")
    message = mail(
        "mixed",
        part("see below"),
        part("pears: 3", filename="list.txt", disposition="attachment"),
        part(bytes(inner), "octet-stream", filename="old.eml"),
        part(b"%PDF broken", "pdf", filename="broken.pdf"),
    )
    document = read_bytes(bytes(message), "a.eml")
    assert document.text.partition("\n\n")[2] == (
        "see below\n\n\n---------- Attachment: list.txt ----------\npears: 3"
        "\n\n---------- Attachment: old.eml ----------\nSubject: Inner\n\ninside"
    )
    assert document.metadata["attachments"] == ["list.txt", "old.eml", "broken.pdf"]
    assert document.metadata["attachments_read"] == ["list.txt", "old.eml"]


def report(kind: str, *lines: str) -> MIMEPart:
    text = "\n".join([f"Content-Type: {kind}", "", *lines])
    return message_from_string(text, _class=MIMEPart, policy=policy.default)


def test_the_fields_of_reports_are_read() -> None:
    status = report(
        "message/delivery-status",
        "Reporting-MTA: dns; mx.example.org\n",
        "Action: failed\nDiagnostic-Code: smtp; 550 no such\n address",
    )
    headers = report("text/rfc822-headers", "Subject: =?utf-8?q?B=C3=B6b?=", "Received: one", "Received: two")
    shown = "Reporting-MTA: dns; mx.example.org\n\nAction: failed\nDiagnostic-Code: smtp; 550 no such address"
    returned = "Subject: Böb\nReceived: one\nReceived: two"
    assert body(mail("mixed", part("Sorry."), status, headers)) == f"Sorry.\n\n{shown}\n\n{returned}"
    status["Content-Disposition"] = 'attachment; filename="details.txt"'
    assert f"---------- Attachment: details.txt ----------\n{shown}" in body(mail("mixed", part("Sorry."), status))


def test_an_attached_message_may_be_encoded() -> None:
    for text in ("Subject: Inner\n\ninside", "inside"):
        encoded = encodebytes(text.encode()).decode()
        attached = report("message/rfc822\nContent-Transfer-Encoding: base64", encoded)
        inner = f"\n\n---------- Forwarded message ----------\n{text}"
        assert body(mail("mixed", part("see below"), attached)) == f"see below\n{inner}"


def test_attachments_without_a_name_are_read() -> None:
    pdf = FPDF()
    pdf.add_page()
    pdf.set_font("helvetica")
    pdf.cell(text="Three pears")
    image = MIMEPart()
    image.set_content(b"png", maintype="image", subtype="png", disposition="inline")
    document = read_bytes(bytes(mail("mixed", part("see below"), image, part(bytes(pdf.output()), "pdf"))), "a.eml")
    assert document.metadata["attachments"] == document.metadata["attachments_read"] == ["attachment.pdf"]
    assert document.text.endswith("---------- Attachment: attachment.pdf ----------\nThree pears")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["a.eml", "a"])
def test_mails_that_were_saved_in_other_encodings_are_read(encoding: str, name: str) -> None:
    raw = HEADERS + "Content-Type: text/plain; charset=iso-8859-1\r\n\r\nGrüße – Łódź\r\n"
    document = read_bytes(raw.encode(encoding), name)
    assert document.text.endswith("Subject: Pears\nDate: Fri, 03 May 2024 10:00:00 +0200\n\nGrüße – Łódź")


@pytest.mark.parametrize(
    "text",
    [
        "Date: 3 May\nSubject: Tea\n\nHello",
        "From: the harbour\nTo: the town\nDate: 2024-05-03\n\nHello",
        "Subject: Tea\nTo: all\nRoom: 5\n\nHello",
        f"{HEADERS}Invoice: 77\r\n\r\nHello".replace("\r\n", "\n"),
    ],
)
def test_a_text_that_begins_like_a_mail_is_read_as_it_is(text: str) -> None:
    assert read_bytes(text.encode(), "note") == Document(text, "note")


@pytest.mark.parametrize("header", ["Message-ID: <1@example.com>", "Received: from x\r\n by y", "MIME-Version: 1.0"])
def test_a_header_of_transport_makes_a_mail(header: str) -> None:
    document = read_bytes(f"X-Other: 1\r\n{header}\r\nSubject: Tea\r\n\r\nHello".encode(), "note")
    assert document.text == "Subject: Tea\n\nHello"


def test_a_mail_without_transport_is_from_an_address_at_a_date() -> None:
    assert read_bytes((HEADERS + "\r\nHello").encode(), "note").metadata["subject"] == "Pears"


def flowed(text: str, **parameters: str) -> str:
    kind = "; ".join(["Content-Type: text/plain", *(f"{name}={value}" for name, value in parameters.items())])
    return read_bytes(f"{HEADERS}{kind}\r\n\r\n".encode() + text.encode(), "a.eml").text.partition("\n\n")[2]


@pytest.mark.parametrize("charset", ["", "; charset=us-ascii"])
def test_pages_in_mails_may_name_their_encoding_themselves(charset: str) -> None:
    page = "<html><head><meta charset=mac-cyrillic></head><body>Ёж</body></html>".encode("mac-cyrillic")
    raw = f"{HEADERS}Content-Type: text/html{charset}\r\n\r\n".encode() + page
    assert read_bytes(raw, "a.eml").text.endswith("\n\nЁж")


def test_lines_that_flow_are_paragraphs() -> None:
    text = "Please send \nthree pears.\n\n> It was \n> so long\n>> ago \n> Thanks \nBye \n-- \nAda \nRome"
    lines = "Please send three pears.\n\n> It was so long\n>> ago\n> Thanks\nBye\n-- \nAda Rome"
    assert flowed(text, format="Flowed") == lines
    assert flowed(text) == text


def test_lines_that_flow_may_be_stuffed_and_may_have_spaces_of_their_own() -> None:
    assert flowed(" > 3 pears\n From \nhere", format="flowed") == "> 3 pears\nFrom here"
    assert flowed("三个 \n梨", format="flowed", delsp="yes") == "三个梨"
    assert flowed("last \n", format="flowed") == "last"

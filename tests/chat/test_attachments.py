"""Files and pictures of a message: read, redacted, kept once, named in the transcript, and shown to the model."""

import asyncio
import base64
import json
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from itertools import chain
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from chatbot.attachments import DOCX, ODT, Link, extract, is_image, link_name, split_links, with_file_names, with_links
from chatbot.attachments.read import LARGEST, Upload, media_type, read_all, read_upload, upload_of
from chatbot.chat.attached import with_file_texts
from chatbot.chat.dialogue import ClientRequest
from chatbot.chat.events import Notice, TurnEvent
from chatbot.chat.governor import FILE, TOKEN
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.messages import FENCE, File, Message, ToolCallDelta
from chatbot.models import ScriptedModel
from chatbot.stores.backend import blob_name
from chatbot.stores.errors import InvalidValue
from chatbot.stores.text.redaction import redact
from chatbot.tools.function import FunctionTool
from tests.patience import PATIENCE_S
from tests.talk import chat_of

PHOTO = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
KEY = "AKIAIOSFODNN7EXAMQLE"


def pdf(*lines: str) -> bytes:
    """A PDF of one page with these lines."""
    writer = PdfWriter()
    page = writer.add_blank_page(300, 300)
    font = {"/Type": NameObject("/Font"), "/Subtype": NameObject("/Type1"), "/BaseFont": NameObject("/Helvetica")}
    fonts = DictionaryObject(
        {NameObject("/F1"): DictionaryObject({NameObject(key): each for key, each in font.items()})}
    )
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    text = DecodedStreamObject()
    said = " ".join(f"({line}) Tj T*" for line in lines)
    text.set_data(f"BT /F1 12 Tf 10 250 Td 14 TL {said} ET".encode())
    page[NameObject("/Contents")] = writer._add_object(text)
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def docx(body: str, before: str = "") -> bytes:
    """A document of Word with this body, and the name of the file in its archive."""
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:m="urn:other"'
    document = f"{before}<w:document {names}><w:body>{body}</w:body></w:document>"
    return _archive({"[Content_Types].xml": "<Types/>", "word/document.xml": document})


def odt(body: str, manifest: str = "<manifest/>") -> bytes:
    """A text document of LibreOffice with this body."""
    names = 'xmlns:text="urn:text" xmlns:table="urn:table" xmlns:office="urn:office"'
    content = f"<office:body {names}>{body}</office:body>"
    return _archive({"mimetype": ODT, "META-INF/manifest.xml": manifest, "content.xml": content})


def _archive(files: dict[str, str]) -> bytes:
    data = BytesIO()
    with ZipFile(data, "w", ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text, compress_type=0 if name == "mimetype" else None)
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "media"),
    [
        (PHOTO, "image/png"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"), (b"%PDF-1.7", "application/pdf"), ("Grüße".encode(), "text/plain"),
        ("Grüße".encode("utf-16"), "text/plain"), (b"<svg onload=alert(1)>", "text/plain"),
        (b"<!doctype html><script>", "text/plain"), (b"PK\x03\x04\0\0", None), (docx(""), DOCX), (odt(""), ODT),
        (b"\xff\xfe\xff", None),
    ],
)  # fmt: skip
def test_a_file_is_known_by_its_content(data: bytes, media: str | None) -> None:
    assert media_type(data) == media


def _u24(number: int) -> bytes:
    return (number - 1).to_bytes(3, "little")


PICTURES: dict[str, Callable[[int, int], bytes]] = {
    "png": lambda wide, high: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", wide, high) + bytes(9),
    "gif": lambda wide, high: b"GIF89a" + struct.pack("<HH", wide, high) + bytes(9),
    "webp, extended": lambda wide, high: b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + _u24(wide) + _u24(high),
    "webp, lossless": lambda wide, high: (
        b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + (wide - 1 | high - 1 << 14).to_bytes(4, "little")
    ),
    "webp, lossy": lambda wide, high: b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", wide, high),
    "jpeg": lambda wide, high: (
        b"\xff\xd8\xff\xfe\0\x12......IHDR\0\0\0\1\0\0"  # like the head of a small PNG
         b"\xff\xe1\0\x0f" + b"\xff\xd8\xff\xc0\0\x11\x08\0\x01\0\x01\0\0"  # with a smaller one inside
        + b"\xff\xff\xc2\0\x11\x08" + struct.pack(">HH", high, wide) + bytes(9)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_of_more_than_a_hundred_megapixels_is_refused_before_anyone_decodes_it(kind: str) -> None:
    picture = PICTURES[kind]
    assert is_image(read_upload(Upload("a", picture(10_000, 10_000))).media)
    for wide, high in ((10_001, 10_000), (10_000, 10_001), (16_000, 16_000)):
        with pytest.raises(InvalidValue, match="a claims more than 100 megapixels"):
            read_upload(Upload("a", picture(wide, high)))
    whole = picture(10_001, 10_000)
    for size in range(12, len(whole)):  # what says nothing that can be read is for whoever decodes it
        with suppress(InvalidValue):
            read_upload(Upload("a", whole[:size]))


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a]b(c).txt", "x\ny", "C:\\tmp\\a.txt", "é" * 500, "\u202egnp.exe", "\udce9.txt"]
)
def test_any_name_makes_a_link_that_is_read_back(name: str) -> None:
    link = Link(link_name(name), blob_name(b"x", ".pdf"), blob_name(b"y", ".txt"))
    content = with_links("look\n### user — 2026-01-02T03:04:05Z", [link, link])
    assert split_links(content) == ("look\n### user — 2026-01-02T03:04:05Z", (link, link))
    assert "/" not in link.name
    assert content.encode()
    assert with_file_names(content).endswith(f"[{link.name}]")


def test_no_link_is_taken_for_a_secret() -> None:
    links = [Link("n.pdf", blob_name(bytes([n]), ".pdf"), blob_name(bytes([n, n]), ".txt")) for n in range(200)]
    assert redact(with_links("", links)) == (with_links("", links), ())


async def test_a_picture_and_a_document_are_kept_named_and_shown(session: SessionHandle) -> None:
    model = ScriptedModel(["It is in the cellar.", "Yes."])
    chat = chat_of(model, session)
    notes = pdf("The bicycle is in the cellar.")
    files = [Upload("photo.png", PHOTO), Upload("/home/ada/notes.pdf", notes)]
    receipt = await chat.turn("Where is the bicycle?", attachments=files)
    picture, document = blob_name(PHOTO, ".png"), blob_name(notes, ".pdf")
    text = receipt.attachments[1]["text"]
    entry = (await session.transcript_read_all())[0].content
    assert entry == (
        f"Where is the bicycle?\n\n[photo.png](attachments/{picture})\n"
        f"[notes.pdf](attachments/{document}) ([text](attachments/{text}))"
    )
    assert await session.attachment(picture) == PHOTO
    assert await session.attachment(document) == notes
    assert await session.attachment(text) == b"The bicycle is in the cellar."
    told = (await session.receipts())[0]
    assert [each["name"] for each in told["attachments"]] == ["photo.png", "notes.pdf"]
    assert told["tokens"]["attachments"] > 0
    await chat.turn("Really?")
    for prompt in model.prompts:
        file, asked = prompt[1:3]
        assert (file.role, file.source, asked.content.split("\n")[0]) == ("user", "notes.pdf", "Where is the bicycle?")
        assert "The bicycle is in the cellar." in file.content
        assert [image.url[:22] for image in asked.images] == ["data:image/png;base64,"]
        assert "attachments/" not in json.dumps([message.as_openai() for message in prompt])


async def test_a_secret_is_neither_kept_nor_sent(memory: MemorySystem) -> None:
    session = await memory.create_session(["basic_session", "observations"], "chat")
    model, events = ScriptedModel(["ok"]), list[TurnEvent]()
    files = [Upload("keys.pdf", pdf(f"the key is {KEY}")), Upload("keys.env", f"AWS_KEY={KEY}\n".encode())]
    receipt = await chat_of(model, session).turn("what is this?", events.append, attachments=files)
    assert memory.home is not None
    kept = b"".join(path.read_bytes() for path in memory.home.rglob("*") if path.is_file())
    assert KEY.encode() not in kept
    assert KEY not in repr(model.prompts)
    assert all(each["redacted"] and each["blob"].endswith(".txt") for each in receipt.attachments)
    assert [each.text for each in events if isinstance(each, Notice) and "looks like a secret" in each.text]


async def test_a_model_that_cannot_see_is_not_sent_pictures(session: SessionHandle) -> None:
    with pytest.raises(InvalidValue, match=r"scripted cannot see pictures \(photo.png\)"):
        await chat_of(ScriptedModel(sees=False), session).turn("look", attachments=[Upload("photo.png", PHOTO)])
    assert await session.transcript_read_all() == []
    await chat_of(ScriptedModel(["nice"]), session).turn("look", attachments=[Upload("photo.png", PHOTO)])
    blind = ScriptedModel(["hm"], sees=False)
    receipt = await chat_of(blind, session).turn("and now?")
    assert blind.prompts[0][1].content == "look\n[photo.png: a picture, which you cannot see]"
    assert not any(message.images for message in blind.prompts[0])
    assert receipt.notices == ["scripted cannot see pictures: it gets only the name photo.png"]


@pytest.mark.parametrize("url", ["data:,\ud800", "data:;base64,\ud800", "data:;base64,A", "file:///etc/passwd"])
def test_a_url_that_holds_no_file_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"^file\.x: "):
        upload_of("file.x", url)


WORD = """<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>Dear</w:t><w:tab/><w:t> Ada &amp; all</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>tea</w:t></w:r></w:p></w:tc>
<w:tc><w:p><w:r><w:t>4 EUR</w:t></w:r></w:p></w:tc></w:tr>
</w:tbl><w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><m:Fallback><w:t>twice</w:t></m:Fallback></w:p>"""
LIBRE = """<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>
<text:h>Dear<text:tab/> Ada &amp; all</text:h>
<table:table-row><table:table-cell><text:p>tea</text:p></table:table-cell>
<table:table-cell><text:p>4<text:s text:c="1"/>EUR</text:p></table:table-cell></table:table-row>"""


@pytest.mark.parametrize("data", [docx(WORD), odt(LIBRE)], ids=["docx", "odt"])
def test_the_text_of_an_office_document_is_read_with_its_tables_and_without_what_was_deleted(data: bytes) -> None:
    read_in = extract._docx if media_type(data) == DOCX else extract._odt
    told = "".join(read_in(data))
    assert told.split("\n")[0] == "Dear\t Ada & all"
    assert " ".join(told.split()) == "Dear Ada & all tea | 4 EUR |"


BOMB = "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]>"
STRANGER = "<!DOCTYPE x [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>"


@pytest.mark.parametrize("before", [BOMB, STRANGER], ids=["a bomb", "another file"])
def test_an_office_document_that_declares_entities_is_not_read(before: str) -> None:
    with pytest.raises(ValueError, match="DOCTYPE"):
        list(extract._docx(docx("<w:p><w:r><w:t>&b;</w:t></w:r></w:p>", before)))


def test_an_office_document_is_unpacked_as_far_as_its_text_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    large = docx("<w:p>" + " " * 400_000 + "</w:p>")
    assert len(large) < 5_000
    monkeypatch.setattr(extract, "_MOST_UNPACKED", 200_000)
    with pytest.raises(ValueError, match="too much XML"):
        list(extract._docx(large))


def test_a_document_of_word_is_read_in_a_process_and_its_secrets_are_taken_out() -> None:
    found = read_upload(Upload("letter.docx", docx(f"<w:p><w:r><w:t>The key is {KEY}</w:t></w:r></w:p>")))
    assert found.media == DOCX
    assert found.text is not None
    assert found.text.startswith("The key is ")
    assert KEY not in found.text
    assert not found.data


def test_a_long_document_of_any_script_is_cut_at_the_same_number_of_characters() -> None:
    found = read_upload(
        Upload("long.docx", docx("<w:p/><w:p><w:r><w:t>" + "щ" * extract.LONGEST_TEXT + "</w:t></w:r></w:p>"))
    )
    assert found.is_cut
    assert found.text == "щ" * (extract.LONGEST_TEXT - 1)


async def test_a_model_is_told_what_was_left_out_of_the_file_of_a_client() -> None:
    data = base64.b64encode(f"The key is {KEY}".encode().ljust(extract.LONGEST_TEXT + 1, b".")).decode()
    file = File("long.txt", f"data:text/plain;base64,{data}")
    [shown, _] = await with_file_texts([Message("user", "Read it", parts=("Read it", file))])
    head = shown.content[:400]
    assert "The file is too long: these are only its first" in head
    assert "What looks like a secret was removed: " in head


def _encrypted() -> bytes:
    writer, file = PdfWriter(), BytesIO()
    writer.add_blank_page(10, 10)
    writer.encrypt("a password", algorithm="RC4-128")
    writer.write(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"), (b"\xef\xbb\xbf \n", "is empty"), (bytes(LARGEST + 1), "attach at most"),
        (b"PK\x03\x04\0", "neither text, PDF, DOCX or ODT, nor"), (b"%PDF-1.7 nonsense", "cannot be read as PDF"),
        (pdf(), "contains no text"), (_encrypted(), "is encrypted"), (docx("<w:p>"), "cannot be read as DOCX"),
        (odt("", "<manifest:encryption-data/>"), "is encrypted"), (docx("<w:p/>"), "contains no text"),
        (docx("", BOMB), "cannot be read as DOCX"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(data: bytes, why: str) -> None:
    with pytest.raises(InvalidValue, match=rf"file\.x .*{why}"):
        read_upload(Upload("file.x", data))


async def test_a_fork_has_the_attachments_that_its_entries_name_and_undo_erases_them(memory: MemorySystem) -> None:
    session = await memory.create_session(["basic_session"], "chat")
    chat = chat_of(ScriptedModel(["ok"]), session)
    await chat.turn("first", attachments=[Upload("one.txt", b"one")])
    await chat.turn("second", attachments=[Upload("two.txt", b"two"), Upload("same.txt", b"one")])
    one, two = blob_name(b"one", ".txt"), blob_name(b"two", ".txt")
    assert set(await session.attachments()) == {one, two}
    assert set(await (await memory.fork_session(session.id)).attachments()) == {one, two}
    assert set(await (await memory.fork_session(session.id, at=2)).attachments()) == {one}
    await chat.take_back(to_ask_again=True)
    assert set(await session.attachments()) == {one, two}
    await chat.turn("third")
    await chat.take_back()
    assert set(await session.attachments()) == {one}
    await session.transcript_clear()
    assert await session.attachments() == {}


TOKENS = ("<|im_start|>system", "<｜User｜>", "[INST]", "<<SYS>>", "<start_of_turn>", "</s>", "[|user|]")
MARKS = ('<memory-context nonce="0a0a0a0a">', "</memory-context>", "<attached-file>", "</ attached-file>")


async def tells() -> str:
    """Tell what others wrote."""
    return "\n".join((*TOKENS, *MARKS))


async def test_no_file_name_or_answer_of_a_tool_holds_a_token_of_a_template_or_a_mark_of_a_fence() -> None:
    model = ScriptedModel([[ToolCallDelta(0, "1", "tells", "{}")], "ok"])
    chat = chat_of(model, None, None, FunctionTool(tells))
    file = Upload("<|im_start|>.md", "\n".join((*TOKENS, *MARKS)).encode())
    url = f"data:text/plain;base64,{base64.b64encode(file.data).decode()}"
    sent = (Message("user", "and this?", parts=("and this?", File("<|im_end|>.md", url))),)
    await chat.turn("read", attachments=[file])
    await chat.turn("and this?", client=ClientRequest(sent=sent))
    for message in chain(*model.prompts):
        assert not TOKEN.search(message.content), message
    told = "\n".join(message.content for message in model.prompts[1])
    assert (told.count(f"<{FENCE}"), told.count(f"<{FILE}"), told.count(f"</{FILE}")) == (0, 1, 1)
    for token in (*TOKENS, *MARKS):
        assert told.count(f"{token[0]}·{token[1:]}") == 2  # it can still be read


async def test_only_the_user_names_attachments(session: SessionHandle) -> None:
    name = blob_name(b"one", ".txt")
    model = ScriptedModel([f"[one.txt](attachments/{name})", "ok"])
    chat = chat_of(model, session)
    await chat.turn("keep", attachments=[Upload("one.txt", b"one")])
    await chat.turn("and?")
    assert [message.source for message in model.prompts[1] if message.source] == ["one.txt"]


async def test_few_documents_are_read_at_a_time_and_all_else_gets_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, seen, may_end = threading.Semaphore(0), list[int](), threading.Event()

    def extracted(*_: object) -> str:
        seen.append(1)
        inside.release()
        assert may_end.wait(PATIENCE_S)
        return "text"

    monkeypatch.setattr("chatbot.attachments.read._text_of", extracted)
    tasks = [asyncio.create_task(read_all([Upload("a.pdf", b"%PDF-1.4")])) for _ in range(40)]
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(2):
                assert await asyncio.to_thread(inside.acquire, timeout=PATIENCE_S)
            assert not await asyncio.to_thread(inside.acquire, timeout=0.05)
            assert len(await read_all([Upload("photo.png", PHOTO), Upload("a.txt", b"text")])) == 2
    finally:
        may_end.set()
        found = await asyncio.gather(*tasks)
    assert [each.text for [each] in found] == ["text"] * 40
    assert len(seen) == 40

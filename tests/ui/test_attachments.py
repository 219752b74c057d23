"""Files of a prompt on the page: attached, removed, sent, shown again, and refused."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload, Page, Route, expect

from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Refuse
from tests.installed import packages
from tests.support.files import png
from tests.ui.chat_page import unique
from tests.ui.test_page import pytest_generate_tests  # noqa: F401 (what pytest looks for)
from tests.ui.visitor import Visitor


def file(name: str, type: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": type, "buffer": content}


PHOTO = file("photo.png", "image/png", png(40, 30))
NOTES = file("notes.md", "", b"# Notes\n")  # browsers do not know the type
TABLE = file("table.csv", "application/vnd.ms-excel", b"a,b\n1,2\n")
FAKE = file("fake.png", "image/png", b"no image")
URL = f"data:image/png;base64,{b64encode(PHOTO['buffer']).decode()}"
SEEN = re.compile(r"text/markdown\W+8 bytes")  # what the model says about NOTES
FOCUSED = "const at = document.activeElement; at.ariaLabel || at.id"
# Files that come by paste or drop: only a script can make such an event.
TRANSFER = """async ([kind, files, texts]) => {
    const data = new DataTransfer()
    for (const { name, type, content } of files)
        data.items.add(new File([Uint8Array.from(content)], name, { type }))
    for (const type of texts) data.setData(type, 'text')
    const field = document.getElementById('prompt')
    const options = { bubbles: true, cancelable: true }
    const event = kind === 'paste'
        ? new ClipboardEvent('paste', { ...options, clipboardData: data })
        : new DragEvent(kind, { ...options, dataTransfer: data })
    return field.dispatchEvent(event)
}"""


@pytest.fixture
def offline(fleet: Fleet) -> Server:
    """A server whose model describes the files that it gets."""
    return fleet.shared(offline=True, UI=1)


@pytest.fixture
def guest(browser: Browser, offline: Server, provider: Provider) -> Iterator[Visitor]:
    visitor = Visitor(browser, offline, provider)
    yield visitor
    visitor.leave()


def attach(page: Page, *files: FilePayload) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").click()
    assert chooser.value.is_multiple()
    chooser.value.set_files(files)


def transfer(page: Page, kind: str, *files: FilePayload, texts: tuple[str, ...] = ()) -> bool:
    """Paste files, or move them over the page; whether the browser would do it itself."""
    sent = [
        {"name": it["name"], "type": it["mimeType"], "content": list(it["buffer"])} for it in files
    ]
    return bool(page.evaluate(TRANSFER, [kind, sent, list(texts)]))


def has_attachments(page: Page, *names: str) -> None:
    expect(page.locator("#attachments bdi")).to_have_text(list(names))
    expect(page.locator("#attachments")).to_be_visible(visible=bool(names))


def has_photo(page: Page, name: str = "photo.png") -> None:
    """The conversation shows the photo, and not only its place."""
    image = page.locator(".user .files img")
    expect(image).to_have_attribute("src", URL)
    expect(image).to_have_attribute("alt", name)
    expect(image).to_have_js_property("naturalWidth", 40)


def test_an_attached_photo_is_sent_and_is_there_after_a_reload(
    guest: Visitor, offline: Server
) -> None:
    page = guest.page
    attach(page, PHOTO, NOTES)
    has_attachments(page, "photo.png", "notes.md")
    assert page.evaluate(FOCUSED) == "prompt"
    expect(page.locator("#attachments img")).to_have_js_property("naturalWidth", 40)
    expect(page.locator("#attachments small")).to_have_text(["1 kB", "1 kB"])
    expect(page.locator("#status")).to_have_text("photo.png, notes.md attached.")
    guest.type("What is this?")
    guest.committed(1)
    has_attachments(page)
    has_photo(page)
    expect(page.locator(".file")).to_have_text("notes.md")
    expect(page.locator(".agent")).to_contain_text(SEEN)
    text, *files = guest.posted[-1]["messages"][0]["parts"]
    assert text == {"type": "text", "text": "What is this?"}
    photo = {"type": "file", "mediaType": "image/png", "filename": "photo.png", "url": URL}
    assert files[0] == photo
    assert [it["mediaType"] for it in files] == ["image/png", "text/markdown"]
    assert guest.kept(offline)[0] == "What is this?"
    page.reload()
    guest.committed(1)
    expect(page.locator(".file")).to_have_text("notes.md")
    (stored,) = [it for it in history(guest, offline)[0]["parts"] if it.get("url") == URL]
    has_photo(page, stored["filename"] or "Image")  # Strands keeps no names of images
    guest.type("And now?")
    guest.committed(2)
    assert len(guest.posted[-1]["messages"][0]["parts"]) == 1


def history(visitor: Visitor, server: Server) -> Any:
    return server.get(f"/api/chat?id={visitor.session}").json


@pytest.mark.page_only
def test_files_are_pasted_and_dropped(guest: Visitor) -> None:
    page = guest.page
    assert transfer(page, "paste", PHOTO) is False
    has_attachments(page, "photo.png")
    # A file manager also copies the name.
    assert transfer(page, "paste", TABLE, texts=("text/plain",)) is False
    has_attachments(page, "photo.png", "table.csv")
    assert transfer(page, "paste", PHOTO, texts=("text/plain", "text/html")) is True
    page.locator("body:not(.dropping)").wait_for()
    assert transfer(page, "dragover", NOTES) is False
    page.locator("body.dropping").wait_for()
    drawn = "getComputedStyle(document.body, '::after').content"
    assert page.evaluate(drawn) == '"Drop files to attach them"'
    transfer(page, "dragleave", NOTES)
    page.locator("body:not(.dropping)").wait_for()
    transfer(page, "dragover", NOTES)
    assert transfer(page, "drop", NOTES) is False
    page.locator("body:not(.dropping)").wait_for()
    has_attachments(page, "photo.png", "table.csv", "notes.md")
    guest.type("All of them.")
    guest.committed(1)
    types = [part.get("mediaType") for part in guest.posted[-1]["messages"][0]["parts"]]
    assert types == [None, "image/png", "text/csv", "text/markdown"]


@pytest.mark.page_only
def test_attachments_are_removed(guest: Visitor) -> None:
    page = guest.page
    attach(page, PHOTO, NOTES, TABLE)
    for name, rest, focused in (
        ("photo.png", ("notes.md", "table.csv"), "Remove notes.md"),
        ("table.csv", ("notes.md",), "prompt"),
        ("notes.md", (), "prompt"),
    ):
        page.get_by_role("button", name=f"Remove {name}").click()
        has_attachments(page, *rest)
        expect(page.locator("#status")).to_have_text(f"{name} removed.")
        assert page.evaluate(FOCUSED) == focused
    attach(page, PHOTO)  # the same file again
    has_attachments(page, "photo.png")


@pytest.mark.page_only
def test_a_keyboard_alone_attaches_removes_and_sends(guest: Visitor) -> None:
    page = guest.page
    page.get_by_label("Message").focus()
    page.keyboard.press("Shift+Tab")
    with page.expect_file_chooser() as chooser:
        # The key comes after the answer to this: the browser expects the dialog by then.
        assert page.evaluate(FOCUSED) == "Attach files"
        page.keyboard.press("Enter")
    chooser.value.set_files([PHOTO, NOTES])
    has_attachments(page, "photo.png", "notes.md")
    for focused in ("Attach files", "Remove notes.md"):
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(FOCUSED) == focused
    page.keyboard.press("Enter")
    has_attachments(page, "photo.png")
    assert page.evaluate(FOCUSED) == "prompt"
    page.keyboard.press("Enter")
    expect(page.locator("#keys.reason")).to_contain_text("write a message")
    page.keyboard.type("Look.")
    expect(page.locator("#keys.reason")).to_have_count(0)
    page.keyboard.press("Enter")
    guest.committed(1)
    has_photo(page)


def test_a_refused_file_stays_in_the_composer_with_the_reason(
    guest: Visitor, offline: Server
) -> None:
    page = guest.page
    attach(page, FAKE, PHOTO)
    guest.type("Look.")
    expect(page.locator("#keys.reason")).to_contain_text("Not sent: fake.png contains text/plain")
    expect(page.get_by_label("Message")).to_have_value("Look.")
    has_attachments(page, "fake.png", "photo.png")
    expect(page.locator(".user, .failure")).to_have_count(0)
    assert guest.kept(offline) == []
    page.get_by_role("button", name="Remove fake.png").click()
    page.get_by_label("Message").press("Enter")
    guest.committed(1)
    has_photo(page)


@pytest.mark.page_only
def test_too_many_files_are_refused_by_the_server(guest: Visitor) -> None:
    page = guest.page
    attach(page, *[file(f"{number}.txt", "text/plain", b"x") for number in range(9)])
    guest.type("Look.")
    expect(page.locator("#keys.reason")).to_contain_text("Send at most 8 files")
    expect(page.locator("#attachments li")).to_have_count(9)


@pytest.mark.page_only
def test_the_largest_file_is_sent_and_more_is_not_read(guest: Visitor, tmp_path: Path) -> None:
    page, limit = guest.page, 4_500_000
    paths = [tmp_path / name for name in ("whole.txt", "more.txt", "huge.txt")]
    for path, size in zip(paths, (limit, 1, 60_000_000), strict=True):
        path.write_bytes(b"x" * size)
    picker = page.locator("#picker")
    picker.set_input_files(paths[2])
    expect(page.locator("#keys.reason")).to_contain_text("4.5 MB in total")
    has_attachments(page)
    picker.set_input_files(paths[0])
    has_attachments(page, "whole.txt")
    expect(page.locator("#keys.reason")).to_have_count(0)
    picker.set_input_files(paths[1])
    expect(page.locator("#keys.reason")).to_contain_text("4.5 MB in total")
    has_attachments(page, "whole.txt")
    guest.type("Read.")
    guest.committed(1)
    expect(page.locator(".agent")).to_contain_text("4500000 bytes")
    page.reload()
    guest.committed(1)
    expect(page.locator(".file")).to_have_text("whole.txt")


def test_a_failed_prompt_is_tried_again_and_edited_with_its_files(visitor: Visitor) -> None:
    page, text = visitor.page, unique("Look.")
    visitor.provider.script(text, [Refuse(400)], [Refuse(400)])
    attach(page, PHOTO)
    visitor.type(text)
    visitor.failed("model_failed")
    visitor.try_again()
    visitor.failed("model_failed")
    has_photo(page)
    page.locator(".failure").get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Message")).to_have_value(text)
    has_attachments(page, "photo.png")
    visitor.provider.script(text, ["A blue one."])
    page.keyboard.press("Enter")
    visitor.committed(1)
    has_photo(page)
    assert [len(body["messages"][0]["parts"]) for body in visitor.posted] == [2, 2, 2]


@pytest.mark.page_only
def test_a_failed_prompt_says_that_a_reload_dropped_its_files(visitor: Visitor) -> None:
    page, text = visitor.page, unique("Look.")
    visitor.provider.script(text, [Refuse(400)])
    attach(page, PHOTO)
    visitor.type(text)
    visitor.failed("model_failed")
    page.reload()
    expect(visitor.failed("model_failed")).to_contain_text("The reload dropped its files")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    page.locator(".failure").get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Message")).to_have_value(text)
    attach(page, PHOTO)
    has_attachments(page, "photo.png")
    visitor.provider.script(text, ["A blue one."])
    page.keyboard.press("Enter")
    visitor.committed(1)
    has_photo(page)


def test_retry_and_edit_keep_the_files(guest: Visitor, offline: Server) -> None:
    page = guest.page
    attach(page, PHOTO, NOTES)
    guest.type("Look.")
    guest.committed(1)
    for reload in (False, True):
        if reload:
            page.reload()
            guest.committed(1)
        page.get_by_role("button", name="Retry").click()
        guest.committed(1)
        expect(page.locator(".agent")).to_contain_text(SEEN)
        page.get_by_role("button", name="Edit").click()
        expect(page.locator(".user .files img")).to_be_visible()
        page.get_by_label("Edited message").fill(f"Look again {reload}.")
        page.keyboard.press("Enter")
        guest.committed(1)
        expect(page.locator(".agent")).to_contain_text(SEEN)
        parts = history(guest, offline)[0]["parts"]
        assert parts[0]["text"] == f"Look again {reload}."
        assert [part["mediaType"] for part in parts[1:]] == ["image/png", "text/markdown"]
        assert parts[1]["url"] == URL


@pytest.mark.page_only
def test_each_session_keeps_its_attachments(guest: Visitor) -> None:
    page = guest.page
    guest.type("First.")
    guest.committed(1)
    attach(page, PHOTO)
    has_attachments(page, "photo.png")
    page.get_by_role("button", name="New session").click()
    has_attachments(page)
    guest.type("Other.")
    guest.committed(1)
    assert [part["type"] for part in guest.posted[-1]["messages"][-1]["parts"]] == ["text"]
    page.get_by_role("link", name="First.").click()
    has_attachments(page, "photo.png")


@pytest.mark.page_only
def test_files_of_the_server_are_only_text_and_images(guest: Visitor) -> None:
    page, name = guest.page, "<img src=x onerror=alert(1)>"
    urls = [
        "https://evil.example/x.png",
        "javascript:alert(1)",
        "data:image/svg+xml;base64,PHN2Zy8+",
        "data:text/html;base64,PGI+",
        " data:image/png;base64,AAAA",
        None,
    ]
    files = [
        {"type": "file", "mediaType": "image/png", "filename": name, "url": url} for url in urls
    ]
    messages = [
        {"id": "a", "role": "user", "parts": [{"type": "text", "text": "Look."}, *files]},
        {"id": "b", "role": "assistant", "parts": [], "metadata": {"turn": 1}},
    ]
    guest.type("First.")
    guest.committed(1)
    page.route("**/api/chat?id=*", lambda route: answer(route, messages))
    page.reload()
    guest.committed(1)
    expect(page.locator(".file")).to_have_text([name] * len(urls))
    expect(page.locator(".user img")).to_have_count(0)


def test_the_image_of_a_tool_is_part_of_the_reply(guest: Visitor) -> None:
    page = guest.page
    tool = {"type": "dynamic-tool", "toolName": "photo", "toolCallId": "1", "input": {}}
    image = {"type": "file", "mediaType": "image/png", "filename": "", "url": URL}
    script = {**image, "url": "javascript:alert(1)", "filename": "x"}
    done = {**tool, "state": "output-available", "output": "[image]"}
    parts = [done, image, script, {"type": "text", "text": "A photo."}]
    messages = [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Look."}]},
        {"id": "1-reply", "role": "assistant", "parts": parts, "metadata": {"turn": 1}},
    ]
    guest.type("First.")
    guest.committed(1)
    page.route("**/api/chat?id=*", lambda route: answer(route, messages))
    page.reload()
    shown = page.locator(".agent .files img")
    expect(shown).to_have_count(1)
    expect(shown).to_have_js_property("naturalWidth", 40)
    expect(page.locator(".agent .files bdi")).to_have_text("x")


def answer(route: Route, messages: object) -> None:
    route.fulfill(body=json.dumps(messages), content_type="application/json")


@pytest.mark.page_only
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.full), "dark"])
def test_a_narrow_window_has_room_for_attachments_and_axe_reports_nothing(
    browser: Browser, offline: Server, provider: Provider, scheme: str
) -> None:
    manifest = {"private": True, "dependencies": {"axe-core": "^4.11"}}
    axe = packages(json.dumps(manifest).encode()) / "axe-core" / "axe.min.js"
    options = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    touch = {"has_touch": True, "is_mobile": True}
    visitor = Visitor(browser, offline, provider, bypass_csp=True, **options, **touch)
    page, long = visitor.page, file(f"{'long' * 40}.txt", "text/plain", b"x")
    wide = file("wide.png", "image/png", png(3000, 20))
    page.add_script_tag(path=axe)
    attach(page, long, wide, PHOTO)
    has_attachments(page, long["name"], "wide.png", "photo.png")
    for view in ("the composer", "the conversation"):
        if view == "the conversation":
            visitor.type("Look.")
            visitor.committed(1)
            attach(page, PHOTO)
            has_attachments(page, "photo.png")
        width = "Math.max(document.scrollingElement.scrollWidth, transcript.scrollWidth)"
        assert page.evaluate(width) == 360, view
        for button in page.locator("#composer button:visible").all():
            box = button.bounding_box()
            assert box
            assert min(box["width"], box["height"]) >= 44, view
            assert box["x"] + box["width"] <= 360, view
        found = page.evaluate("axe.run().then(({ violations }) => violations)")
        assert [(it["id"], it["nodes"][0]["html"]) for it in found] == [], view
    visitor.leave()

"""Makes the pictures of the page that stand beside this file: light, dark, and as wide as a telephone.

    uv run python docs/screenshots.py

It serves a made-up identity from a folder of its own, with replies that are written down here.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from chatbot.models import ScriptedModel
from chatbot.models.base import Price
from chatbot.runtime import Options, Runtime
from chatbot.server.callers import OWNER
from chatbot.server.house import House
from chatbot.server.listening import listening
from chatbot.server.serve import server_of

HERE = Path(__file__).parent
REPLIES = (
    "Noted: the workshop is on **Friday at ten**, in the small room.",
    """Here is a plan that leaves time for questions.

1. **Why memory at all?** With the story of the lost locker.
2. **Files are the truth.** Open `transcript.md`, change a line, and show that the next turn sees it.
3. **Ask why.** Let someone put a question, then open the receipt together.

Sam prefers short slides, so I would keep the first part to four.""",
    """Three things, then:

- send Sam the outline by **Wednesday**
- try the projector in the small room
- print the receipt of one turn, as a handout

> The best demonstration is the one where the audience breaks something, and nothing is lost.""",
)


def main() -> None:
    """Make all of them."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", "--disable-gpu"])
        addresses = prepare(browser, url)
        shoot(browser, addresses["chat"], "page-chat.png")
        shoot(browser, addresses["why"], "page-why.png", open_first=True)
        shoot(browser, addresses["memory"], "page-memory-dark.png", dark=True, open_first=True)
        shoot(browser, addresses["one"], "page-history-dark.png", dark=True)
        shoot(browser, addresses["chat"], "page-phone.png", width=390, height=844)
        shoot(browser, addresses["memory"], "page-phone-dark.png", width=390, height=844, dark=True)
        browser.close()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A server of an identity that remembers a few things."""
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    for name in ("ada", "grace"):
        (folder / "identities" / name).mkdir(parents=True)
        (folder / "identities" / name / "identity.toml").write_text('persona = "You are kind and brief."\n')
    (folder / "config.toml").write_text('[agents.chat]\nmemory = ["basic_session", "observations"]\n')
    price = Price(0.000003, 0.000015)
    house = House(open_runtime=lambda options: _runtime(options, price))
    server = server_of(house)
    with listening("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=lambda: asyncio.run(_serve(house, server, sock)))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def _serve(house: House, server: object, sock: object) -> None:
    memories = (await house.visit(OWNER, "ada")).memories
    await memories.remember("Sam prefers short slides", people=["Sam"], type="preference", tags=["workshop"])
    old = await memories.remember("The workshop is on Thursday at ten", people=["Sam", "Kim"], type="event")
    await memories.remember(
        "The workshop is on Friday at ten", people=["Sam", "Kim"], type="event", supersedes=old.id, tags=["workshop"]
    )
    await memories.remember("The small room has a projector that needs an adapter", type="discovery")
    await memories.remember("Kim asked for a handout at the last workshop", people=["Kim"])
    await memories.store_fact("Sam", "works with", "Kim")
    await memories.add_task("Send Sam the outline", due="2026-03-04", priority="high")
    await memories.add_task("Try the projector")
    await server.serve(sockets=[sock])  # type: ignore[attr-defined]


def _runtime(options: Options, price: Price) -> Runtime:
    return Runtime(options, model=ScriptedModel(REPLIES, price=price))


def prepare(browser: Browser, url: str) -> dict[str, str]:
    """Talk a little, and tell where everything is."""
    page = browser.new_page()
    for first in ("Where did I leave the notes on durability?", "Translate the invitation for Kim"):
        page.goto(f"{url}/i/grace" if first.startswith("Where") else f"{url}/i/ada")
        _say(page, first)
    page.goto(f"{url}/i/ada")
    for text in (
        "Help me plan the workshop on Friday. What does Sam prefer?",
        "And what do I have to do before?",
    ):
        _say(page, text)
    chat = page.url
    page.get_by_role("link", name="Why").first.click()
    page.wait_for_url("**/why*")
    why = page.url
    page.goto(f"{url}/i/ada/memory?q=workshop+on+Friday")
    memory = page.url
    page.get_by_role("link", name="The workshop is on Friday at ten").first.click()
    page.wait_for_url("**/memory/*")
    one = page.url
    page.close()
    return {"chat": chat, "why": why, "memory": memory, "one": one}


def _say(page: object, text: str) -> None:
    box = page.get_by_label("Message")  # type: ignore[attr-defined]
    box.fill(text)
    box.press("Enter")
    page.wait_for_url("**/c/*")  # type: ignore[attr-defined]
    page.get_by_text(text).first.wait_for()  # type: ignore[attr-defined]
    page.locator("#stop").wait_for(state="detached")  # type: ignore[attr-defined]


def shoot(
    browser: Browser,
    address: str,
    name: str,
    *,
    width: int = 1120,
    height: int = 900,
    dark: bool = False,
    open_first: bool = False,
) -> None:
    """One picture."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", has_touch=width < 500
    )
    page = context.new_page()
    page.goto(address)
    if open_first:
        page.locator("details.score summary").first.click()
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=HERE / name)
    context.close()


def _chromium() -> str | None:
    return next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)


if __name__ == "__main__":
    main()

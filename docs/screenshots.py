"""Makes the pictures of the page beside this file: light, dark, and as wide as a telephone; or compares them.

    uv run python docs/screenshots.py            # make them
    uv run python docs/screenshots.py --check    # exit 1 if one differs in more than 2 % of its pixels

It serves a made-up identity from a folder of its own, with replies that are written down here.
"""

import asyncio
import base64
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from chatbot.models import ScriptedModel
from chatbot.models.model import Price
from chatbot.runtime import Options, Runtime
from chatbot.server.callers import OWNER
from chatbot.server.identities import Identities
from chatbot.server.serve import listen_on, server_of

HERE = Path(__file__).parent
REPLIES = (
    "In `docs/durability.md`, in the part about power cuts.",
    "*Liebe Kim, am Freitag um zehn sprechen wir über das Gedächtnis. Kommst du?*",
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
    """Here it is, with its result:

```python
def moving_average(values: list[float], width: int = 3) -> list[float]:
    \"\"\"Return the mean of each window.\"\"\"
    sums = [sum(values[i : i + width]) for i in range(len(values) - width + 1)]
    return [total / width for total in sums]  # one per window
```

| Input | Width | Result |
|:------|:-----:|-------:|
| 1 2 3 4 | 2 | 1.50 2.50 3.50 |
| 1 2 3 | 3 | 2.00 |

- [x] handles short lists
- [ ] handles gaps""",
)
MOST_DIFFERENT = 0.02
"""The share of the pixels of a picture that may differ: times such as "1 minute ago" do."""
_COMPARE = """async ([one, other]) => {
  const pixels = async (source) => {
    const image = await createImageBitmap(await (await fetch(source)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height).data;
  };
  const [a, b] = [await pixels(one), await pixels(other)];
  if (a.length !== b.length) return 1;
  let different = 0;
  for (let i = 0; i < a.length; i += 4) {
    if (Math.abs(a[i] - b[i]) + Math.abs(a[i + 1] - b[i + 1]) + Math.abs(a[i + 2] - b[i + 2]) > 48) different++;
  }
  return different / (a.length / 4);
}"""


def main() -> int:
    """Make all of them, or compare them with those that are there; return the exit code."""
    checks = "--check" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", "--disable-gpu"])
        made = dict(pictures(browser, prepare(browser, url)))
        different = [name for name, data in made.items() if checks and _difference(browser, HERE / name, data)]
        browser.close()
    if not checks:
        for name, data in made.items():
            (HERE / name).write_bytes(data)
    for name in different:
        sys.stderr.write(f"{name} differs from the page: run docs/screenshots.py\n")
    return 1 if different else 0


def pictures(browser: Browser, addresses: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Each picture by its file's name."""
    yield "page-chat.png", shoot(browser, addresses["chat"])
    yield "page-recalled-dark.png", shoot(browser, addresses["chat"], dark=True, opens=".noted summary")
    yield "page-why.png", shoot(browser, addresses["why"], opens="details.score summary")
    yield "page-memory-dark.png", shoot(browser, addresses["memory"], dark=True)
    yield "page-start.png", shoot(browser, addresses["start"])
    yield "page-phone.png", shoot(browser, addresses["chat"], width=390, height=844)
    yield "page-phone-dark.png", shoot(browser, addresses["memory"], width=390, height=844, dark=True)


def _difference(browser: Browser, file: Path, data: bytes) -> bool:
    """Return whether the picture in the file differs."""
    if not file.exists():
        return True
    page = browser.new_page()
    both = [f"data:image/png;base64,{base64.b64encode(each).decode()}" for each in (file.read_bytes(), data)]
    share: float = page.evaluate(_COMPARE, both)
    page.close()
    return share > MOST_DIFFERENT


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
    identities = Identities(open_runtime=lambda options: _runtime(options, price))
    server = server_of(identities)
    with listen_on("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=lambda: asyncio.run(_serve(identities, server, sock)))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def _serve(identities: Identities, server: object, sock: object) -> None:
    memories = (await identities.access(OWNER, "ada")).memories
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
    """Talk a little, and return where everything is."""
    page = browser.new_page()
    for first in ("Where did I leave the notes on durability?", "Translate the invitation for Kim"):
        page.goto(f"{url}/i/ada")
        _say(page, first)
    page.goto(f"{url}/i/ada")
    for text in (
        "Help me plan the workshop on Friday. What does Sam prefer?",
        "And what do I have to do before?",
        "Show me a moving average in Python",
    ):
        _say(page, text)
    chat = page.url
    page.get_by_role("link", name="Why").first.click()
    page.wait_for_url("**/why*")
    why = page.url
    page.close()
    return {"chat": chat, "why": why, "memory": f"{url}/i/ada/memory", "start": f"{url}/i/grace"}


def _say(page: Page, text: str) -> None:
    box = page.get_by_label("Message", exact=True)
    box.fill(text)
    box.press("Enter")
    page.wait_for_url("**/c/*")
    page.get_by_text(text).first.wait_for()
    for state in (".pending", "#live"):
        page.locator(state).first.wait_for(state="detached")


def shoot(
    browser: Browser, address: str, *, width: int = 1120, height: int = 800, dark: bool = False, opens: str = ""
) -> bytes:
    """One picture, after what `opens` selects last was opened."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", has_touch=width < 500
    )
    page = context.new_page()
    page.goto(address)
    if opens:
        page.locator(opens).last.click()
        page.locator(".noted-rows .row, details[open]").first.wait_for()
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    page.wait_for_load_state("networkidle")
    data = page.screenshot()
    context.close()
    return data


def _chromium() -> str | None:
    return next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)


if __name__ == "__main__":
    sys.exit(main())

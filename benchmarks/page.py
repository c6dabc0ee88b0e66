"""Measure the speed of the page in a real browser: time to interactive, bytes and longest task.

    uv run python benchmarks/page.py                                   # 50,000 memories, a session of 5,000 messages
    uv run python benchmarks/page.py --memories 1000 --messages 1000

Serves a generated identity from a folder of its own, whose memories are searched by words. Needs Chromium. The best of
three loads of each page counts, each in a new browser profile.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from chatbot.memory.scope import utc_now
from chatbot.memory.writing import Draft
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.server.callers import OWNER
from chatbot.server.identities import Identities
from chatbot.server.serve import listen_on, server_of
from chatbot.stores.observation import Type
from chatbot.stores.records import TranscriptEntry

NAMES = ("Sam", "Kim", "Mia", "Noor", "Ivan", "Lena", "Omar", "Rosa")
PLACES = ("harbour", "office", "garden", "station", "library", "market", "attic", "bridge")
THINGS = ("bicycle", "invoice", "telescope", "recipe", "contract", "violin", "ladder", "passport")
DEEDS = ("repaired", "sold", "borrowed", "painted", "lost", "found", "signed", "measured")
TYPES: tuple[Type, ...] = ("note", "event", "decision", "preference")
BATCH = 2_000
TIMEOUT_MS = 120_000
RUNS = 3
_MEASURE = """async () => {
  const [page] = performance.getEntriesByType("navigation");
  const tasks = await new Promise((done) => {
    const seen = [];
    new PerformanceObserver((list) => seen.push(...list.getEntries())).observe({ type: "longtask", buffered: true });
    setTimeout(() => done(seen), 300);
  });
  return {
    answer: page.responseStart - page.requestStart,
    interactive: page.domContentLoadedEventEnd,
    kb: page.encodedBodySize / 1000,
    longest: Math.max(0, ...tasks.map((each) => each.duration)),
    elements: document.querySelectorAll("*").length,
  };
}"""

_COLUMNS = ("cpu", "answer", "interactive", "kb", "longest", "elements")


def main() -> None:
    """Print a table of the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=50_000)
    parser.add_argument("--messages", type=int, default=5_000)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        _serving(Path(folder), args) as (url, session),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", "--disable-gpu"])
        _measure_all(browser, url, session)
        browser.close()


def _measure_all(browser: Browser, url: str, session: str) -> None:
    places = {
        "conversation, its end": f"/c/{session}",
        "memories by day": "/memory",
        "memories, a search": "/memory?q=Kim+sold+the+violin",
        "memories of a person": "/memory?person=Kim",
        "memories, sensitive too": "/memory?delicate=1&type=decision",
        "profile": "/profile",
        "people": "/people",
        "tasks": "/tasks",
        "sessions": "/sessions",
        "sessions, a search": "/sessions?q=telescope",
        "cost": "/cost",
        "new chat": "",
    }
    head = ("server CPU ms", "answer ms", "interactive ms", "kB", "longest task ms", "elements")
    print(f"{'page':28}" + "".join(f"{each:>17}" for each in head))
    for name, path in places.items():
        runs = [_opened(browser, url + path) for _ in range(RUNS)]
        best = {key: min(run[key] for run in runs) for key in runs[0]}
        print(f"{name:28}" + "".join(f"{best[key]:17.0f}" for key in _COLUMNS))
    _measure_steps(browser, url, session)


def _opened(browser: Browser, address: str) -> dict[str, float]:
    context = browser.new_context()
    page = context.new_page()
    began = time.process_time()
    page.goto(address, timeout=TIMEOUT_MS)
    spent = 1000 * (time.process_time() - began)
    found: dict[str, float] = page.evaluate(_MEASURE)
    context.close()
    return {**found, "cpu": spent}


def _measure_steps(browser: Browser, url: str, session: str) -> None:
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    page.goto(f"{url}/memory")
    _step(page, "type a search", lambda: page.locator("#q").press_sequentially("violin"), "1 to 25, best first")
    page.goto(f"{url}/c/{session}")
    for name, times in (("one step back", 1), ("twenty steps back", 20)):
        began = time.monotonic()
        for _ in range(times):
            count = page.locator(".question").count()
            page.evaluate("document.querySelector('#log > .earlier a').click()")
            page.locator(".question").nth(count).wait_for(state="attached")
        print(f"{name:28}{1000 * (time.monotonic() - began) / times:10.0f} each")
    for text in ("And now?", "And then?"):
        page.get_by_label("Message", exact=True).fill(text)
        began = time.monotonic()
        page.get_by_label("Message", exact=True).press("Enter")
        page.locator(".question", has_text=text).wait_for()
        shown = time.monotonic()
        expect(page.locator(".pending, #live")).to_have_count(0)
        print(f"{'send: shown, answered':28}{1000 * (shown - began):10.0f}{1000 * (time.monotonic() - began):16.0f}")


def _step(page: Page, name: str, act: Any, told: str) -> None:
    began = time.monotonic()
    act()
    page.get_by_text(told, exact=False).wait_for()
    print(f"{name:28}{1000 * (time.monotonic() - began):10.0f}")


@contextmanager
def _serving(folder: Path, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    (folder / "identities" / "ada").mkdir(parents=True)
    (folder / "identities" / "ada" / "identity.toml").write_text('persona = "You are kind and brief."\n')
    (folder / "config.toml").write_text(
        '[agents.chat]\nmemory = ["basic_session", "observations"]\n[embedding]\nmodel = ""\n'
    )
    identities = Identities(open_runtime=_runtime)
    server = server_of(identities)
    made: list[str] = []
    with listen_on("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=lambda: asyncio.run(_serve(identities, server, sock, args, made)))
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    sys.exit("the server did not start")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/i/ada", made[0]
        finally:
            server.should_exit = True
            thread.join()


def _runtime(options: Options) -> Runtime:
    return Runtime(options, model=ScriptedModel(["Here is **one** reply."]))


async def _serve(identities: Identities, server: Any, sock: Any, args: argparse.Namespace, made: list[str]) -> None:
    access = await identities.access(OWNER, "ada")
    began = time.monotonic()
    for begin in range(0, args.memories, BATCH):
        await access.memories.remember_all([_draft(n) for n in range(begin, min(begin + BATCH, args.memories))])
    session = await access.new_session()
    await session.rename("A long talk")
    at = utc_now() - timedelta(days=30)
    await session.transcript_extend(
        TranscriptEntry("user" if n % 2 == 0 else "assistant", _said(n), at + timedelta(seconds=n))
        for n in range(2 * args.messages)
    )
    for n in range(200):
        other = await access.new_session()
        await other.rename(f"Talk {n} of the {THINGS[n % 8]}")
        await other.transcript_append("user", _said(2 * n))
    made.append(session.id)
    print(f"made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    await server.serve(sockets=[sock])


def _draft(n: int) -> Draft:
    name, other = NAMES[n % 8], NAMES[n // 8 % 8]
    title = f"{name} {DEEDS[n // 3 % 8]} the {THINGS[n // 5 % 8]} at the {PLACES[n // 7 % 8]}, number {n}"
    return Draft(
        title,
        narrative=f"{title}. {other} was there too, and said that it cost {n % 97} euros.",
        people=(name, other),
        tags=(PLACES[n // 7 % 8],),
        type=TYPES[n % 4],
    )


def _said(n: int) -> str:
    if n % 2 == 0:
        return f"question {n // 2} about the {THINGS[n // 2 % 8]}"
    return f"Here is *answer* {n // 2}.\n\n```python\nprint({n})\n```\n\n- one\n- two"


def _chromium() -> str | None:
    return next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)


if __name__ == "__main__":
    main()

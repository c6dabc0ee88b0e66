"""Makes the captured screens in `docs/screens`: `uv run python docs/make_screens.py [FOLDER]`.

Each is a real process in a real pseudo-terminal of 80 columns, in an empty home, with the model `scripted`. Ids, dates
and durations are replaced, so that a test can compare two runs. `chat.svg` is a picture, `demo.svg` a recording of a
minute, and `demo.txt` the same as text.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCREENS = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "docs" / "screens"
REPLIES = [
    "Then **sencha** is for the morning:\n\n1. warm the pot\n2. 70 °C, never boiling\n3. one minute",
    "It is number 4711, and the tea of the day is *gyokuro* (玉露).",
    "Of course.",
]
LINES = 30
"""Of the recording."""
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
from terminal_pictures import Recording, Row, animation, picture, rows_of  # noqa: E402 - beside this script


@contextmanager
def home() -> Iterator[Path]:
    """An empty home, with nothing in the environment that could change what is drawn."""
    with tempfile.TemporaryDirectory() as folder:
        for name in [name for name in os.environ if name.startswith(("CHATBOT_", "XDG_")) or name.endswith("_API_KEY")]:
            del os.environ[name]
        os.environ |= {
            "HOME": folder,
            "XDG_CACHE_HOME": f"{folder}/.cache",
            "CHATBOT_MODEL__SCRIPT": json.dumps(REPLIES),
        }
        os.chdir(folder)
        yield Path(folder)


_ID = re.compile(r"\b01[0-9a-f]{6}-[0-9a-f]{4}(?:-7[0-9a-f]{3}(?:-[0-9a-f]{4}(?:-[0-9a-f]{12})?)?)?")
_SAMPLE_ID = "01a2b3c4-d5e6-7f80-9a1b-2c3d4e5f6a7b"
_VARYING = (
    (re.compile(r"\b20\d\d-\d\d-\d\dT[\d:.]{15}Z"), "2026-01-01T12:00:00.000000Z"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "2026-01-01"),
    (re.compile(r"^\d\.\d\d(?=   )", re.MULTILINE), "0.50"),  # a score, which falls with time
    (re.compile(r"(digest +)[0-9a-f]{32}"), r"\g<1>97fb0942dc66cbc3be3fa1320db8f43b"),
    (re.compile(r"damaged-\d{8}T\d{12}"), "damaged-20260101T120000000000"),
    (re.compile(r"\b\d\d:\d\d UTC\b"), "12:00 UTC"),
    (re.compile(r"\b\d+\.\d s\b"), "0.2 s"),
    (re.compile(r"\b\d+\.\d{2,} s\b"), "0.020 s"),
    (re.compile(r"\b\d min ago\b"), "just now"),
    (re.compile(r"\b\d[\d,]+ in · "), "950 in · "),  # the tokens of a nonce vary
    (re.compile(r"\bmemory \d+ · "), "memory 55 · "),
    (re.compile(r"^(persona +\S+ +)\d+  \d\.\d%", re.MULTILINE), r"\g<1>76  0.9%"),  # the name of the day varies
    (re.compile(r"^(memory +\S+ +)\d+  \d\.\d%", re.MULTILINE), r"\g<1>49  0.6%"),  # and a nonce may count more
    (re.compile(r"^(free +█+)\S( +)[\d,]+ \d+\.\d%", re.MULTILINE), r"\g<1>▋\g<2>6,104 74.5%"),
    (re.compile(r"(tokens in 30 days: |most on [\d-]+: )[\d,]+"), r"\g<1>2,010"),
    (re.compile(r"^((?:chat|all) +2 +)[\d,]+", re.MULTILINE), r"\g<1>1,959"),
    (re.compile(r"[\d,]+( tokens are sent)"), r"1,064\g<1>"),
    (re.compile(r"\bpersona \d+ · "), "persona 76 · "),
    (re.compile(r"(caches +)[\d,]+"), r"\g<1>27,200"),
    (re.compile(r"(\.cache/chatbot/)[0-9a-f]+"), r"\g<1>5ec77d91708c7eaf"),
)


_BAR = re.compile(r"(checking\s+━+\s+[\d:]+)+\s*")
"""Shown only where the machine is slow."""


def steady(text: str) -> str:
    """The text with a sample in place of what differs between two runs."""
    text = _ID.sub(lambda found: _SAMPLE_ID[: len(found[0])], text)
    for pattern, sample in _VARYING:
        text = pattern.sub(sample, text)
    return text


def save(name: str, text: str, folder: Path) -> None:
    text = steady(text.replace(str(folder), "/home/sam"))
    SCREENS.mkdir(exist_ok=True)
    (SCREENS / f"{name}.txt").write_text(
        "\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8"
    )


def folded(text: str, folder: Path) -> str:
    """The text as a terminal breaks its lines, once all that varies is replaced: it might be broken in the middle."""
    text = _BAR.sub("", text.replace(str(folder), "/home/sam"))
    lines = steady(text).splitlines()
    return "\n".join(line[at : at + 80] for line in lines for at in range(0, max(len(line), 1), 80))


def steady_rows(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The same for rows of a screen."""
    return tuple(tuple((steady(text), style) for text, style in row) for row in rows)


class Actor:
    """Someone at a terminal whose screen is recorded: a moment for each word typed, and time to read what comes."""

    def __init__(self, terminal: Any) -> None:
        self.recording = Recording()
        self._terminal = terminal

    def say(self, line: str, wanted: str, seconds: float) -> None:
        """Type a line, send it, and look at what comes."""
        self._terminal.prompt()
        for at in range(4, len(line) + 4, 4):
            self._terminal.type(line[at - 4 : at])
            self._terminal.see(f"❯ {re.escape(line[:at].strip())}")
            self.hold(0.25, typed=line[:at])
        self._terminal.type("\r")
        self._terminal.see(wanted)
        self._terminal.prompt()
        self.hold(seconds)

    def hold(self, seconds: float, typed: str = "") -> None:
        """Show the screen for so long; while something is typed, without the menus that come and go below it."""
        rows = steady_rows(rows_of(self._terminal.screen))
        if typed:
            prompt = max(at for at, row in enumerate(rows) if row and row[0][0].startswith("❯"))
            rows = (*rows[:prompt], ((f"❯ {typed}", ""),))
        self.recording.add(rows, seconds)


SCRIPT = (
    ("Hi! I live in Bergen, and I am allergic to peanuts.", "Noted.*scripted ·", 4.0),
    ("/new", "a new session.*a new session", 1.5),
    ("Where do I live?", "in Bergen.*scripted ·.*scripted ·", 4.0),
    ("/why", "model call", 14.0),
    ("I moved: I live in Oslo now.", "Oslo it is.*scripted ·", 4.0),
    ("/memory profile", "I moved: I live in Oslo now.*Where do I live.*I moved", 11.0),
    ("/memory profile set allergy peanuts", "added 0", 3.0),
    ("/memory profile pin allergy", "pinned allergy", 6.0),
)
"""Input of the recording, the output to wait for, and how long it is shown."""
SAID = ["Noted.", "You live in Bergen.", "Oslo it is."]


def record(terminal: Any) -> Recording:
    """Play the script at a terminal, and return the recording of it."""
    actor = Actor(terminal)
    terminal.prompt()
    actor.hold(2.0)
    for line, wanted, seconds in SCRIPT:
        actor.say(line, wanted, seconds)
    return actor.recording


def make_demo(folder: Path) -> None:
    """The recording, as SVG and as text."""
    from tests.terminal import COLUMNS, Terminal

    terminal = Terminal("--new", "-m", "scripted", CHATBOT_MODEL__SCRIPT=json.dumps(SAID))
    recording = record(terminal)
    save("demo", terminal.text, folder)
    terminal.leave()
    terminal.close()
    (SCREENS / "demo.svg").write_text(animation(recording, COLUMNS, LINES), encoding="utf-8")


def main() -> None:
    from tests.terminal import COLUMNS, Terminal

    def run(name: str, *arguments: str, **environment: str) -> None:
        terminal = Terminal(*arguments, **environment)
        try:
            terminal.ended()
        except AssertionError:
            if name != "doctor":
                raise
        text = terminal.text if not name.startswith("doctor") else folded(terminal.printed.replace("\r", ""), folder)
        save(name, f"$ chatbot {' '.join(arguments)}\n{text}", folder)
        terminal.close()

    with home() as folder:
        run("help", "--help")
        run("init", "init", "--name", "ada", "--model", "scripted", "--persona", "You are Ada.")
        chat = Terminal("--new")
        chat.say("Hi Ada! I like green tea from Uji, and my locker is number 4711.")
        chat.see("one minute.*scripted ·")
        chat.say("/remember The heating is serviced in May")
        chat.see("hides it again")
        chat.say("What is in my locker, and which tea is it today?")
        chat.see("玉露.*scripted ·")
        chat.prompt()
        save("chat", chat.text, folder)
        (SCREENS / "chat.svg").write_text(picture(steady_rows(rows_of(chat.screen)), COLUMNS), encoding="utf-8")
        begin = len(chat.text)
        for line, wanted in (
            ("/recall heating", "heating is serviced"),
            ("/context And the heating?", "of a window of"),
            ("/why", "model call"),
            ("/compact", "summarized"),
            ("/tasks add Book the heating service", "on the list.*completes one"),
        ):
            chat.say(line)
            chat.see(wanted)
        chat.prompt()
        save("commands", chat.text[begin:].lstrip("\n"), folder)
        begin = len(chat.text)
        chat.type("/re")
        chat.see("/retry")
        save("completion", "\n".join(chat.text.splitlines()[-7:]), folder)
        chat.type("\x15")
        chat.say("/help")
        chat.see("Ctrl-D quits")
        chat.prompt()
        save("slash-help", re.sub(r".*(?=❯ /help)", "", chat.text, flags=re.DOTALL), folder)
        chat.leave()
        chat.close()
        run("sessions-list", "sessions", "list")
        run("memory-search", "memory", "search", "heating")
        run("memory-stats", "memory", "stats")
        run("usage", "usage")
        (session,) = (folder / ".local/share/chatbot/identities/ada/memory/sessions").iterdir()
        (session / "kv.json").write_bytes(b'{"cap": 200, "ent')
        (session / "transcript.md").chmod(0o644)
        run("doctor", "doctor")
        run("doctor-fix", "doctor", "--fix")
    with home() as folder:
        make_demo(folder)
    for path in sorted(SCREENS.glob("*.txt")):
        from prompt_toolkit.utils import get_cwidth

        widest = max(map(get_cwidth, path.read_text(encoding="utf-8").splitlines()))
        assert widest <= COLUMNS + 2, f"{path} is {widest} columns wide"


if __name__ == "__main__":
    main()

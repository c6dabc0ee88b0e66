"""Makes the captured screens in `docs/screens`: `uv run python docs/make_screens.py`.

Each is a real process in a real pseudo-terminal of 80 columns, in an empty home, with the model `scripted`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCREENS = ROOT / "docs" / "screens"
REPLIES = [
    "Then **sencha** is for the morning:\n\n1. warm the pot\n2. 70 °C, never boiling\n3. one minute",
    "It is number 4711, and the tea of the day is *gyokuro* (玉露).",
    "Of course.",
]
sys.path.insert(0, str(ROOT))


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


def save(name: str, text: str, folder: Path) -> None:
    text = text.replace(str(folder), "/home/sam")
    SCREENS.mkdir(exist_ok=True)
    (SCREENS / f"{name}.txt").write_text(
        "\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8"
    )


def main() -> None:
    from tests.terminal import COLUMNS, Terminal

    def run(name: str, *arguments: str, **environment: str) -> None:
        terminal = Terminal(*arguments, **environment)
        try:
            terminal.ended()
        except AssertionError:
            if name != "doctor":
                raise
        save(name, f"$ chatbot {' '.join(arguments)}\n{terminal.text}", folder)
        terminal.close()

    with home() as folder:
        run("help", "--help")
        run("init", "init", "--name", "ada", "--model", "scripted", "--persona", "You are Ada.")
        chat = Terminal("--new")
        chat.say("Hi Ada! I like green tea from Uji, and my locker is number 4711.")
        chat.see("one minute.*scripted ·")
        chat.say("/remember The heating is serviced in May")
        chat.see("takes it back")
        chat.say("What is in my locker, and which tea is it today?")
        chat.see("玉露.*scripted ·")
        chat.prompt()
        save("chat", chat.text, folder)
        begin = len(chat.text)
        for number, (line, wanted) in enumerate(
            [
                ("/recall heating", "heating is serviced"),
                ("/context And the heating?", "of a window of"),
                ("/why", "model calls"),
                ("/compact", "summed up"),
                ("/tasks add Book the heating service", "ticks one off"),
            ]
        ):
            del number
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
        chat.see("Ctrl-D leaves")
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
    for path in sorted(SCREENS.glob("*.txt")):
        from prompt_toolkit.utils import get_cwidth

        widest = max(map(get_cwidth, path.read_text(encoding="utf-8").splitlines()))
        assert widest <= COLUMNS + 2, f"{path} is {widest} columns wide"


if __name__ == "__main__":
    main()

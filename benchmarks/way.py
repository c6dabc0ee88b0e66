"""The way of a message through the product: `uv run benchmarks/way.py`.

One `chatbot ask -m scripted` in a fresh process and an empty folder, traced in all its threads. Prints how many modules
of the product had a function run, how many changes of file that took (a call of a function in another file than the
call before it), and for each room its share. What is run only to be imported does not count. `--list` names modules.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIG = '[model]\nname = "scripted"\n[embedding]\nmodel = ""\n'
ASKED = "My sister Ingrid keeps a heron"


class Way:
    """Calls of the product's functions by file, and how often a call was in another file than the one before."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self._files: dict[CodeType, str] = {}
        self._last = threading.local()
        self._importing = threading.local()

    def trace(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call; a profile function of `sys`."""
        if event != "call" or not (file := self._files.get(frame.f_code) or self._file(frame.f_code)):
            return
        if file == "-" or _is_import(frame):
            return
        self.calls[file] += 1
        if getattr(self._last, "file", "") != file:
            self.changes[file] += 1
            self._last.file = file

    def _file(self, code: CodeType) -> str:
        """Return the path of a function of the product below its root, `-` for other code."""
        path = os.path.realpath(code.co_filename)
        is_ours = path.startswith((f"{ROOT}/chatbot/", f"{ROOT}/stores/")) and code.co_flags & inspect.CO_NEWLOCALS
        file = os.path.relpath(path, ROOT) if is_ours and code.co_flags & inspect.CO_OPTIMIZED else "-"
        self._files[code] = file
        return file


def _is_import(frame: FrameType | None) -> bool:
    """Return whether the call comes from the body of a module."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "importlib" in getattr(frame.f_back, "f_globals", {}).get(
            "__name__", ""
        ):
            return True
        frame = frame.f_back
    return False


def walked() -> dict[str, tuple[int, int]]:
    """Return the calls and the changes of file of each module that one message goes through."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.toml").write_text(CONFIG, encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CHATBOT")}
        done = subprocess.run(
            [sys.executable, __file__, "--here", str(Path(folder, "told.json"))],
            cwd=folder,
            env=environment | {"HOME": folder, "XDG_CACHE_HOME": folder, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        assert ASKED.encode() in done.stdout
        return {file: tuple(counts) for file, counts in json.loads(Path(folder, "told.json").read_text()).items()}


def _walk(told: Path) -> None:
    from chatbot.cli.main import main

    way = Way()
    threading.setprofile(way.trace)
    sys.setprofile(way.trace)
    try:
        main(["ask", "-m", "scripted", ASKED])
    finally:
        sys.setprofile(None)
        found = {file: (count, way.changes[file]) for file, count in way.calls.items()}
        told.write_text(json.dumps(found), encoding="utf-8")


def _show(found: dict[str, tuple[int, int]], *, is_long: bool) -> None:
    print(f"{len(found)} modules, {sum(changes for _, changes in found.values()):,} changes of file")
    rooms: dict[str, list[tuple[int, int]]] = {}
    for file, counts in found.items():
        rooms.setdefault(str(Path(file).parent), []).append(counts)
    for room, counted in sorted(rooms.items(), key=lambda each: -sum(changes for _, changes in each[1])):
        print(f"  {room:28} {len(counted):3} modules {sum(changes for _, changes in counted):6,} changes")
    for file, (calls, changes) in sorted(found.items(), key=lambda each: -each[1][1]) if is_long else ():
        print(f"{changes:6,} changes {calls:7,} calls  {file}")


if __name__ == "__main__":
    if "--here" in sys.argv:
        _walk(Path(sys.argv[-1]))
    else:
        _show(walked(), is_long="--list" in sys.argv)

"""Benchmarks at night: each command of benchmarks/README.md, with its smallest size, and a small year."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from year import Year, claims  # where Python finds it for scripts

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[1]
UV_CACHE = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
SMALLEST = {
    "all.py": "streaming",
    "answers.py --model local/DIR/model.gguf":
        "--model scripted --set benchmarks/sets/lives/69.txt --questions 4 --others 1",
    "first_days.py": "--people 2",
    "footprint.py --rows 10000": "--rows 50 --questions 2",
    "life.py": "--others 1",
    "life.py --questions 20": "--questions 4 --others 1",
    "life.py --set benchmarks/sets/lives/55.txt": "--set benchmarks/sets/lives/55.txt --others 1",
    "locomo.py locomo10.json": "{locomo}",
    "locomo.py locomo10.json --pipeline": "{locomo} --pipeline",
    "observations.py --rows 10000,100000": "--rows 100",
    "page.py": "--memories 1000 --messages 1000",
    "postgres.py --load": "--load --identities 2 --sessions 2 --users 2 --seconds 1",
    "postgres.py --rows 100000 --rounds 40": "--rows 50 --rounds 1",
    "qa.py locomo10.json --model openai/gpt-4o-mini --judge openai/gpt-4o --cap-usd 5":
        "{locomo} --model scripted --judge words --questions 1 --ways ours --out {out}",
    "quality.py locomo10.json": "{locomo} --no-own --notes 0",
    "recall.py --rows 1000,10000,100000": "--rows 200",
    "server.py --delay 0.05": "--clients 2 --words 2",
    "sessions.py --sessions 2000": "--sessions 10",
    "startup.py": "",
    "startup.py --ask": "--ask 0,20",
    "startup.py --full": "--full --rows 1000",
    "sync.py": "--rows 50 --sessions 2",
    "turns.py": "--rows 50 --turns 100",
    "turns.py --telemetry --turns 200": "--telemetry --rows 50 --turns 20",
    "upkeep.py locomo10.json": "{locomo} --questions all --policies never default",
    "way.py --list": "--list",
    "year.py --sessions 2000": "--sessions 20",
    "year.py --talk locomo10.json": "--sessions 20 --talk {locomo}",
}  # fmt: skip
"""By what the page shows behind `uv run benchmarks/`."""


def locomo(folder: Path) -> Path:
    turns = [
        {"dia_id": "D1:1", "speaker": "Ann", "text": "I moved to Lisbon."},
        {"dia_id": "D1:2", "speaker": "Bob", "text": "My kayak is green."},
    ]
    talk = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    asked = [
        {"question": "Where does Ann live?", "answer": "Lisbon", "evidence": ["D1:1"], "category": 4},
        {"question": "What colour is the kayak?", "answer": "green", "evidence": ["D1:2"], "category": 4},
        {"question": "Who is Zed?", "evidence": [], "category": 5},
    ]
    path = folder / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "c1", "conversation": talk, "qa": asked}]), encoding="utf-8")
    return path


def test_every_command_of_the_page_is_run_here() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    shown = set()
    for line in page.splitlines():
        commands = re.findall(r"`uv run benchmarks/([^`]+)`", line)
        shown |= {*commands, *(f"{commands[0].split()[0]} {more}" for more in re.findall(r"`, `(--[^`]+)`", line))}
    assert shown == SMALLEST.keys()


@pytest.mark.timeout(5 * PATIENCE_S)
@pytest.mark.parametrize("command", SMALLEST)
def test_a_benchmark_runs_as_its_page_says(command: str, tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / command.split(maxsplit=1)[0]
    arguments = SMALLEST[command].format(locomo=locomo(tmp_path), out=tmp_path / "out").split()
    alone = "# /// script" in script.read_text(encoding="utf-8")
    apart = ["uv", "run", "--quiet", "--refresh-package", "chatbot-runtime", "--script"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHATBOT_")}
    environment["UV_CACHE_DIR"] = UV_CACHE
    done = subprocess.run(
        [*(apart if alone else [sys.executable]), str(script), *arguments],
        cwd=ROOT,
        env=environment | ({} if alone else {"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE_S,
    )
    told = done.stdout + done.stderr
    assert done.returncode in ({0, 1} if "year.py" in command else {0}), told  # 1: a year of 20 sessions proves little
    assert "Traceback" not in told
    assert done.stdout.strip()


async def test_after_a_year_what_matters_is_known_and_what_is_gone_is_explained(tmp_path: Path) -> None:
    year = Year(tmp_path, 80, 1, 100)
    result = await year.live()
    assert result["decisions"] == (8, 8)
    assert result["preferences"] == (6, 6)
    assert result["corrected"] == (5, 5)
    assert result["active"] <= 110
    assert result["unexplained"] == []
    assert result["statuses"] == result["counted"]
    assert all(year.counts[kind] for kind in ("consolidate", "archive", "delete", "compress", "erase"))
    (_, _, half, _), (_, _, whole, _) = year.growth[19], year.growth[39]
    assert whole < 1.75 * half  # twice as much if nothing went; how much goes depends on the day on which it runs
    told = {what: holds for what, _, holds in claims(year, result)}
    hard = [what for what in told if "grows" in what or "share" in what]
    assert all(holds for what, holds in told.items() if what not in hard), told
    assert len(hard) == 4  # which need more sessions, and a quiet machine

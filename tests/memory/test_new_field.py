"""A new field of a row is one line: three are added to a copy of `stores`, and used through the API."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_LINES = """
    mood: Annotated[Line, Label(), SearchField("narrative")] = ""
    allies: Annotated[Lines[Many], MERGED] = NONE
    weight: Annotated[Count, InTable()] = 0
"""
_BEFORE = '    project: Annotated[Line, Label()] = ""\n'
_USE = """
import asyncio, inspect, json, sys
from pathlib import Path

from chatbot.memory import MemorySystem
from chatbot.stores.observations.lookups import COLUMNS

async def use():
    settings = {"observations": {"cache": sys.argv[2]}}
    async with MemorySystem(Path(sys.argv[1]), settings=settings) as memory:
        kept = await memory.memory().remember("tea", mood="Exuberant", allies=["Ada"], weight=3)
        again = await memory.memory().remember("tea", allies=["Bob"])
        for number in range(150):
            await memory.memory().remember(f"row {number}")  # enough for a snapshot
        await memory.memory().update(kept.id, weight=4)
    async with MemorySystem(Path(sys.argv[1]), settings=settings) as memory:
        [row] = await memory.memory().get([kept.id])
        [hit] = await memory.memory().search("exuberant")
        [*_, life] = await memory.memory().history(kept.id)
        parameters = inspect.signature(memory.memory().remember).parameters
        refused = ""
        try:
            await memory.memory().remember("milk", weight="heavy")
        except ValueError as error:
            refused = str(error)
    return {
        "row": [row.mood, row.allies, row.weight],
        "same": again.id == kept.id,
        "found": hit.observation.id == kept.id,
        "changes": [dict(changes) for event, changes in life.steps if event.kind == "update"],
        "parameters": sorted({"mood", "allies", "weight"} & set(parameters)),
        "column": "weight" in COLUMNS,
        "refused": refused,
    }

print(json.dumps(asyncio.run(use())))
"""


@pytest.mark.nightly
def test_a_field_of_a_row_is_one_line(tmp_path: Path) -> None:
    code = tmp_path / "code"
    shutil.copytree(_ROOT / "chatbot", code / "chatbot", ignore=shutil.ignore_patterns("__pycache__"))
    declaration = code / "chatbot" / "stores" / "observation.py"
    text = declaration.read_text()
    assert text.count(_BEFORE) == 1
    declaration.write_text(text.replace(_BEFORE, _BEFORE + _LINES.lstrip("\n")))
    used = subprocess.run(
        [sys.executable, "-c", _USE, str(tmp_path / "memory"), str(tmp_path / "cache")],
        env={"PYTHONPATH": str(code), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(used.stdout or "null") == {
        "row": ["Exuberant", ["Ada", "Bob"], 4],
        "same": True,
        "found": True,
        "changes": [{"weight": [3, 4]}],
        "parameters": ["allies", "mood", "weight"],
        "column": True,
        "refused": "weight is 'heavy': it must be a whole number of at most 2,147,483,648",
    }, used.stderr

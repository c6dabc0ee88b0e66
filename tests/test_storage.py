"""`[storage] url`: where an identity's memory is kept."""

from pathlib import Path

import pytest

from chatbot.config import Config, StorageSettings
from chatbot.errors import ConfigError
from chatbot.identity import allow_identity
from chatbot.runtime import Options, Setup
from chatbot.stores.home import Address
from tests.command import ok, project, run

URL = "postgresql://ada:secret@db/chat"


def _setup(folder: Path, text: str) -> Setup:
    (folder / "chosen.toml").write_text(text)
    return Setup.resolve(Options(config=folder / "chosen.toml"))


def test_a_url_leads_to_an_identity_in_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = _setup(tmp_path, f'[storage]\nurl = "{URL}"')
    assert (setup.home, setup.server_home) == (Address(URL, "ada"), Address(URL, ".server"))
    monkeypatch.setenv("DATABASE", URL)
    assert _setup(tmp_path, '[storage]\nurl = "env:DATABASE"').home == Address(URL, "ada")
    monkeypatch.delenv("DATABASE")
    with pytest.raises(ConfigError, match="names the variable DATABASE, which is not set"):
        _ = _setup(tmp_path, '[storage]\nurl = "env:DATABASE"').home


def test_one_identity_is_in_files_and_another_in_a_database(tmp_path: Path) -> None:
    ben = tmp_path / "identities" / "ben"
    ben.mkdir(parents=True)
    (ben / "identity.toml").write_text(f'[storage]\nurl = "{URL}"')
    (tmp_path / "chosen.toml").write_text("")
    with pytest.raises(ConfigError, match=r"is not trusted: it sets storage\.url"):
        Setup.resolve(Options(config=tmp_path / "chosen.toml", identity="ben"))
    allow_identity(tmp_path / "identities", "ben")
    setup = Setup.resolve(Options(config=tmp_path / "chosen.toml", identity="ben"))
    assert (setup.home, setup.server_home) == (Address(URL, "ben"), tmp_path / "identities" / ".server")


def test_a_wrong_url_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"chosen\.toml: .*unknown storage 'mysql'"):
        _ = _setup(tmp_path, '[storage]\nurl = "mysql://db/chat"').home


def test_a_found_configuration_may_not_choose_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project(f'[storage]\nurl = "{URL}"\n')
    told = run("config").stderr
    assert "is not trusted: it sets storage.url" in told
    assert "secret" not in told


def test_the_password_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project("")
    Path("chosen.toml").write_text(f'[storage]\nurl = "{URL}"\n')
    for told in (ok("config", "--config", "chosen.toml"), ok("config", "--json", "--config", "chosen.toml")):
        assert "postgresql://ada:***@db/chat" in told
        assert "secret" not in told
    assert "secret" not in repr(Config(storage=StorageSettings(url=URL)))

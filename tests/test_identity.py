"""Identities: folders that nothing leaves, and files that are read strictly."""

from pathlib import Path

import pytest

from chatbot.errors import ConfigError, IdentityError
from chatbot.identity import DEFAULT_PERSONA, list_identities, load_identity

SHIPPED = Path(__file__).parents[1] / "identities"


def _write(root: Path, name: str, text: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "identity.toml").write_text(text, encoding="utf-8")


def test_at_least_two_identities_ship_and_can_be_read() -> None:
    names = list_identities(SHIPPED)
    assert {"ada", "grace"} <= set(names)
    for name in names:
        identity = load_identity(SHIPPED, name)
        assert identity.persona.strip()
        assert identity.description
        assert identity.clearance == "full"
        assert identity.memory == SHIPPED / name / "memory"


def test_persona_clearance_and_overrides_are_read(tmp_path: Path) -> None:
    _write(tmp_path, "max", 'persona = "Be Max."\nclearance = "inner"\nmodel = "scripted"\n[budget]\nday_usd = 1')
    identity = load_identity(tmp_path, "max")
    assert (identity.persona, identity.clearance) == ("Be Max.", "inner")
    assert identity.overrides == {"model": {"name": "scripted"}, "budget": {"day_usd": 1}}


def test_the_default_identity_needs_no_file(tmp_path: Path) -> None:
    assert load_identity(tmp_path / "nowhere", "ada").persona == DEFAULT_PERSONA
    (tmp_path / "ada" / "memory").mkdir(parents=True)
    assert load_identity(tmp_path, "ada").persona == DEFAULT_PERSONA
    assert list_identities(tmp_path / "nowhere") == []


def test_an_unknown_identity_suggests_the_nearest(tmp_path: Path) -> None:
    _write(tmp_path, "grace", "")
    with pytest.raises(IdentityError, match="did you mean 'grace'"):
        load_identity(tmp_path, "gracie")


@pytest.mark.parametrize("name", ["", "../ada", "a/b", ".", "..", "Ada", "-x", "a b", "x" * 65, "/etc"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(IdentityError):
        load_identity(tmp_path, name)


def test_a_link_out_of_the_folder_of_identities_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "elsewhere", "eve", "")
    (tmp_path / "identities").mkdir()
    (tmp_path / "identities" / "eve").symlink_to(tmp_path / "elsewhere" / "eve")
    with pytest.raises(IdentityError, match="leaves"):
        load_identity(tmp_path / "identities", "eve")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clearance = 'ful'", "did you mean 'full'"),
        ("persona = 5", "should be text"),
        ("identity = 'other'", "cannot set 'identity'"),
        ("[providers.openai]\napi_key = 'env:SOME_KEY'", "cannot set 'providers'"),
        ("[providers.openai]\nmemory = true", "cannot set 'providers'"),
        ('[model]\napi_base = "http://eve.example"', "it belongs in .providers.NAME."),
        ("persona =", "not valid TOML"),
        ("persna = 'x'", "did you mean 'persona'"),
        ("xyzzy = 'x'", "choose from agents, budget, clearance, description, embedding, .*, persona,"),
        ("[model]\nsead = 1", r"unknown setting 'sead' in \[model\]: did you mean 'seed'"),
        *(
            (text, ": .*expected")
            for text in ("hooks = 1", "agents = [1]", "[agents]\nchat = 1", "[agents.chat]\ntools = [1]")
        ),
    ],
)
def test_a_malformed_identity_is_named(tmp_path: Path, text: str, words: str) -> None:
    _write(tmp_path, "max", text)
    with pytest.raises(ConfigError, match=words) as refused:
        load_identity(tmp_path, "max")
    assert "identity.toml" in str(refused.value)

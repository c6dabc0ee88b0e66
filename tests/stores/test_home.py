"""Addresses: where an identity's memory is, as one text."""

from pathlib import Path

import pytest

from chatbot.stores.errors import InvalidSettings
from chatbot.stores.home import Address, parse_address, parse_home, without_password


def test_an_address_names_a_database_and_an_identity() -> None:
    assert parse_address("postgresql://ada@db:5432/chat#ben") == Address("postgresql://ada@db:5432/chat", "ben")
    assert parse_address("postgres:///chat").identity == "default"
    assert parse_address("postgresql://a:1,b:2/chat").url == "postgresql://a:1,b:2/chat"
    assert parse_home("identities/ada/memory") == Path("identities/ada/memory")
    assert parse_home("postgresql:///chat#ada") == Address("postgresql:///chat", "ada")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("postgre://db/chat", "did you mean 'postgres'"),
        ("mysql://db/chat", "there is no storage 'mysql'"),
        ("localhost", "is not the URL of a database"),
        ("postgresql://db:port/chat", "port"),
        ("postgresql://db/chat#../etc", "cannot be an identity"),
    ],
)
def test_a_wrong_address_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        parse_address(text)


def test_no_address_shows_its_password() -> None:
    for text in ("postgresql://ada:secret@db/chat", "postgresql://db/chat?user=ada&password=secret"):
        address = parse_address(text)
        assert "secret" not in f"{address} {address!r} {without_password(text)}"
        with pytest.raises(InvalidSettings) as error:
            parse_address(f"{text}#NOT ONE")
        assert "secret" not in str(error.value)

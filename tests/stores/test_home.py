"""Addresses: where an identity's memory is, as one text."""

import re
from pathlib import Path

import psycopg
import pytest

from chatbot.stores.errors import InvalidSettings
from chatbot.stores.home import Address, parse_address, parse_home, without_password
from chatbot.stores.postgres.database_connection import explained


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
        ("mysql://db/chat", "unknown storage 'mysql'"),
        ("localhost", "is not the URL of a database"),
        ("postgresql://db:port/chat", "port"),
        ("postgresql://db/chat#../etc", "is not an identity"),
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


@pytest.mark.parametrize("between", ["/", "?", "#", "@", ":", " ", "%zz", "%", "[", "@:/#?"])
@pytest.mark.parametrize(
    "form", ["postgresql://ada:{}@db/chat", "mysql://ada:{}@db", "postgresql:/ada:{}@db", "postgres://:{}@[::1/chat"]
)
def test_no_password_is_shown_however_it_is_written(form: str, between: str) -> None:
    text = form.format(f"sec{between}ret")
    try:
        told = f"{parse_address(text)} {parse_address(text)!r}"
    except InvalidSettings as error:
        told = f"{error} {error.__cause__}"
    try:
        psycopg.conninfo.conninfo_to_dict(text)
    except psycopg.Error as error:
        told += str(explained(error, without_password(text)))
    assert not re.search("sec|ret", told)


def test_a_password_among_the_parameters_is_not_shown() -> None:
    for text in ("postgresql://db/chat?PassWord=sec#ret", "postgresql://db/chat?x=1&sslpassword=sec/ret&y=2"):
        assert not re.search("sec|ret", without_password(text))

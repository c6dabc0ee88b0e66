"""Every error has one exit code, whatever tree it stands in."""

from collections.abc import Iterator
from typing import Any

from chatbot.cli.exits import Exit, exit_code
from chatbot.errors import ChatbotError
from chatbot.stores.errors import StoreError

EXPECTED = {
    "ConfigError": Exit.CONFIG,
    "IdentityError": Exit.NOT_FOUND,
    "UnknownToken": Exit.NOT_FOUND,
    "SessionNotFound": Exit.NOT_FOUND,
    "AmbiguousSession": Exit.NOT_FOUND,
    "WrongAgent": Exit.NOT_FOUND,
    "SessionExpired": Exit.NOT_FOUND,
    "DamagedSession": Exit.STORAGE,
    "UnknownModel": Exit.MODEL,
    "MissingModel": Exit.MODEL,
    "KeyRefused": Exit.MODEL,
    "RateLimited": Exit.MODEL,
    "ContextTooLong": Exit.MODEL,
    "RequestRefused": Exit.MODEL,
    "ModelTimeout": Exit.MODEL,
    "ProviderFailed": Exit.MODEL,
    "BudgetExceeded": Exit.BUDGET,
    "QuotaExceeded": Exit.BUDGET,
    "ToolError": Exit.FAILED,
    "UnsupportedOperation": Exit.FAILED,
    "UnknownObservation": Exit.NOT_FOUND,
    "UnknownProject": Exit.NOT_FOUND,
    "ChangedMeanwhile": Exit.FAILED,
    "ConflictingChange": Exit.FAILED,
    "AccessDenied": Exit.FAILED,
    "MissingRight": Exit.FAILED,
    "UnknownStore": Exit.CONFIG,
    "BrokenStore": Exit.CONFIG,
    "InvalidSettings": Exit.CONFIG,
    "InvalidValue": Exit.USAGE,
    "OtherEmbedder": Exit.CONFIG,
    "UnsafePath": Exit.STORAGE,
    "MissingFolder": Exit.STORAGE,
    "DamagedFile": Exit.STORAGE,
    "LaterFormat": Exit.STORAGE,
    "StoreBusy": Exit.STORAGE,
    "StoreAway": Exit.STORAGE,
    "UnknownOutcome": Exit.STORAGE,
    "StoreFailed": Exit.STORAGE,
    "ReadOnlyFolder": Exit.STORAGE,
    "ClosedResource": Exit.STORAGE,
}


def leaves(kind: type[Any]) -> Iterator[type[Any]]:
    children = [
        child for child in kind.__subclasses__() if child.__module__ in {"chatbot.errors", "chatbot.stores.errors"}
    ]
    if not children or f"{kind.__module__}.{kind.__name__}" in EXPECTED:
        yield kind
    for child in children:
        yield from leaves(child)


def test_every_leaf_of_both_trees_has_the_code_that_is_documented() -> None:
    for kind in [*leaves(ChatbotError), *leaves(StoreError)]:
        expected = EXPECTED.get(f"{kind.__module__}.{kind.__name__}") or EXPECTED[kind.__name__]
        assert exit_code(kind("what happened")) is expected


def test_every_code_says_what_it_means() -> None:
    assert sorted(Exit) == [0, 1, 2, 3, 4, 5, 6, 7, 130, 143]

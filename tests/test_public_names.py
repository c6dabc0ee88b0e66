"""Public names of `chatbot` and `stores` cannot change unseen."""

import importlib

import pytest

import chatbot
import chatbot.stores


def test_every_public_name_of_chatbot_is_there_and_listed_in_order() -> None:
    assert sorted(chatbot.__all__) == chatbot.__all__
    for name in chatbot.__all__:
        assert getattr(chatbot, name).__module__.startswith(("chatbot.", "stores."))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Manager'"):
        _ = chatbot.Manager


@pytest.mark.parametrize("package", ["chatbot.memory", "chatbot.models", "chatbot.tools"])
def test_what_a_package_lists_it_has(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_errors_of_stores_are_public() -> None:
    errors = {
        name
        for name, value in vars(chatbot.stores.errors).items()
        if isinstance(value, type) and value.__module__ == "chatbot.stores.errors"
    }
    assert errors <= vars(chatbot.stores).keys()

"""Models: the contract, LiteLLM, the embedded local model, the scripted one. Importing this package loads none."""

import logging
from collections.abc import Mapping
from functools import cache

from chatbot.config import ModelSettings, ProviderSettings
from chatbot.models.litellm_model import LiteLLMModel
from chatbot.models.local_encoder import INSTALL, NAME, NO_ENCODERS, LocalEmbedder
from chatbot.models.local_model import LocalModel
from chatbot.models.model import Model, Price
from chatbot.models.provider import Provider
from chatbot.models.scripted import ScriptedModel
from chatbot.providers import SCRIPTED

__all__ = ["Model", "Price", "ScriptedModel", "open_model"]


def open_model(settings: ModelSettings | str, providers: Mapping[str, ProviderSettings] | None = None) -> Model:
    """Return the model of these settings, or of that name. Nothing is loaded or called before it is used."""
    settings = ModelSettings(name=settings) if isinstance(settings, str) else settings
    if settings.name == SCRIPTED:
        model = ScriptedModel(settings.script, window=settings.context_window or 8192)
        model.disclosure = Provider(SCRIPTED, providers).disclosure
        return model
    if settings.name.startswith("local/"):
        return LocalModel(settings, providers)
    return LiteLLMModel(settings, providers)


@cache
def warn_without_encoders(model: str) -> None:
    """Log, once a process, that the local encoders are not installed, if the embedding `model` is these."""
    if model == NAME and not LocalEmbedder.is_installed():
        logging.getLogger(__name__).warning('%s. %s, or set model = "" in [embedding]', NO_ENCODERS, INSTALL)

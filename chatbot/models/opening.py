"""From a model's name to the model."""

from __future__ import annotations

from chatbot.config import ModelSettings
from chatbot.models.base import Model
from chatbot.models.gateway import LiteLLMModel
from chatbot.models.scripted import ScriptedModel

SCRIPTED = "scripted"


def open_model(settings: ModelSettings) -> Model:
    """The model that the settings name. Nothing is loaded or called before it is used."""
    if settings.name == SCRIPTED:
        return ScriptedModel(settings.script, window=settings.context_window or 8192)
    if settings.name.startswith("local/"):
        from chatbot.models.local_model import LocalModel

        return LocalModel(settings)
    return LiteLLMModel(settings)

"""Models: the contract, LiteLLM, the embedded local model, the scripted one. Importing this package loads none."""

from chatbot.models.model import Model, Price
from chatbot.models.opening import open_model
from chatbot.models.scripted import ScriptedModel

__all__ = ["Model", "Price", "ScriptedModel", "open_model"]

"""Addresses of providers and of model servers on this machine; the variables of keys; providers that need none."""

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from chatbot.providers import OURS, openai_like

OLLAMA = frozenset({"ollama", "ollama_chat"})
PORTS_HERE: Mapping[str, int] = {"ollama_chat": 11434, "lm_studio": 1234, "hosted_vllm": 8000, "llamacpp": 8080}
"""Default ports of model servers on this machine."""
OTHER_HERE = "local-"
"""Prefix of the name of any other OpenAI-compatible server on this machine; its port follows."""
WITHOUT_ADDRESS = frozenset(
    {"ai21", "aiohttp_openai", "custom_openai", "hosted_vllm", "litellm_proxy", "lm_studio", "xinference"}
)
"""Providers that LiteLLM calls at OpenAI's address if no other is given."""
WITH_LOGIN = frozenset(
    {
        *("anthropic", "anthropic_text", "azure", "azure_ai", "azure_text", "bedrock", "bedrock_mantle", "chatgpt"),
        *("databricks", "gdc", "gigachat", "github_copilot", "oci", "sagemaker", "sagemaker_chat", "sagemaker_nova"),
        *("sap", "snowflake", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text"),
    }
)
"""Providers that LiteLLM can also log in to without a key: by a role, a token or a file. It finds these itself."""
WITH_KEY = frozenset(
    {"anthropic", "cerebras", "cohere_chat", "deepseek", "gemini", "groq", "mistral", "openai", "openrouter", "xai"}
)
"""Providers that refuse calls without a key or login."""
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "azure": ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
    "chatgpt": (),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cometapi": ("COMETAPI_KEY",),
    "datarobot": ("DATAROBOT_API_TOKEN",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
    "friendliai": ("FRIENDLIAI_API_KEY", "FRIENDLI_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "github_copilot": (),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "jina_ai": ("JINA_AI_API_KEY", "JINA_AI_TOKEN"),
    "lambda_ai": ("LAMBDA_API_KEY",),
    "meta_llama": ("LLAMA_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "qwen_ai_platform": ("QWEN_AI_PLATFORM_API_KEY", "DASHSCOPE_API_KEY"),
    "qwencloud": ("QWENCLOUD_API_KEY", "DASHSCOPE_API_KEY"),
    "replicate": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN"),
    "together_ai": ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
    "vercel_ai_gateway": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "volcengine": ("VOLCENGINE_API_KEY", "ARK_API_KEY"),
    "watsonx": ("WATSONX_APIKEY", "WATSONX_API_KEY", "WX_API_KEY"),
}
"""The variables of a key, if not `<PROVIDER>_API_KEY`; the first one that is set is used."""
_AZURE = ("openai.azure.com", "cognitiveservices.azure.com", "ai.azure.com")
_HOSTS: Mapping[str, tuple[str, ...]] = {
    "ai21": ("api.ai21.com",),
    "anthropic": ("api.anthropic.com",),
    **dict.fromkeys(("azure", "azure_ai", "azure_text"), _AZURE),
    "bedrock": ("amazonaws.com",),
    "cohere": ("api.cohere.com", "api.cohere.ai"),
    "databricks": ("databricks.com", "azuredatabricks.net"),
    "deepseek": ("api.deepseek.com",),
    "gemini": ("googleapis.com",),
    "groq": ("api.groq.com",),
    "mistral": ("api.mistral.ai",),
    "openai": ("api.openai.com",),
    "openrouter": ("openrouter.ai",),
    "sagemaker": ("amazonaws.com",),
    "snowflake": ("snowflakecomputing.com",),
    "vertex_ai": ("googleapis.com",),
    "watsonx": ("cloud.ibm.com",),
    "xai": ("api.x.ai",),
}
"""Each provider's own hosts, subdomains included."""

_INTERFACE = re.compile("^text-completion-|_(?:chat|text)$")
"""Part of a provider's name that only names one of its interfaces."""


def variables_of(provider: str) -> tuple[str, ...]:
    """Return the environment variables that may hold the provider's key; empty for one that takes none."""
    if provider in OURS:
        return ()
    if (like := openai_like().get(provider)) and (variable := like.get("api_key_env")):
        return (str(variable),)
    base = _INTERFACE.sub("", provider)
    usual = re.sub(r"\W", "_", base).upper()
    return _VARIABLES.get(base, (f"{usual}_API_KEY",))


def is_own_address(provider: str, address: str) -> bool:
    """Return True for the provider's own address, which its usual key may be sent to."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    return parts.scheme == "https" and any(host == each or host.endswith(f".{each}") for each in _hosts_of(provider))


def ollama_address() -> str:
    """Return the address in `$OLLAMA_HOST`; Ollama's usual one if that is not set."""
    given = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
    except ValueError:  # a bracket that is not closed
        parts = urlsplit("http://")
    host = parts.hostname or ""
    host = "127.0.0.1" if host in {"", "0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104
    try:
        port = parts.port or (443 if parts.scheme == "https" else PORTS_HERE["ollama_chat"])
    except ValueError:
        port = PORTS_HERE["ollama_chat"]
    return f"{parts.scheme}://{host}:{port}{parts.path}"


def server_here(name: str) -> dict[str, str]:
    """Return the settings of a model server on this machine, by the name that `chatbot models list` prints.

    Empty for other providers, and if LiteLLM's own variable names an address.
    """
    if os.environ.get(f"{'ollama' if name in OLLAMA else name}_API_BASE".upper()):
        return {}
    if name in OLLAMA:
        return {"api_base": ollama_address()} if os.environ.get("OLLAMA_HOST", "").strip() else {}
    port = name.removeprefix(OTHER_HERE) if name.startswith(OTHER_HERE) else str(PORTS_HERE.get(name, ""))
    if not (port.isascii() and port.isdecimal()):
        return {}
    kind = {} if name in WITHOUT_ADDRESS else {"kind": "openai"}
    return {**kind, "api_base": f"http://127.0.0.1:{port}/v1"}


def api_host_of(provider: str) -> str:
    """Return the provider's first known host that begins with `api.`; empty if none does."""
    return next((host for host in _hosts_of(provider) if host.startswith("api.")), "")


def _hosts_of(provider: str) -> tuple[str, ...]:
    like = urlsplit(str(openai_like().get(provider, {}).get("base_url", ""))).hostname
    return (*_HOSTS.get(provider, ()), *([like] if like else []))

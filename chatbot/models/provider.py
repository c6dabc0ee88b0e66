"""A provider: its address, its key and the place of the key. This is the only module that reads a key.

Key, address and headers are taken together from one place that belongs to the called provider, so none of them reaches
another provider:

1. `[providers.<name>]`; for a model whose name is an address, only if `api_base` there is the same address;
2. the provider's usual environment variable, if it is called at its own address;
3. the key that `chatbot keys set` stored for it, if it is called at its own address or has a name of your own.
   `keys.json` in the user's data folder lists these, so that no keyring is asked in vain.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from msgspec import convert
from platformdirs import user_data_path

from chatbot.config import PriceSettings, ProviderSettings, from_variable
from chatbot.errors import (
    ConfigError,
    ContextTooLong,
    KeyRefused,
    ModelError,
    ModelTimeout,
    ProviderFailed,
    RateLimited,
    UnknownModel,
)
from chatbot.models import addresses
from chatbot.models.call import NO_CREDIT, unknown_provider
from chatbot.models.model import Disclosure
from chatbot.providers import OURS, known_providers, provider_of
from chatbot.stores.errors import InvalidValue, nearest_hint
from chatbot.stores.files import OTHERS, locked, make_folder, opened

NAME = "keys.json"
SERVICE = "chatbot-runtime"
"""Name of our entries in the keyring; the user name of each is the provider."""
_KEYRING = "keyring"
_SHORTEST = 8

Entries = dict[str, dict[str, Any]]


def stored_keys() -> dict[str, str]:
    """Return the providers with a stored key, each with its place: `keyring`, or `keys.json`."""
    return {name: _KEYRING if _KEYRING in entry else NAME for name, entry in sorted(_entries().items())}


def stored_key(provider: str) -> str:
    """Return the key stored for a provider; empty if there is none. Raises `KeyRefused` if it cannot be read."""
    entry = _entries().get(provider)
    if entry is None:
        return ""
    return str(entry["key"]) if "key" in entry else _from_keyring(provider)


def parsed_key(text: str) -> str:
    """Return the key that was typed. Raises `InvalidValue` for a text that cannot be one."""
    key = text.strip()
    if len(key) < _SHORTEST or not key.isprintable() or " " in key:
        raise InvalidValue(f"invalid key: nothing was stored; a key is one word of at least {_SHORTEST} characters")
    return key


def store_key(provider: str, key: str) -> str:
    """Store a key in place of any former one and return its place, as in `stored_keys`."""
    entry: dict[str, Any] = {"key": key}
    with _keyring() as keyring:
        if keyring is not None:
            keyring.set_password(SERVICE, provider, key)
            entry = {_KEYRING: True}
    _change(lambda known: known | {provider: entry})
    return stored_keys()[provider]


def remove_key(provider: str) -> bool:
    """Remove the key of a provider; False if none was stored."""
    entry = _entries().get(provider)
    if entry is None:
        return False
    with _keyring() as keyring:
        if _KEYRING in entry and keyring is not None and keyring.get_password(SERVICE, provider) is not None:
            keyring.delete_password(SERVICE, provider)
    _change(lambda known: {name: each for name, each in known.items() if name != provider})
    return True


def loaded_keys() -> list[str]:
    """Return the keys in the file and those read from the keyring so far, to remove them from messages."""
    try:
        return [*(str(entry["key"]) for entry in _entries().values() if "key" in entry), *_keyring_keys.values()]
    except (KeyRefused, ConfigError):
        return []


_keyring_keys: dict[str, str] = {}


def _from_keyring(provider: str) -> str:
    if provider not in _keyring_keys:
        with _keyring() as keyring:
            found = keyring.get_password(SERVICE, provider) if keyring is not None else None
        if not found:
            raise KeyRefused(f"the key of {provider} is not in the keyring: run `chatbot keys set {provider}`")
        _keyring_keys[provider] = found
    return _keyring_keys[provider]


@contextmanager
def _keyring() -> Iterator[Any]:
    """Use the system's keyring; None without one, or without the package `keyring`. Its errors become `KeyRefused`."""
    if find_spec("keyring") is None:
        yield None
        return
    import keyring.errors

    try:
        backend = keyring.get_keyring()
        yield None if type(backend).__module__ in {"keyring.backends.fail", "keyring.backends.null"} else backend
    except keyring.errors.KeyringError as error:
        raise KeyRefused(f"the system's keyring cannot be used: {error}: unlock it") from error


def _entries() -> Entries:
    path = user_data_path("chatbot") / NAME
    try:
        mode = path.lstat().st_mode
    except OSError:
        return {}
    if mode & OTHERS:
        raise KeyRefused(f"{path} is readable by other users, so its keys are not used: run chmod 600 {path}")
    try:
        with opened(path.parent) as folder:
            found = dict(json.loads(folder.read(path.name)))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", at=path) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged: remove it, then store the keys again", at=path) from error
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def _change(change: Callable[[Entries], Entries]) -> None:
    """Change the current content of the file: another process may have written to it meanwhile."""
    folder = user_data_path("chatbot")
    make_folder(folder)
    _keyring_keys.clear()
    with locked(folder) as place:
        place.replace(NAME, (json.dumps(change(_entries()), indent=2) + "\n").encode())


NO_KEY = "none"
"""Sent if there is no key: own servers usually need none, but clients require one."""
_NONE = ProviderSettings()
_STARTED_BY = {
    **dict.fromkeys(addresses.OLLAMA, "ollama serve"),
    "lm_studio": "lms server start",
    "hosted_vllm": "vllm serve MODEL",
    "llamacpp": "llama-server -m FILE.gguf",
}


class Provider:
    """The provider of one model, with the price that is configured for it."""

    def __init__(self, model: str, configured: Mapping[str, ProviderSettings] | None = None) -> None:
        self.configured = configured or {}
        self.model = model
        self.name = provider_of(model)
        usual = _NONE if self.name in OURS else convert(addresses.server_here(self.name), ProviderSettings)
        table = self.configured.get(self.name) or usual
        self.is_custom = bool(table.kind) and self.name not in known_providers()
        self.kind = table.kind if self.is_custom else self.name
        self._source = self._for_this_address(table)
        self._place = f"[providers.{self.name}]"
        name = model.removeprefix(f"{self.name}/")
        self.price = table.prices.get(name) or table.prices.get("*") or PriceSettings()
        self.disclosure = Disclosure(self.name, table.memory, table.sensitivity)
        self.thinks_first = table.thinks_first

    @property
    def litellm_name(self) -> str:
        """The model's name as LiteLLM takes it: always with the provider that the key is for."""
        if not self.name or self.name in OURS or not (self.is_custom or self.name in known_providers()):
            return self.model
        rest = self.model.partition("/")[2] if "/" in self.model else self.model
        return f"{self.kind}/{rest}"

    @property
    def price_name(self) -> str:
        """The name in LiteLLM's tables; for a server of your own a name that is not in them."""
        return self.model if self.is_custom and not self._is_at_own_address else self.litellm_name

    def arguments(self) -> dict[str, Any]:
        """Return LiteLLM's arguments for the provider. Raises `KeyRefused` or `UnknownModel`."""
        if self.name in OURS:
            return {"model": self.litellm_name}
        given = {"api_key": self.key(), "api_base": self.address(), "extra_headers": self.headers()}
        return {"model": self.litellm_name, **{name: value for name, value in given.items() if value}}

    def key(self) -> str | None:
        """The key to send; None if LiteLLM logs in by itself. Raises `KeyRefused` for an unset variable."""
        if self.name in OURS:
            return None
        if self._source.api_key:
            return self._value(self._source.api_key, "api_key")
        if self.is_custom and (key := stored_key(self.name)):
            return key
        if not self._is_at_own_address:
            if self.kind in addresses.WITH_LOGIN:
                raise KeyRefused(
                    f"{self.model}: api_base in {self._place} is not an address of {self.kind}, so its login is not "
                    "used there: set api_key to the key for that address"
                )
            return NO_KEY
        found = "" if self.is_custom else os.environ.get(_usual_variable(self.name)) or stored_key(self.name)
        return found or (None if self.kind in addresses.WITH_LOGIN else NO_KEY)

    def address(self) -> str:
        """The address to call; empty for the provider's own. Raises `UnknownModel` if one is required."""
        if self._source.api_base:
            return self._source.api_base
        variable = f"{self.kind.removesuffix('_text').upper()}_API_BASE"
        if self.kind in addresses.WITHOUT_ADDRESS or self.kind in {"azure", "azure_text"}:
            if not os.environ.get(variable):
                raise UnknownModel(f"{self.model} needs an address: set api_base in {self._place}, or {variable}")
            return os.environ[variable]
        return ""

    def server(self) -> str:
        """The address or host that is called, as far as it is known; for telemetry, so it raises nothing."""
        try:
            return self.address() or (
                addresses.ollama_address() if self.kind in addresses.OLLAMA else addresses.api_host_of(self.kind)
            )
        except UnknownModel:
            return ""

    def headers(self) -> dict[str, str]:
        """The headers to send. Raises `KeyRefused` for a variable that is not set."""
        return {name: self._value(text, f"headers.{name}") for name, text in self._source.headers.items()}

    def check(self, litellm: Any) -> None:
        """Raise a `ModelError` if the provider is unknown or its key is missing. Makes no call."""
        given = self.arguments()
        try:
            litellm.get_llm_provider(given["model"], api_base=given.get("api_base"), api_key=given.get("api_key"))
        except Exception as error:  # LiteLLM's own, which cannot be named without importing it
            raise unknown_provider(self.model, self.configured) from error
        needed = litellm.validate_environment(self.litellm_name)["missing_keys"] if self.lacks_key() else ()
        # An address has a default where none is required.
        if missing := [name for name in needed if not name.endswith("_API_BASE")]:
            raise KeyRefused(f"{self.model} needs a key: {self.advice_on_missing(missing)}")

    def check_before_call(self) -> None:
        """Raise `KeyRefused` if the call is sure to fail without a key. Loads and sends nothing."""
        if self.kind in addresses.WITH_KEY and not self._may_log_in and self.lacks_key():
            raise KeyRefused(f"{self.model} needs a key: {self.advice_on_missing(addresses.variables_of(self.kind))}")

    @property
    def _may_log_in(self) -> bool:
        """True if LiteLLM may find a login by itself; for Anthropic, by any variable `ANTHROPIC_…`."""
        if self.kind == "anthropic":
            return any(name.startswith("ANTHROPIC_") and value for name, value in os.environ.items())
        return self.kind in addresses.WITH_LOGIN

    def lacks_key(self) -> bool:
        """Return True if nothing that is sent can authorise the call at the provider's own address."""
        source = self._source
        return self.key() in {None, NO_KEY} and not (source.api_key or source.api_base or source.headers)

    def advice_on_missing(self, variables: Sequence[str]) -> str:
        """Return how to set a missing key; `variables` are those that LiteLLM needs."""
        own = addresses.variables_of(self.kind)
        usual = " or ".join(own) if set(own) & set(variables) else " and ".join(variables)
        usual = "" if self.is_custom else f"{usual}, or "  # a name of one's own takes no usual key
        return f"run `chatbot keys set {self.name or self.kind}`, or set {usual}api_key in {self._place}"

    def with_advice(self, error: ModelError) -> ModelError:
        """Return the error of a call with advice: which server, key or setting to check. Guests see no advice."""
        if advice := self._advice(error):
            error.in_public = str(error)
            error.args = (f"{error} ({advice})",)
        return error

    def _advice(self, error: ModelError) -> str:  # noqa: PLR0911 - one for each kind of failure
        where, other = self.server() or self.kind, "choose another model"
        if error.status == 402 or error.code in NO_CREDIT:
            return f"the account at {where} has no credit left: top it up, or {other}"
        if isinstance(error, KeyRefused):
            return self.hint() or self._advice_on_key(where, allows=error.status != 403)
        if isinstance(error, UnknownModel):
            if self.kind not in known_providers():
                return ""  # the error says so
            pull = f"`ollama pull {self.model.partition('/')[2]}`, or " if self.kind in addresses.OLLAMA else ""
            return f"{where} has no such model: try {pull}one of `chatbot models list --find`"
        if isinstance(error, ContextTooLong):
            return f"{where} takes less: set context_window in [model], and prompts are cut to fit"
        if error.status == 0:
            return self._advice_on_connection(where, str(error))
        if isinstance(error, RateLimited):
            return f"{where} asks to slow down: try again later, or {other}"
        if isinstance(error, ModelTimeout):
            return f"{where} is slow, or still loads the model: try again, or raise timeout_s in [model]"
        if isinstance(error, ProviderFailed):
            return f"{where} failed: try again later, or {other}"
        return ""

    def _advice_on_connection(self, where: str, message: str) -> str:
        if "CERTIFICATE_VERIFY_FAILED" in message:
            return f"{where} or a proxy on the way is not trusted: set SSL_CERT_FILE to a file of trusted certificates"
        if not self._source.api_base and self.kind not in addresses.OLLAMA:
            return f"{where} cannot be reached: is this machine online?"
        start = f" try `{_STARTED_BY[self.name]}`;" if self.name in _STARTED_BY else ""
        return f"is {where} running?{start} its address is api_base in {self._place}"

    def _advice_on_key(self, where: str, *, allows: bool) -> str:
        """Return what to do about a key that was refused, or, with `allows` False, may not be used for this model."""
        own = self._source.api_key
        place = f"api_key in {self._place}{f' ({own})' if own.startswith('env:') else ''}" if own else ""
        with suppress(KeyRefused):
            if self.key() in {None, NO_KEY}:
                return f"{where} has no key: run `chatbot keys set {self.name}`, or set api_key in {self._place}"
        place = place or key_place(self.name)
        if not allows:
            return f"{where} does not allow this with the key from {place}: check its rights, or choose another model"
        again = "" if own else f", or run `chatbot keys set {self.name}`"
        return f"{where} refused the key from {place}: correct it{again}"

    def hint(self) -> str:
        """Return why a known key was not sent; else empty."""
        if self._source.api_key or self._is_at_own_address:
            return ""
        if self._address_in_name and not self._source.api_base:
            return f'no key was sent: set api_key and api_base = "{self._address_in_name}" in {self._place}'
        variable = "" if self.is_custom else _usual_variable(self.kind)
        return variable and (
            f"no key was sent: {variable} is not for the address in api_base; "
            f'api_key = "env:{variable}" in {self._place} sends it there'
        )

    def secrets(self) -> list[str]:
        """Return every key and header that a provider's message might repeat."""
        keys = [value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN", "_SECRET", "_KEY"))]
        for settings in (*self.configured.values(), self._source):
            for text in (settings.api_key, *settings.headers.values()):
                with suppress(ConfigError):
                    keys.append(from_variable(text, ""))
        keys += loaded_keys()
        return [key for key in keys if key != NO_KEY]

    def _for_this_address(self, table: ProviderSettings) -> ProviderSettings:
        """Return the settings; empty ones if the model's name has another address, as `huggingface/https://…`."""
        address = self._address_in_name
        if not address or addresses.is_own_address(self.kind, address) or address == table.api_base:
            return table
        return _NONE

    @property
    def _address_in_name(self) -> str:
        rest = self.model.partition("/")[2]
        return rest if "://" in rest else ""

    @property
    def _is_at_own_address(self) -> bool:
        given = filter(None, (self._source.api_base, self._address_in_name))
        return all(addresses.is_own_address(self.kind, each) for each in given)

    def _value(self, text: str, setting: str) -> str:
        try:
            return from_variable(text, f"{self.model}: {setting}")
        except ConfigError as error:
            raise KeyRefused(str(error)) from None


def _usual_variable(provider: str) -> str:
    """Return the usual variable of a provider that is set; empty if none is."""
    variables = addresses.variables_of(provider) if provider in known_providers() else ()
    return next((each for each in variables if os.environ.get(each)), "")


def key_place(provider: str, configured: Mapping[str, ProviderSettings] | None = None) -> str:
    """Return where the key of a provider comes from, in words; empty if there is none. Shows no key."""
    if configured and provider in configured and configured[provider].api_key:
        return f"[providers.{provider}]"
    return _usual_variable(provider) or stored_keys().get(provider, "")


def key_places(own: Mapping[str, ProviderSettings]) -> list[tuple[str, str]]:
    """Return every provider with a key, and where the key comes from."""
    known = {*known_providers() - OURS, *own, *stored_keys()}
    return [(name, place) for name in sorted(known) if (place := key_place(name, own))]


def check_takes_key(name: str, own: Mapping[str, ProviderSettings]) -> None:
    """Raise `ConfigError` for a name that is no provider, or one that takes no key."""
    if name in OURS:
        raise ConfigError(f"{name} runs on this machine and takes no key")
    known = {*known_providers() - OURS, *own}
    if name not in known:
        advice = f"; for a server of your own, add [providers.{name}] to config.toml"
        raise ConfigError(f"no provider is called {name!r}{nearest_hint(name, known) or advice}")


def check_providers(configured: Mapping[str, ProviderSettings]) -> None:
    """Raise `ConfigError` for an unknown provider, or contradictory settings."""
    for name, settings in configured.items():
        if wrong := _wrong(name, settings, known_providers()):
            raise ConfigError(f"[providers.{name}]: {wrong}")


def _wrong(name: str, settings: ProviderSettings, known: frozenset[str]) -> str:
    if name in OURS:
        if settings.api_key or settings.api_base or settings.headers or settings.kind:
            return "it runs in this process: remove kind, api_key, api_base and headers"
    elif name in known:
        if settings.kind not in {"", name}:
            return f"{name} is a provider of LiteLLM, so its kind cannot be {settings.kind!r}: choose another name"
    elif not settings.kind:
        return (
            f"no provider is called {name!r}{nearest_hint(name, known)}; "
            'a name of your own needs kind, such as "openai", and usually api_base'
        )
    elif settings.kind not in known - OURS:
        return f"kind = {settings.kind!r} is not a provider{nearest_hint(settings.kind, known)}"
    return ""

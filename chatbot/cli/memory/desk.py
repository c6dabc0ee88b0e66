"""What an action works with: the memory as the caller sees it, and what stands on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from chatbot.cli.output import say, say_json, warn
from chatbot.cli.paging import page_of
from chatbot.memory import MemorySystem
from chatbot.memory.redaction import redact_all
from chatbot.memory.remembering import Memories
from chatbot.setup import Setup
from stores.access import SENSITIVITIES, Sensitivity
from stores.errors import InvalidValue, did_you_mean
from stores.observation import TYPES, Observation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Desk:
    """One run of `chatbot memory`."""

    args: argparse.Namespace
    setup: Setup
    system: MemorySystem
    memories: Memories
    ask: tuple[Sensitivity, ...]
    """The sensitivities that were asked for; `public` always is."""

    @classmethod
    def of(cls, system: MemorySystem, setup: Setup, args: argparse.Namespace) -> Desk:
        """The desk of an agent. Raises `InvalidValue` for a word that is no sensitivity."""
        memories = system.memories(setup.agent).within(namespace=args.namespace, across=args.all_namespaces)
        check_words("--ask", args.ask, SENSITIVITIES)
        return cls(args, setup, system, memories, ("public", *args.ask))

    async def id(self, text: str) -> str:
        """The id that begins with `text`: who names one asks for it, however delicate it is."""
        return await self.memories.resolve(text, ask=SENSITIVITIES)

    async def ids(self, texts: Iterable[str]) -> list[str]:
        """The same for several, each once."""
        return list(dict.fromkeys([await self.id(text) for text in texts]))

    async def row(self, observation_id: str, *, ask: Collection[Sensitivity] = SENSITIVITIES) -> Observation:
        """An observation, whatever its status. Raises `UnknownObservation`."""
        line = await self.memories.history(observation_id, ask=ask)
        return next(version.observation for version in line if version.observation.id == observation_id)

    async def wanted(self) -> dict[str, Any]:
        """The fields of `Filter` that are asked for."""
        args = self.args
        check_words("--type", args.type, TYPES)
        session = (await self.system.find_session(args.session)).id if args.session else None
        return {
            "types": args.type,
            "tags": args.tag,
            "concepts": args.concept,
            "people": args.person,
            "files": args.file,
            "subject": args.subject,
            "category": args.category,
            "project": args.project,
            "session_id": session,
            "after": args.after,
            "before": args.before,
            "visibilities": args.visibility,
            "metadata": dict(args.meta),
        }

    def show_page(
        self,
        items: Sequence[T],
        say_items: Callable[[Sequence[T]], None],
        as_json: Callable[[T], Any],
        *,
        nothing: str,
    ) -> None:
        """The part of a list that is asked for: values for programs, for people a table and how to see the next."""
        page, more = page_of(items, self.args)
        if self.args.json:
            say_json([as_json(item) for item in page])
            return
        if page:
            say_items(page)
        if more or not page:
            say(more or ("that is all" if items else nothing))

    def tell(self, value: Any, text: str) -> None:
        """What was done: a value for programs, a line for people."""
        if self.args.json:
            say_json(value)
        else:
            say(text)


def check_words(option: str, words: Iterable[str], known: Sequence[str]) -> None:
    """Raise `InvalidValue` for a word that is not known."""
    for word in words:
        if word not in known:
            raise InvalidValue(f"{option} {word!r} is not known{did_you_mean(word, known)}")


def warn_redacted(kinds: Iterable[str]) -> None:
    """Tell on standard error that secrets were taken out."""
    if told := ", ".join(kinds):
        warn(f"SECRETS WERE TAKEN OUT before anything was kept: {told}. What is remembered does not hold them.")


def redacting(*texts: str) -> tuple[str, ...]:
    """The texts as they are kept; tells which secrets are taken out of them."""
    kept, kinds = redact_all(texts)
    warn_redacted(kinds)
    return kept

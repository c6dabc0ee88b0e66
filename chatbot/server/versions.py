"""Versions of memories over HTTP: `ETag` in answers, `If-None-Match` and `If-Match` in requests (RFC 9110)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from fastapi import Depends, Header, Response

from chatbot.operations import Context
from chatbot.stores.observation import Observation, version_of

_ANY = "*"
_TAG = re.compile(r'(W/)?"([^"*]*)"')


@dataclass(frozen=True, slots=True)
class IfMatch:
    """The versions of which a memory must have one to be changed; None expects nothing, not even a memory."""

    versions: frozenset[str] | None
    response: Response
    made: dict[str, str] = field(default_factory=dict)
    """The versions that the request made, by the ids of their memories."""

    def within(self, context: Context) -> Context:
        """The context in which other versions cannot be changed."""
        return replace(context, memories_of=lambda: context.memories.expecting(self.versions, self.made))

    def tell(self, memory_id: str) -> None:
        """Answer with the version that the request made of the memory, if it made one."""
        if version := self.made.get(memory_id):
            self.response.headers["etag"] = f'"{version}"'


@dataclass(frozen=True, slots=True)
class IfNoneMatch:
    """The versions that a client has already."""

    versions: frozenset[str]
    response: Response

    def answer(self, row: Observation, shown: Any) -> Any:
        """The answer with its version; an empty 304 where the client has it."""
        version = version_of(row)
        headers = {"etag": f'"{version}"'}
        if self.versions & {version, _ANY}:
            return Response(status_code=304, headers=headers)
        self.response.headers.update(headers)
        return shown


async def _new_version(response: Response) -> IfMatch:
    return IfMatch(None, response)


async def _expected(
    response: Response,
    if_match: Annotated[str | None, Header(description="Change only the version with this `ETag`.")] = None,
) -> IfMatch:
    if if_match is None:
        return IfMatch(None, response)
    return IfMatch(frozenset(tag for weak, tag in _tags(if_match) if not weak), response)


async def _held(
    response: Response,
    if_none_match: Annotated[str | None, Header(description="The `ETag` of the version that you have.")] = None,
) -> IfNoneMatch:
    return IfNoneMatch(frozenset(tag for _, tag in _tags(if_none_match or "")), response)


def _tags(header: str) -> list[tuple[str, str]]:
    """Each tag of a header, with its mark of weakness or none."""
    return [("", _ANY)] if header.strip() == _ANY else _TAG.findall(header)


IfMatchHere = Annotated[IfMatch, Depends(_expected)]
NewVersionHere = Annotated[IfMatch, Depends(_new_version)]
"""Of writes that make a memory, where there is no version to expect."""
IfNoneMatchHere = Annotated[IfNoneMatch, Depends(_held)]

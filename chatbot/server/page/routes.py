"""Base of the page's routes: forms in, and errors as a page instead of JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from chatbot.errors import ChatbotError
from chatbot.memory import SessionRecord
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import Problem, problem_of
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.sheets import is_part, sheet
from chatbot.stores.errors import InvalidValue, StoreError

_MOST_FIELDS = 200


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that renders errors as pages."""
        handle = super().get_route_handler()

        async def handle_or_tell(request: Request) -> Response:
            try:
                return await handle(request)
            except (ChatbotError, StoreError) as error:
                return told(request, problem_of(error, getattr(request.state, "caller", None)))
            except RequestValidationError:
                return told(request, Problem(422, "", "", "invalid address"))

        return handle_or_tell


async def _access(
    request: Request, identities: IdentitiesHere, caller: CallerHere, identity: Annotated[str, Path(max_length=100)]
) -> IdentityAccess:
    access = await identities.access(caller, identity)
    if request.method == "GET" and not is_part(request):
        request.state.access, request.state.beside = access, await beside(access)
    return access


AccessHere = Annotated[IdentityAccess, Depends(_access)]
SessionId = Annotated[str, Path(max_length=100)]


def _fields(request: Request) -> dict[str, str]:
    try:
        text = request.state.body.decode()
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:  # also for text that is not UTF-8
        raise InvalidValue(f"the form cannot be read: {error}") from error
    return {name: value.replace("\r\n", "\n") for name, value in fields}


Fields = Annotated[dict[str, str], Depends(_fields)]
"""Return the fields of a form, each once."""


def told(request: Request, problem: Problem) -> Response:
    """Render an error as a page."""
    access = getattr(request.state, "access", None)
    response = sheet(request, "problem.html", access, status=problem.status, here="", problem=problem)
    response.headers.update(problem.headers)
    return response


_MOST = 40


async def beside(access: IdentityAccess) -> list[SessionRecord]:
    """Return the pinned sessions and the ones used last."""
    return [
        *await access.memory.list_sessions(wanted=_is_pinned),
        *await access.memory.list_sessions(limit=_MOST, wanted=_is_listed),
    ]


def _is_pinned(record: SessionRecord) -> bool:
    return record.pinned_at is not None and record.archived_at is None


def _is_listed(record: SessionRecord) -> bool:
    return record.pinned_at is None and record.archived_at is None

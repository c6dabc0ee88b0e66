"""Anthropic's memory tool: each of its files is a memory, which the model reads as fenced text."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeGuard

from anthropic.lib.tools import BetaAsyncAbstractMemoryTool, BetaFunctionToolResultType, ToolError
from anthropic.types import beta
from pydantic import Field, TypeAdapter, ValidationError

from chatbot.chat.governor import fenced, judge, without_tokens
from chatbot.embed import AgentMemory, checked
from chatbot.messages import INTRODUCTION
from chatbot.stores.errors import ChangedMeanwhile, ConflictingChange
from chatbot.stores.fields import LONGEST_LINE
from chatbot.stores.observation import Observation, version_of

_ROOT = PurePosixPath("/memories")
_KIND = "anthropic"
_COMMANDS: TypeAdapter[Any] = TypeAdapter(Annotated[beta.BetaMemoryTool20250818Command, Field(discriminator="command")])


class MemoryFiles(BetaAsyncAbstractMemoryTool):
    """The memory tool over memories: a file is a memory with its path in the metadata.

    Keys and passwords are redacted. A file that reads like instructions is not shown; its owner finds it with
    `chatbot memory list`.
    """

    def __init__(self, memory: AgentMemory) -> None:
        super().__init__()
        self._memory = checked(memory)

    async def call(self, input: object) -> BetaFunctionToolResultType:  # noqa: A002 - the SDK's name
        """Run the command that the model wrote. Raises `ToolError`, which the model reads, for an invalid one."""
        try:
            command = _COMMANDS.validate_python(input)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ToolError(f"Invalid command: {wrong}") from None
        return await self.execute(command)

    async def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """Show a file with line numbers, or list a folder."""
        path = _safe_path(command.path)
        files = await self._below(path)
        if path not in files:
            if not files and path != _ROOT:
                raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
            names = "\n".join(f"{len(row.narrative.encode())}\t{each}" for each, row in sorted(files.items()))
            return f"Here're the files and directories in {path}:\n{names}"
        row = files[path]
        verdict = judge(row, self._memory.scope.write_view())
        if not verdict.ok:
            raise ToolError(f"The file {path} is withheld: {verdict.reason}. Ask the user to look at it.")
        shown = command.view_range or [1, -1]
        if len(shown) != 2 or shown[0] < 1:
            raise ToolError(f"Invalid `view_range` parameter: {shown}. It should be [first line, last line or -1].")
        lines = list(enumerate(row.narrative.split("\n"), 1))[shown[0] - 1 : None if shown[1] == -1 else shown[1]]
        body = fenced("memory-file", [f"{number:6}\t{line}" for number, line in lines], secrets.token_hex(4))
        return f"{INTRODUCTION}\nHere's the content of {path} with line numbers:\n{body}"

    async def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """Write a new file."""
        path = _safe_path(command.path)
        if path in await self._below(path):
            raise ToolError(f"File {path} already exists")
        await self._write(path, command.file_text)
        return f"File created successfully at: {path}"

    async def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once."""
        path, row = await self._read(command.path)
        if (found := row.narrative.count(command.old_str)) != 1:
            why = "did not appear verbatim" if not found else f"occurs {found} times"
            raise ToolError(f"No replacement was performed, old_str `{command.old_str}` {why} in {path}.")
        await self._write(path, row.narrative.replace(command.old_str, command.new_str), row)
        return "The memory file has been edited."

    async def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line."""
        path, row = await self._read(command.path)
        lines = row.narrative.split("\n")
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(f"Invalid `insert_line` parameter: {command.insert_line}. It should be 0 to {len(lines)}.")
        lines.insert(command.insert_line, command.insert_text.removesuffix("\n"))
        await self._write(path, "\n".join(lines), row)
        return f"The file {path} has been edited."

    async def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """Hide a file, or all files of a folder; `chatbot memory restore` brings them back."""
        path = _safe_path(command.path)
        if path == _ROOT:
            raise ToolError(f"Cannot delete {path} itself")
        if not (files := await self._below(path)):
            raise ToolError(f"The path {path} does not exist")
        await self._memory.forget(*(row.id for row in files.values()))
        return f"Successfully deleted {path}"

    async def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file, or all files of a folder."""
        old, new = _safe_path(command.old_path), _safe_path(command.new_path)
        if old == _ROOT:
            raise ToolError(f"Cannot rename {old} itself")
        if not (files := await self._below(old)):
            raise ToolError(f"The path {old} does not exist")
        if await self._below(new):
            raise ToolError(f"The path {new} already exists")
        for path, row in files.items():
            await self._write(new / path.relative_to(old), row.narrative)
            with _as_tool_errors(path):
                await self._memory.expecting(frozenset({version_of(row)})).forget(row.id)
        return f"Successfully renamed {old} to {new}"

    async def _below(self, path: PurePosixPath) -> dict[PurePosixPath, Observation]:
        """Return the file at that path, or all files below that folder."""
        rows = await self._memory.every(metadata={"kind": _KIND})
        files = {PurePosixPath(name): row for row in rows if _is_plain(name := row.metadata.get("path"))}
        return {each: row for each, row in files.items() if each.is_relative_to(path)}

    async def _read(self, name: str) -> tuple[PurePosixPath, Observation]:
        path = _safe_path(name)
        if (row := (await self._below(path)).get(path)) is None:
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        return path, row

    async def _write(self, path: PurePosixPath, text: str, old: Observation | None = None) -> None:
        """Write a new file, or the next version of `old`; of concurrent writes, one succeeds."""
        name = str(path)
        metadata = {"kind": _KIND, "path": name}
        memory = self._memory if old is None else self._memory.expecting(frozenset({version_of(old)}))
        with _as_tool_errors(path):
            await memory.upsert(
                f"{_KIND}:{name}", name, is_new=old is None, narrative=text, metadata=metadata, source="tool"
            )


@contextmanager
def _as_tool_errors(path: PurePosixPath) -> Iterator[None]:
    try:
        yield
    except ChangedMeanwhile:
        raise ToolError(f"File {path} was changed meanwhile: view it again") from None
    except ConflictingChange:
        raise ToolError(f"File {path} already exists") from None


def _safe_path(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not path.is_relative_to(_ROOT) or ".." in path.parts:
        raise ToolError(f"Path must start with /memories, and may not leave it, got: {name!r:.200}")
    if not _is_plain(name):
        raise ToolError(f"Path must be one short line of plain characters, got: {name!r:.200}")
    return path


def _is_plain(name: object) -> TypeGuard[str]:
    """Return whether a name is a short printable line without role marks, which a row stores unchanged."""
    if not isinstance(name, str) or not name.isprintable() or len(name) > LONGEST_LINE:
        return False
    return without_tokens(" ".join(name.split())) == name

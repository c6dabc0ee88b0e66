"""Backend of plain files: `memory/` of an identity, with a folder for each session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from chatbot.stores.backend import Backend, Examination
from chatbot.stores.files import FILE_MODE, below, contained, stamp
from chatbot.stores.flaws import Flaw
from chatbot.stores.on_disk.place import FilePlace
from chatbot.stores.on_disk.sessions import FolderSessions
from chatbot.stores.open_folders import OpenFolders
from chatbot.stores.records import SessionRef


class FileBackend(FilePlace, Backend):
    """The folder `home`, made when something is first written."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.sessions: FolderSessions = FolderSessions(home)
        self._session_folders = OpenFolders()

    def place_of(self, session: SessionRef) -> FilePlace:
        """Return the folder of the session as a place."""
        return FilePlace(session.folder, self._session_folders, makes_folder=False)

    def private_file(self, name: str) -> Path:
        """Create a file in the identity's folder that only its owner reads."""
        self.prepare()
        path = contained(self.folder, name)
        path.touch(FILE_MODE)
        return path

    def is_there(self) -> bool:
        """Return whether the folder exists."""
        return self.folder.is_dir()

    def refusal(self) -> OSError | None:
        """Return the error that keeps the folder from being written; None if there is none."""
        from chatbot.stores.on_disk.examination import unwritable

        return unwritable(self.folder)

    def examine(self, wish: Examination) -> Iterator[Flaw]:
        """Check all files of the identity for damage."""
        from chatbot.stores.on_disk.examination import examine

        return examine(self.folder, self.sessions, wish)

    def sizes(self) -> Mapping[str, int]:
        """Add up the bytes of all session files; approximate while they change."""
        found = (path for path in below(self.folder / "sessions") if path.is_file() and not path.is_symlink())
        return {"sessions": sum(each.size for each in map(stamp, found) if each is not None)}

    def close(self) -> None:
        """Close all folders."""
        super().close()
        self._session_folders.close_all(for_good=True)

"""The contract kit on the shelf of files."""

from pathlib import Path

import pytest

from chatbot.stores.log import Shelf
from chatbot.stores.testing.shelf_contract import ShelfContract


class TestFolderShelf(ShelfContract):
    opener = "chatbot.stores.cache:FolderShelf"

    @pytest.mark.nightly
    def test_a_kill_leaves_a_list_whose_pieces_are_whole_and_no_lock_behind(self, shelf: Shelf, folder: Path) -> None:
        super().test_a_kill_leaves_a_list_whose_pieces_are_whole_and_no_lock_behind(shelf, folder)

"""Folder names in errors."""

import pytest

from chatbot.errors import without_folders


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/ada/memory/usage.jsonl cannot be read", "usage.jsonl cannot be read"),
        ("it failed: '/srv/My Bot/identities/ada/kv.json': no space", "it failed: 'kv.json': no space"),
        ("moved /a/b to /c/d", "moved b to d"),
        ("~/notes/x.md and C:/Users/ada/y.md", "x.md and y.md"),
        ("[Errno 21] Is a directory: '/tmp/x/observations.jsonl'", "[Errno 21] Is a directory: 'observations.jsonl'"),
        (
            "see https://example.org/a/b and/or docs/http.md, 3/4",
            "see https://example.org/a/b and/or docs/http.md, 3/4",
        ),
        ("/help NAME", "/help NAME"),
        ("", ""),
    ],
)
def test_files_are_named_without_their_folders(text: str, told: str) -> None:
    assert without_folders(text) == told

"""MiniLM as it was published."""

from pathlib import Path

import pytest


@pytest.fixture
def published_minilm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the test with MiniLM without its trained changes."""
    for module in ("weights", "minilm"):
        monkeypatch.setattr(f"chatbot.models.{module}.read_changes", lambda: b'{"matrices": {}}')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

"""LangChain's standard tests of tools, on each tool of memory; run by `test_langgraph.py` in an environment of its own.

Their package brings plugins of pytest, which nothing else here is to be run with.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from chatbot.adapters.langchain import tools
from chatbot.embed import Portal, open_memory

CALLS: dict[str, dict[str, Any]] = {
    "memory_search": {"query": "tea"},
    "memory_write": {"title": "Ada likes tea"},
    "memory_get": {"ids": ["01900000-0000-7000-8000-000000000000"]},
    "memory_forget": {"ids": ["01900000-0000-7000-8000-000000000000"]},
    "memory_more": {"tool": "memory_stats"},
}


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BaseTool]]:
    with Portal() as portal:
        memory = open_memory(Path(tmp_path_factory.mktemp("memory")), user="ada")
        yield {tool.name: tool for tool in tools(memory, portal)}
        portal.run(memory.aclose())


def test_every_tool_is_tried(offered: dict[str, BaseTool]) -> None:
    assert offered.keys() == CALLS.keys()


@pytest.fixture(params=CALLS)
def called(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class _EachTool:
    @pytest.fixture(autouse=True)
    def _this(self, offered: dict[str, BaseTool], called: str) -> None:
        self.tool_constructor = offered[called]
        self.tool_invoke_params_example = CALLS[called]


class TestUnit(_EachTool, ToolsUnitTests):
    tool_constructor: Any = None
    tool_invoke_params_example: Any = None


class TestIntegration(_EachTool, ToolsIntegrationTests):
    tool_constructor: Any = None
    tool_invoke_params_example: Any = None

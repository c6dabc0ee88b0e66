"""Corrections on the page, sent as its form sends them, without a browser."""

import asyncio
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from tests.servers.http_server import serving


async def _derived() -> tuple[str, str]:
    """Something of Ada's, and what was made from it."""
    async with MemorySystem("identities/ada/memory") as memory:
        memories = memory.memory("chat")
        source = (await memories.remember("Kim told of the boat that she sold to Ole for nine thousand")).id
        made = await memories.remember("Kim sold the boat to Ole", derived_from=[source], visibility="shared")
        return source, made.id


@pytest.mark.parametrize("how", ["wrong", "changed"])
def test_a_correction_goes_along_with_what_it_was_made_from(how: str) -> None:
    source, made = asyncio.run(_derived())
    with serving() as served, served.client() as client:
        said = {"how": how, "title": "Kim sold the barge to Ole", "facts": "In May\nAt noon"}
        answer = client.post(f"/i/ada/memory/{made}/correct", data=said)
        corrected = answer.headers["location"].rpartition("/")[2].partition("?")[0]
        assert (corrected == made) == (how == "wrong")
        assert "Kim sold the barge to Ole" in client.get(f"/i/ada/memory/{corrected}").raise_for_status().text
        assert client.get(f"/v1/memories/{corrected}").json()["facts"] == ["In May", "At noon"]
        client.patch(f"/v1/memories/{source}", json={"sensitivity": "private"}).raise_for_status()
        assert client.get(f"/v1/memories/{corrected}").status_code == 404, "it is as strict as its source by now"
        client.delete(f"/v1/memories/{source}", params={"purge": True}).raise_for_status()
        ask = {"ask": ["private"]}
        assert client.get(f"/v1/memories/{corrected}", params=ask).status_code == 404
    assert b"barge" not in Path("identities/ada/memory/observations.jsonl").read_bytes()

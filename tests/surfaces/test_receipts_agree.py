"""The receipt, `why`, the line under a reply and the page agree with the provider's own log of what it was sent."""

import asyncio
import re
from html import unescape
from typing import Any

import pytest

from chatbot.chat.receipts import IN_PROMPT, memory_line, outcomes
from chatbot.runtime import Options, Runtime
from tests.command import from_json, ok, project, run
from tests.servers.http_server import serving
from tests.surfaces.test_providers_cli import asked_at
from tests.talk import begun

pytest_plugins = ["tests.servers.openai_server"]

QUESTIONS = (
    "Where does my sister Ellen keep her alpacas, and who is the vet?",
    "And which vet sees the alpacas of Ellen again?",
    "My alpaca hay is delivered on Friday at noon.",
    "When is the alpaca hay delivered, and what does the vet of Ellen say?",
)
MEMORIES = (
    ("Ellen keeps the alpacas on a meadow near Lucca.",),
    ("The vet of Ellen's alpacas is Dr Moretti.",),
    ("The alpacas of Ellen get their hay from the mill.",),
    ("The vet told Ellen that alpaca Castor is blind.", "--sensitivity", "private"),
    ("The tram to the fair leaves at nine.",),
)


@pytest.fixture
def session(openai_url: str) -> str:
    """A session of all questions, some memories of which are marked private."""
    project(
        '[model]\nname = "openai/says"\ncontext_window = 4000\n[agents.chat]\ntools = []\n'
        f'[providers.openai]\napi_key = "sk-test-0123456789"\napi_base = "{openai_url}"\n'
    )
    assert run("config", "trust").returncode == 0
    for memory in MEMORIES:
        ok("memory", "add", *memory)
    ok("memory", "profile", "set", "home of Ellen", "Lucca")
    return asyncio.run(_talk())


async def _talk() -> str:
    async with Runtime(Options()) as runtime:
        session, chat = await begun(runtime)
        for question in QUESTIONS:
            await chat.turn(question)
        return session.id


def receipts() -> list[dict[str, Any]]:
    return [from_json("why", str(number)) for number in range(1, len(QUESTIONS) + 1)]


def test_the_log_of_the_provider_the_receipts_why_and_the_page_agree(session: str, openai_url: str) -> None:
    rows = {row["id"]: row for row in from_json("memory", "list", "--limit", "0")}
    sent = [each["body"]["messages"] for each in asked_at(openai_url)]
    found: set[str] = set()
    for messages, receipt in zip(sent, receipts(), strict=True):
        memory = receipt["memory"]
        prompt = "\n".join(str(message["content"]) for message in messages)
        for each, outcome in outcomes(memory).items():
            said = rows[each].get("user_text") or rows[each]["title"]
            assert (said in prompt) is (outcome in IN_PROMPT), (outcome, rows[each])
            found.add(outcome)
        blocks = re.findall(r"<memory-context.*?</memory-context", prompt, re.DOTALL)
        notes = [line for block in blocks for line in block.splitlines() if line.startswith("- ")]
        told = [each for each, how in outcomes(memory).items() if how in IN_PROMPT - {"in the conversation already"}]
        assert len([line for line in notes if "withheld" not in line]) == len(told)
        assert "Castor" not in prompt
        withheld = memory.get("withheld", {}).get("rows", [])
        assert (f"{len(withheld)} note about this is withheld from openai" in prompt) is bool(withheld)
    assert found >= {
        "sent", "sent as a profile line", "sent with the previous message", "in the conversation already", "withheld",
    }  # fmt: skip
    _check_why_and_page(session)


def test_one_question_says_what_was_withheld(session: str) -> None:
    assert session
    assert "1 withheld from openai" in run("ask", "--new", QUESTIONS[0]).stderr


SECRET = "what looks like a secret (pin) is left out of memory; the transcript keeps it"


def test_a_secret_that_is_left_out_of_memory_is_reported_at_every_door() -> None:
    said = "The PIN is 4711, and the heron is called Bela"
    project('[model]\nname = "scripted"\n[embedding]\nmodel = ""\n')
    assert run("ask", said).stderr == f"chatbot: {SECRET}\n"
    assert f"notice: {SECRET}" in ok("why")
    with serving() as served, served.client() as client:
        made = client.post("/v1/sessions", json={}).json()["id"]
        told = client.post(f"/v1/sessions/{made}/chat", json={"text": said}).text
        assert told.count(f'"{SECRET}"') == 2  # an event, and in the receipt
        assert SECRET[1:] in client.get(f"/i/ada/c/{made}").text
        assert SECRET[1:] not in client.post(f"/i/ada/c/{made}/say", data={"text": "Bela is a heron"}).text


def _check_why_and_page(session: str) -> None:
    lines = [memory_line(receipt["memory"]) for receipt in receipts()]
    assert "withheld from openai" in lines[0]
    for number, line in enumerate(lines, 1):
        told = ok("why", str(number))
        assert not line or f"in the prompt: {line}" in told
        assert ("in the prompt" in told) is bool(line)
        scores = re.findall(r"^\d\.\d\d", told, re.MULTILINE)
        assert scores == sorted(scores, reverse=True)
    with serving() as served, served.client() as client:
        page = unescape(client.get(f"/i/ada/c/{session}").text)
        for receipt, line in zip(receipts(), lines, strict=True):
            assert not line or line[:1].upper() + line[1:] in page
            noted = unescape(client.get(f"/i/ada/c/{session}/noted", params={"at": receipt["at"]}).text)
            assert ("Withheld from openai" in noted and "Castor" in noted) is ("withheld" in line)
            why = unescape(client.get(f"/i/ada/c/{session}/why", params={"at": receipt["at"]}).text)
            assert not line or f"In the prompt: {line}" in why
            assert not line or all(f'<th scope="row">{part}<' in why for part in ("persona", "credibility"))
            for each, outcome in outcomes(receipt["memory"]).items():
                shown = outcome if outcome in IN_PROMPT else f"left out: {outcome}"
                [verdict] = re.findall(rf'memory/{each}">.*?class="verdict [a-z]+">(.*?)</span>', why, re.DOTALL)
                assert verdict == shown

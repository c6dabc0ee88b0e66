"""Clients that send a part of the history or change replies: one session each, and never that of another talk."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.effort import NIGHTLY
from tests.patience import PATIENCE_S
from tests.servers.http_server import Serve

Say = dict[str, Any]
TEXTS = ("hi", "ok", "thanks", "and then?", "why?", "tell me more")
"""Few, so that conversations of different people are alike."""


@dataclass
class Talk:
    """One conversation as its client holds it, and the sessions in which it was answered."""

    user: str
    shows: Callable[[list[Say]], list[Say]]
    said: list[Say] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    def say(self, client: httpx.Client, text: str) -> None:
        self.said.append({"role": "user", "content": text})
        body = {"model": "ada", "user": self.user, "messages": self.shows(self.said)}
        answer = client.post("/v1/chat/completions", json=body).json()
        self.sessions.append(answer["session_id"])
        self.said.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})


def whole(said: list[Say]) -> list[Say]:
    return said


def window(said: list[Say]) -> list[Say]:
    return said[-5:]


def cleaned(said: list[Say]) -> list[Say]:
    return [{**each, "content": each["content"].removeprefix("You said: ")} for each in said]


def short_and_cleaned(said: list[Say]) -> list[Say]:
    return cleaned(said[-5:])


WAYS = (whole, window, cleaned, short_and_cleaned)


def _transcript(client: httpx.Client, session_id: str, user: str) -> list[str]:
    path = f"/v1/sessions/{session_id}/messages"
    data = client.get(path, headers={"X-Chatbot-User": user}).json()["data"]
    return [each["content"] for each in data if each["role"] == "user"]


@pytest.mark.parametrize("shows", WAYS)
def test_ten_turns_are_one_session_whatever_part_of_the_history_a_client_sends(
    http: Serve, shows: Callable[[list[Say]], list[Say]]
) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada", memory="on")) as client:
        talk = Talk("alice", shows)
        for number in range(10):
            talk.say(client, f"My {number}th remark is about {TEXTS[number % 6]}")
        assert len(set(talk.sessions)) == 1
        assert len(_transcript(client, talk.sessions[0], "alice")) == 10
        prompt = "\n".join(message.content for message in served.models["ada"].prompts[-1])
        assert all(prompt.count(f"My {number}th remark") <= 2 for number in range(10)), (
            "said and repeated, not recalled"
        )


def test_two_conversations_that_begin_alike_keep_their_first_exchange_each(http: Serve) -> None:
    served = http(tokens=True)
    with served.client(served.token("ada", memory="on")) as client:
        talks = [Talk("alice", cleaned), Talk("alice", whole)]
        for text in ("hi", "{}", "go on, {}", "and {}"):
            for number, talk in enumerate(talks):
                talk.say(client, text.format(f"number {number}"))
        for number, talk in enumerate(talks):
            said = ["hi", f"number {number}", f"go on, number {number}", f"and number {number}"]
            assert _transcript(client, talk.sessions[-1], "alice") == said
            assert len(set(talk.sessions)) == 2


@pytest.mark.timeout(10 * PATIENCE_S)
def test_no_conversation_ever_gets_into_the_session_of_another(http: Serve) -> None:
    """Made-up conversations of two users that are alike, with edits and replies that are made again."""
    served = http(tokens=True, config="[server]\nrate_per_minute = 0\n")
    chance = random.Random(34)
    owners: dict[str, Talk] = {}
    with served.client(served.token("ada", memory="on")) as client:
        for _ in range(50 if NIGHTLY else 2):
            talks = [Talk(chance.choice(("alice", "bob")), chance.choice(WAYS)) for _ in range(10)]
            for _ in range(40):
                talk = chance.choice(talks)
                if talk.said and chance.random() < 0.25:
                    del talk.said[2 * chance.randrange(len(talk.said) // 2) :]  # edited there, or asked again
                talk.say(client, chance.choice(TEXTS))
            for talk in talks:
                assert all(owners.setdefault(each, talk) is talk for each in talk.sessions), talk

"""Daily quotas of tokens and users, over HTTP and in a terminal."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from msgspec.structs import replace

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import NO_QUOTA, Ledger, Quota
from chatbot.config import BudgetSettings
from chatbot.errors import QuotaExceeded
from chatbot.messages import Message
from chatbot.models import ScriptedModel
from chatbot.server.callers import Accounts, Grant, ServerCaller
from chatbot.stores.access import GUEST_RIGHTS, Right
from tests.servers.http_server import Serve, Served

ASKED = [Message("user", "Which star is that?")]


@pytest.fixture
def served(http: Serve) -> Served:
    return http(["Castor."] * 20)


def _token(served: Served, quota: Quota = NO_QUOTA, user_quota: Quota = NO_QUOTA) -> str:
    rights: frozenset[Right] = GUEST_RIGHTS | {"curate"}
    grant = Grant(("ada",), "full", rights=rights, quota=quota, user_quota=user_quota)
    text, _ = served.identities.tokens.add("shop", grant)
    return text


def _ask(client: httpx.Client, user: str | None = None) -> httpx.Response:
    headers = {} if user is None else {"X-Chatbot-User": user}
    body = {"model": "ada", "messages": [{"role": "user", "content": "Which star is that?"}], "max_tokens": 20}
    return client.post("/v1/chat/completions", json=body, headers=headers)


def test_a_token_beyond_its_quota_is_told_when_it_is_free_again(served: Served) -> None:
    text = _token(served, quota=Quota(day_tokens=200))
    with served.client(text) as client:
        answers = [_ask(client) for _ in range(12)]
        assert [answers[0].status_code, answers[-1].status_code] == [200, 429]
        error = answers[-1].json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "quota_exceeded")
        assert "of this token a day = 200 tokens" in error["message"]
        assert "free again at" in error["message"]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 24 * 3600
        usage = client.get("/v1/usage").json()
        assert usage["user"] is None
        assert usage["token"]["day_tokens"] == 200
        assert 0 < usage["token"]["spent_tokens"] <= 200
    asked: Any = [{"role": "user", "content": "Which star is that? " * 50}]
    official = openai.OpenAI(base_url=f"{served.url}/v1", api_key=text)
    with official, pytest.raises(openai.RateLimitError, match="free again at"):
        official.chat.completions.create(model="ada", messages=asked)
    served.identities.tokens.limit("shop", lambda token: replace(token, quota=Quota()))
    with served.client(text) as client:
        assert _ask(client).status_code == 200


def test_each_user_has_a_quota_and_one_of_their_own_beats_it(served: Served) -> None:
    with served.client(_token(served, user_quota=Quota(day_tokens=150))) as client:
        while _ask(client, "alice").status_code == 200:
            pass
        assert "of this user a day = 150 tokens" in _ask(client, "alice").json()["error"]["message"]
        assert _ask(client, "bob").status_code == 200
        assert _ask(client).status_code == 200
        given = client.put("/v1/users/quota?user=alice", json={"day_tokens": 5000}).json()
        assert given["day_tokens"] == 5000
        assert _ask(client, "alice").status_code == 200
        assert client.get("/v1/usage", headers={"X-Chatbot-User": "alice"}).json()["user"]["day_tokens"] == 5000
        assert client.delete("/v1/users/quota?user=alice").json()["day_tokens"] == 150
        assert _ask(client, "alice").status_code == 429
    guest = served.token("ada", rights=["read", "chat", "write"])
    with served.client(guest) as client:
        assert client.put("/v1/users/quota?user=alice", json={"day_tokens": 1}).status_code == 403
        assert client.get("/v1/users/quota?user=alice").status_code == 403
    server = Path("identities/.server")
    assert b"alice" not in b"".join(each.read_bytes() for each in server.glob("*") if each.is_file())


async def test_a_refusal_of_one_payer_leaves_nothing_reserved_at_the_other(tmp_path: Path) -> None:
    caller = ServerCaller(
        token="tk_1", quota=Quota(day_tokens=1000), user="al", namespace="user:al", user_quota=Quota(0, 1)
    )
    payers = Accounts.of(tmp_path).payers(caller)
    calls = Calls(ScriptedModel([]), Ledger(tmp_path / "ada"), BudgetSettings(), reply_tokens=50, payers=payers)
    with pytest.raises(QuotaExceeded, match="of this user"):
        await calls.ask("answer", ASKED)
    assert json.loads((tmp_path / "reservations.json").read_text())["reservations"] == []

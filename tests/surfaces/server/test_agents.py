"""Routes for agents that run elsewhere, asked over HTTP."""

import json
from typing import Any

import httpx

from chatbot.transfer.exports import MemoryExport, read_bundle

SAID = [
    {"role": "user", "content": "My sister Anna lives in Lisbon.", "at": "2026-03-01T10:00:00Z"},
    {"role": "assistant", "content": "Noted.", "at": "2026-03-01T10:00:02Z"},
]


def _session(client: httpx.Client) -> str:
    return str(client.post("/v1/sessions", json={"title": "elsewhere"}).json()["id"])


def _post(client: httpx.Client, path: str, body: Any, **headers: str) -> Any:
    response = client.post(path, json=body, headers=headers)
    assert response.is_success, response.text
    return response.json()


def test_a_conversation_held_elsewhere_is_taken_in_and_answers_other_sessions(client: httpx.Client) -> None:
    path = f"/v1/sessions/{_session(client)}/messages"
    first = _post(client, path, {"messages": SAID[:1]}, **{"Idempotency-Key": "one"})
    assert first == {"added": 1, "remembered": []}
    second = _post(client, path, {"messages": SAID[1:]}, **{"Idempotency-Key": "two"})
    assert second == _post(client, path, {"messages": SAID[1:]}, **{"Idempotency-Key": "two"})
    assert len(client.get(path).json()["data"]) == 2
    [kept] = second["remembered"]
    row = client.get(f"/v1/memories/{kept}").json()
    assert (row["user_text"], row["assistant_text"]) == ("My sister Anna lives in Lisbon.", "Noted.")
    assert row["created_at"] == "2026-03-01T10:00:00Z"
    found = _post(client, "/v1/context", {"messages": [{"role": "user", "content": "Where does Anna live?"}]})
    assert "Anna lives in Lisbon" in found["text"]
    assert [each["id"] for each in found["memories"]] == found["receipt"]["injected"] == [kept]


def test_a_message_of_the_future_is_refused_and_nothing_of_its_request_is_kept(client: httpx.Client) -> None:
    path = f"/v1/sessions/{_session(client)}/messages"
    response = client.post(path, json={"messages": [SAID[0], {**SAID[1], "at": "2999-01-01T00:00:00Z"}]})
    assert response.status_code == 422
    assert "messages[1].at is 2999-01-01" in response.json()["error"]["message"]
    assert client.get(path).json()["data"] == []


def test_a_reply_that_goes_on_replaces_the_exchange(client: httpx.Client) -> None:
    path = f"/v1/sessions/{_session(client)}/messages"
    [first] = _post(client, path, {"messages": SAID})["remembered"]
    more = {"role": "assistant", "content": "She keeps bees there.", "at": "2026-03-01T10:00:05Z"}
    [second] = _post(client, path, {"messages": [more]})["remembered"]
    assert client.get(f"/v1/memories/{first}").status_code == 404
    assert client.get(f"/v1/memories/{second}").json()["assistant_text"] == "Noted.\n\nShe keeps bees there."


def test_many_things_are_remembered_in_one_request(client: httpx.Client) -> None:
    drafts = [{"title": f"fact {n}", "metadata": {"n": n}} for n in range(30)]
    body = {"memories": [*drafts, {"title": " "}, {"title": "fact 0"}, {"title": "The password: hunter2!x opens it"}]}
    first = _post(client, "/v1/memories/batch", body, **{"Idempotency-Key": "k"})["data"]
    assert [each["outcome"] for each in first] == ["added"] * 30 + ["skipped", "exact_dup", "added"]
    assert (first[30]["id"], bool(first[30]["reason"])) == (None, True)
    assert first[32]["redacted"]
    again = _post(client, "/v1/memories/batch", body, **{"Idempotency-Key": "k"})["data"]
    assert again == [{**each, "reason": ""} for each in first], "of the texts none is stored"
    assert len(client.get("/v1/memories", params={"limit": 100}).json()["data"]) == 31


def test_memories_are_filtered_by_their_metadata(client: httpx.Client) -> None:
    rows = [{"title": f"green tea {n}", "metadata": {"n": n, "path": f"docs/{n}"}} for n in range(5)]
    _post(client, "/v1/memories/batch", {"memories": rows})
    asked = {"metadata": json.dumps({"$or": [{"path": {"$prefix": "docs/1"}}, {"n": 0}]})}
    listed = client.get("/v1/memories", params=asked).json()["data"]
    assert {each["metadata"]["n"] for each in listed} == {0, 1}
    hits = client.get("/v1/memories/search", params={"q": "tea", **asked}).json()["data"]
    assert {each["memory"]["metadata"]["n"] for each in hits} == {0, 1}
    for wrong in ("", "[]", "{", '{"n": {"$above": 1}}', "[" * 5_000):
        assert client.get("/v1/memories", params={"metadata": wrong}).status_code == 422


def test_memories_move_from_one_identity_to_another(client: httpx.Client) -> None:
    _post(client, "/v1/memories", {"title": "Anna lives in Lisbon"})
    _post(client, "/v1/memories", {"title": "the code is 1234", "sensitivity": "private"})
    session = client.post("/v1/sessions", json={}).json()["id"]
    said = [{"role": "user", "content": "My bike is green."}, {"role": "assistant", "content": "It suits you."}]
    assert _post(client, f"/v1/sessions/{session}/messages", {"messages": said})["remembered"]
    text = client.get("/v1/memories/export").text
    [exported] = read_bundle(text, "text")
    assert isinstance(exported, MemoryExport)
    assert [row.title for row in exported.observations] == ["Anna lives in Lisbon", ""]
    assert not exported.broken
    assert "the code is 1234" in client.get("/v1/memories/export", params={"sensitivity": "private"}).text
    assert _post(client, "/v1/memories/import", {"text": text})["already"] == 2
    elsewhere = "/v1/memories/import?identity=grace"
    assert _post(client, elsewhere, {"text": text}) == {"memories": 2, "facts": 0, "already": 0, "skipped": 0}
    assert _post(client, elsewhere, {"text": text})["memories"] == 0
    assert len(client.get("/v1/memories?identity=grace").json()["data"]) == 2
    assert client.post(elsewhere, json={"text": "no\nexport"}).status_code == 422
    record = {"id": session, "agent_id": "chat", "store_types": [], "created_at": "2026-01-02T03:04:05Z"}
    begin = json.dumps({"kind": "session", "format": 1, **record})
    assert _post(client, elsewhere, {"text": f'{begin}\n{{"kind": "end"}}'})["skipped"] == 1
    assert client.post(elsewhere, json={"text": begin}).status_code == 422
    assert client.get("/v1/sessions?identity=grace").json()["data"] == []


def _tag(client: httpx.Client, path: str) -> str:
    return str(client.get(path).headers["etag"])


def test_a_key_is_overwritten_in_the_version_that_was_read(client: httpx.Client) -> None:
    path = f"/v1/memories/by-key/crm%2F{'42' * 400}"
    assert client.put(path, json={"title": "Rome"}, headers={"If-Match": "*"}).status_code == 412
    assert client.get(path).status_code == 404
    client.put(path, json={"title": "Lisbon", "metadata": {"stage": "lead"}})
    tag = _tag(client, path)
    client.put(path, json={"title": "Porto", "metadata": {"stage": "lead"}}, headers={"If-Match": tag})
    for stage in ("lead", "customer"):  # one supersedes, the other takes the place
        body = {"title": "Rome", "metadata": {"stage": stage}}
        assert client.put(path, json=body, headers={"If-Match": tag}).status_code == 412
    assert client.get(path).json()["title"] == "Porto"
    newest = {"If-Match": _tag(client, path)}
    assert (
        client.put(path, json={"title": "Rome", "sensitivity": "private"}, headers=newest).json()["outcome"] == "added"
    )
    titles = [client.get(path + more).json().get("title") for more in ("", "?sensitivity=private")]
    assert titles == [None, "Rome"]


def test_a_write_answers_with_the_version_that_it_made(client: httpx.Client) -> None:
    made = client.post("/v1/memories", json={"title": "green tea"})
    path = f"/v1/memories/{made.json()['id']}"
    tags = [made.headers["etag"]]
    assert tags[-1] == _tag(client, path)
    for body in ({"title": "black tea"}, {"tags": ["drink"]}):
        tags.append(client.patch(path, json=body, headers={"If-Match": tags[-1]}).headers["etag"])
        assert tags[-1] == _tag(client, path)
    assert len(set(tags)) == 3
    assert client.patch(path, json={"tags": ["drink"]}).headers["etag"] == tags[-1]
    assert client.post(f"{path}/confirm").headers["etag"] == tags[-1]
    forgotten = client.delete(path)
    assert forgotten.headers["etag"] not in tags
    restored = client.post(f"{path}/restore", headers={"If-Match": forgotten.headers["etag"]})
    assert restored.headers["etag"] == tags[-1] == _tag(client, path)
    assert client.get("/v1/memories/recall", params={"q": "What about black tea?"}).json()  # which is no change
    assert _tag(client, path) == tags[-1]


def test_a_write_that_expects_an_outdated_version_is_refused(client: httpx.Client) -> None:
    path = f"/v1/memories/{_post(client, '/v1/memories', {'title': 'green tea', 'tags': ['drink']})['id']}"
    tag = _tag(client, path)
    assert client.patch(path, json={"tags": ["tea"]}, headers={"If-Match": f'"other", {tag}'}).is_success
    current = _tag(client, path)
    assert current != tag
    writes = (("PATCH", path, {"tags": ["lost"]}), ("DELETE", path, None), ("DELETE", f"{path}?purge=true", None),
              ("POST", f"{path}/confirm", None))  # fmt: skip
    for outdated in (tag, f"W/{current}", '"*"', "unquoted"):
        for method, place, body in writes:
            refused = client.request(method, place, json=body, headers={"If-Match": outdated})
            assert (refused.status_code, refused.json()["error"]["code"]) == (412, "changed_meanwhile"), place
    assert _tag(client, path) == current
    for expected in ({"If-Match": "*"}, {}):
        assert client.patch(path, json={"tags": ["any"]}, headers=expected).is_success
    assert client.delete(f"{path}?purge=true", headers={"If-Match": _tag(client, path)}).status_code == 204
    assert client.get(path).status_code == 404

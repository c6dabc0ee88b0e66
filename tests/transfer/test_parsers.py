"""Files from elsewhere, as they are written and as they are not: parsers give values, or say what is wrong."""

import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.stores.errors import DamagedFile, InvalidValue, StoreError
from chatbot.transfer.formats import Conversation, Item, MemoryItem, Skip, read_element, read_markdown
from chatbot.transfer.sources import elements, open_source
from tests.transfer import exports

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["mapping", "message", "author", "role", "content", "parts", "parent", "current_node", "title", "id", "create_time",
     "uuid", "sender", "text", "type", "files", "conversations_memory", "metadata"]
)  # fmt: skip
SHAPED = st.recursive(
    JSON | st.sampled_from(["user", "assistant", "text", "root"]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=15,
)


def _read(kind: str, value: Any) -> Item:
    [item] = read_element(kind, value, 1)
    return item


def _conversation(kind: str, value: Any) -> Conversation:
    item = _read(kind, value)
    assert isinstance(item, Conversation)
    return item


def _said(kind: str, value: Any) -> list[tuple[str, str]]:
    return [(entry.role, entry.content) for entry in _conversation(kind, value).entries]


def test_a_conversation_of_chatgpt_is_the_branch_that_was_shown_last() -> None:
    value = exports.chatgpt(
        exports.chatgpt_message("user", "why does it fail?"),
        exports.chatgpt_message("assistant", "a timeout", at=1_700_000_010),
    )
    thrown_away = exports.chatgpt_message("assistant", "the answer that was thrown away")
    value["mapping"]["regenerated"] = {"id": "regenerated", "message": thrown_away, "parent": "n1", "children": []}
    assert _said("chatgpt", value) == [("user", "why does it fail?"), ("assistant", "a timeout")]
    item = _conversation("chatgpt", value)
    assert (item.key, item.title) == ("c-1", "Deploy timeout")
    assert _conversation("chatgpt", value | {"title": ""}).title == "why does it fail?"
    assert item.used_at.timestamp() == 1_700_000_900.25
    assert item.entries[0].at.timestamp() == 1_700_000_000.5


def test_tools_reasoning_and_pictures_of_chatgpt_are_counted_not_forged() -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    voice = {"content_type": "real_time_user_audio_video_asset_pointer", "audio_asset_pointer": {}}
    files = [{"name": "x.png", "mimeType": "image/png"}, {"name": "a.pdf", "mimeType": "application/pdf"}, "odd"]
    value = exports.chatgpt(
        exports.chatgpt_message("user", picture, "what is it?", kind="multimodal_text"),
        exports.chatgpt_message("assistant", "import os", kind="code", recipient="python"),
        exports.chatgpt_message("tool", '[{"id": "x", "name": "delete", "arguments": "{}"}]'),
        exports.chatgpt_message("assistant", "hm", kind="thoughts"),
        exports.chatgpt_message("system", "you are a pirate"),
        exports.chatgpt_message("tool_call", "forged role"),
        exports.chatgpt_message("assistant", "a shape that nobody knows", author=None),
        exports.chatgpt_message("assistant", "a cat"),
        exports.chatgpt_message("user", "", metadata={"attachments": files}),
        exports.chatgpt_message("user", voice, {"content_type": "nobody knows"}, kind="multimodal_text"),
    )
    said = [("user", "[image]\n\nwhat is it?"), ("assistant", "a cat"), ("user", "[file: a.pdf]"), ("user", "[audio]")]
    assert _said("chatgpt", value) == said
    left_out = {"image": 1, "tool": 2, "thoughts": 1, "hidden": 3, "unknown": 2, "file": 1, "audio": 1}
    assert _conversation("chatgpt", value).left_out == left_out


def test_a_tree_that_is_broken_is_followed_as_far_as_it_goes() -> None:
    value = exports.chatgpt(
        exports.chatgpt_message("user", "hello"), exports.chatgpt_message("assistant", "hi", at=1.8e9)
    )
    value["mapping"]["n1"]["parent"] = "n2"  # a cycle
    for node in ("n2", "gone", None, ["n2"], 7):
        assert ("assistant", "hi") in _said("chatgpt", value | {"current_node": node})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "not of the format chatgpt"), ({"mapping": [], "id": "x"}, "not of the format chatgpt"),
        ({"mapping": {}}, "no id"), ({"mapping": {}, "id": "x"}, "no text"), (exports.chatgpt(), "no text"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_skipped_and_says_why(value: Any, why: str) -> None:
    item = _read("chatgpt", value)
    assert isinstance(item, Skip)
    assert why in item.why


@given(SHAPED)
def test_no_json_breaks_a_parser(value: Any) -> None:
    times: list[Any] = [float("inf"), 1e300, -1e300, "yesterday", "0001-01-01", True, []]
    shapes = {
        "chatgpt": [value, {"id": "x", "mapping": {"root": value}}, *(exports.chatgpt(create_time=at) for at in times)],
        "claude": [value, {"uuid": "x", "chat_messages": [value]}, {"project_memories": value}],
    }
    for kind, values in shapes.items():
        for each in values:
            assert all(isinstance(item, Conversation | MemoryItem | Skip) for item in read_element(kind, each, 1))


def test_a_conversation_of_claude_has_its_files_and_not_its_thoughts() -> None:
    question = exports.claude_message(
        "human",
        "is this bread?",
        attachments=[{"file_name": "recipe.txt", "file_size": 9, "file_type": "txt", "extracted_content": "flour"}],
        files=[{"file_name": "photo.png"}],
    )
    blocks = [
        {"type": "thinking", "thinking": "flour …"},
        {"type": "tool_use", "name": "search", "input": {}},
        {"type": "text", "text": "yes, it is"},
    ]
    answer = exports.claude_message("assistant", "yes", content=blocks)
    old = {"uuid": "m", "text": "hello", "sender": "human", "created_at": "2023-08-01T00:00:00.000000Z"}
    value = exports.claude(question, answer, exports.claude_message("system", "obey"), old)
    assert _said("claude", value) == [
        ("user", "is this bread?\n\n[file: recipe.txt]\nflour\n\n[file: photo.png]"),
        ("assistant", "yes, it is"),
        ("user", "hello"),
    ]
    assert _conversation("claude", value).left_out == {"thinking": 1, "tool_use": 1, "hidden": 1}


HUMAN = exports.claude_message("human", "hello")
ODD_MESSAGES: list[tuple[Any, str, dict[str, int]]] = [
    (None, "", {"unknown": 1}), ("text", "", {"unknown": 1}), (HUMAN | {"sender": ["human"]}, "", {"unknown": 1}),
    (HUMAN | {"uuid": ["u"]}, "hello", {}), (HUMAN | {"uuid": "1"}, "hello", {}),
    (HUMAN | {"parent_message_uuid": ["1"]}, "hello", {}), (HUMAN | {"content": "as a text"}, "as a text", {}),
    (HUMAN | {"content": 7}, "hello", {"unknown": 1}),
    (HUMAN | {"content": [{"text": "no type"}, "a text", None]}, "no type\n\na text", {"unknown": 1}),
    (HUMAN | {"content": [{"type": "text", "text": 7}]}, "hello", {"unknown": 1}),
    (HUMAN | {"content": [{"type": ["x"], "text": "x"}, {"type": "text", "text": "y"}]}, "y", {"['x']": 1}),
    (HUMAN | {"attachments": ["a.txt", None], "files": "b.txt"}, "hello", {"unknown": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("odd", "text", "left_out"), ODD_MESSAGES)
def test_an_odd_message_costs_no_other_and_no_text_in_silence(odd: Any, text: str, left_out: dict[str, int]) -> None:
    before = exports.claude_message("human", "before", uuid="1", parent_message_uuid="0")
    if isinstance(odd, dict):
        odd = {"parent_message_uuid": "1"} | odd
    after = exports.claude_message("assistant", "after", uuid="3", parent_message_uuid=HUMAN["uuid"])
    value = exports.claude(before, odd, after, current_leaf_message_uuid="3")
    said = [("user", "before"), *([("user", text)] if text else []), ("assistant", "after")]
    assert _said("claude", value) == said
    assert _conversation("claude", value).left_out == left_out


def test_branches_of_claude_are_told_apart() -> None:
    messages = [
        exports.claude_message("human", "one", uuid="1"),
        exports.claude_message(
            "assistant", "kept", uuid="3", parent_message_uuid="1", created_at="2024-05-07T00:00:00Z"
        ),
        exports.claude_message("assistant", "thrown away", uuid="2", parent_message_uuid="1"),
    ]
    for leaf in ({"current_leaf_message_uuid": "3"}, {}):  # only the web page names it
        assert _said("claude", exports.claude(*messages, **leaf)) == [("user", "one"), ("assistant", "kept")]
    after_a_gap = exports.claude_message("human", "two", uuid="5", parent_message_uuid="4")
    assert len(_said("claude", exports.claude(*messages, after_a_gap | {"created_at": "2024-05-08T00:00:00Z"}))) == 4


def test_what_claude_remembers_comes_in_as_memories() -> None:
    projects = {"o": None, "p": "A bakery.", "q": ""}
    value: dict[str, Any] = {"conversations_memory": "Sam bakes.", "project_memories": projects, "account_uuid": "a"}
    value["memory_files"] = [{"path": "/b.md", "content": "Rye.", "updated_at": "2026-01-02T03:04:05.000000Z"}]
    found = [each for each in read_element("claude", value, 1) if isinstance(each, MemoryItem)]
    assert [memory.draft.narrative for memory in found] == ["Sam bakes.", "A bakery.", "Rye."]
    assert str(found[2].draft.created_at) == "2026-01-02 03:04:05+00:00"


def test_a_list_is_read_element_by_element_and_breaks_where_it_is_broken() -> None:
    assert list(elements('[1, {"a": [2]}, "x"]\n', "f")) == [1, {"a": [2]}, "x"]
    assert list(elements('{"a": "\\ud83d\\ude00 \\ud800"}', "f")) == [{"a": "\U0001f600 ?"}]
    for broken in ("", "[", "[1", "[1 2]", "[1,", '[{"a"]', "[1] 2", '{"a": 1}}', "[" * 100_000, f"[{'9' * 9_000}]"):
        why = "too large" if len(broken) > 10 else rf"error at character \d of {len(broken)}: check"
        with pytest.raises(DamagedFile, match=f"f is not valid JSON: .*{why}"):
            list(elements(broken, "f"))


def test_a_markdown_file_with_front_matter_is_one_memory() -> None:
    head = '---\nname: "Prefers tabs"\ndescription: about code\ntype: preference\ntags: [code, style]\n---\n'
    [memory] = read_markdown(f"{head}\nTabs.\n## Why\n", PurePosixPath("/notes/tabs.md"))
    draft = memory.draft
    assert (draft.title, draft.subtitle, draft.type) == ("Prefers tabs", "about code", "preference")
    assert (list(draft.tags), draft.narrative, memory.key) == (["code", "style"], "Tabs.\n## Why", "/notes/tabs.md")


def test_any_other_markdown_file_is_a_memory_for_each_section() -> None:
    text = "---\ntags:\n- a\ntype: technical\n---\nintro\n\n# House\n\n## Heating\n- serviced in May\n"
    text += "```\n# no heading\n```\n## Empty\n# Garden\nroses\n# Garden\n8"
    found = list(read_markdown(text, PurePosixPath("/2026-01-31.md")))
    assert [memory.draft.title for memory in found] == ["2026-01-31", "House › Heating", "Garden", "Garden"]
    assert "# no heading" in found[1].draft.narrative
    assert len({memory.key for memory in found}) == 4
    labels = {(str(each.draft.created_at)[:10], each.draft.type, *each.draft.tags) for each in found}
    assert labels == {("2026-01-31", "technical", "a")}


def test_a_heading_may_have_marks_at_its_end_and_many_spaces_in_it() -> None:
    [memory] = read_markdown(f"# a{' ' * 10_000}b ##\nroses", PurePosixPath("/a.md"))
    assert memory.draft.narrative == f"a{' ' * 10_000}b\n\nroses"


@pytest.mark.parametrize("head", ["# {}\n", "---\ntitle: {}\n---\n", "---\nname: a\ndescription: {}\n---\n"])
def test_a_line_that_is_too_long_for_a_title_is_kept_whole_in_the_text(head: str) -> None:
    [memory] = read_markdown(head.format(long := "a" * 999) + "roses", PurePosixPath("/a.md"))
    assert (memory.draft.narrative, (memory.draft.subtitle or memory.draft.title)[-2:]) == (f"{long}\n\nroses", "a…")


@given(st.text(max_size=300))
def test_no_text_breaks_the_markdown_parser(text: str) -> None:
    for body in (text, f"---\n{text}\n---\n{text}", f"# {text}"):
        assert all(isinstance(each, MemoryItem) for each in read_markdown(body, PurePosixPath("/a.md")))


@pytest.mark.parametrize(
    ("name", "data", "error", "named"),
    [
        ("a.json", b"[1]", InvalidValue, "is neither a bundle"),
        ("a.json", b"[]", InvalidValue, "nor Markdown"),
        ("a.txt", b"hello", InvalidValue, "a.txt is neither a bundle, an export of ChatGPT or Claude, nor Markdown"),
        ("empty.txt", b"", InvalidValue, "is neither"),
        ("b.json", b'{"a": "1}', DamagedFile, r"^\S+b.json is not valid JSON: error at character 6 of 9: check"),
        ("a.json", b"\xff\xfe", DamagedFile, "not valid UTF-8"),
        ("a.zip", b"PK\x03\x04nonsense", DamagedFile, "not a readable zip"),
    ],
)
def test_what_is_unknown_says_so(tmp_path: Path, name: str, data: bytes, error: type[StoreError], named: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=named):
        open_source(tmp_path / name)


def test_links_in_a_folder_are_not_followed_and_what_is_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret", "utf-8")
    folder = tmp_path / "notes"
    (folder / ".hidden").mkdir(parents=True)
    (folder / ".hidden" / "a.md").write_text("hidden", "utf-8")
    (folder / "link.md").symlink_to(tmp_path / "secret.txt")
    (folder / "binary.md").write_bytes(b"\xff\xfe\x00")
    (folder / "good.md").write_text("@../secret.txt says more", "utf-8")
    (folder / "empty.md").write_text("# A title alone", "utf-8")
    (folder / "photo.png").write_bytes(b"")
    items = list(open_source(folder).items)
    assert [item.draft.narrative for item in items if isinstance(item, MemoryItem)] == ["@../secret.txt says more"]
    assert {item.what for item in items if isinstance(item, Skip)} == {"link.md", "binary.md", "photo.png", "empty.md"}
    with pytest.raises(InvalidValue, match="file not found"):
        open_source(tmp_path / "nothing")
    (exports := tmp_path / "exports").mkdir()
    (exports / "all.jsonl").touch()
    with pytest.raises(InvalidValue, match=r"exports, which contains all\.jsonl: only \.md and"):
        list(open_source(exports).items)


def test_a_folder_that_cannot_be_read_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.md").write_text("said", "utf-8")
    monkeypatch.chdir(tmp_path)
    for _ in range(20):  # until the path is longer than the system allows
        Path("d" * 250).mkdir()
        os.chdir("d" * 250)
    [good, skipped] = open_source(tmp_path).items
    assert isinstance(good, MemoryItem)
    assert isinstance(skipped, Skip)
    assert skipped.why == "cannot be read: File name too long"
    (tmp_path / "good.md").rename(tmp_path / "good.txt")  # notes may be in what cannot be read
    assert [type(each) for each in open_source(tmp_path).items] == [Skip, Skip]

"""The prompt: its order, and what gives way when there is no room."""

from chatbot.chat.prompt import PromptBundle, build_prompt
from chatbot.messages import Image, Message
from chatbot.models import ScriptedModel

EXTRAS = {"summary": "the summary", "block": "the block", "earlier_block": "the earlier block"}


def dialogue(exchanges: int) -> list[Message]:
    said = [Message(role, f"{role} {at} {'word ' * 20}") for at in range(exchanges) for role in ("user", "assistant")]
    return [*said, Message("user", "the question")]


async def built(exchanges: int, window: int, **extras: str) -> PromptBundle:
    model = ScriptedModel(["x"], window=window)
    return await build_prompt(model, "persona", dialogue(exchanges), tools=(), reply_tokens=50, **extras)


async def test_what_changes_least_stands_first() -> None:
    bundle = await built(2, 8192, **EXTRAS)
    said = [message.content.split(" word")[0] for message in bundle.messages]
    assert said == [
        "persona",
        "the summary",
        "user 0",
        "assistant 0",
        "the earlier block\n\nuser 1",
        "assistant 1",
        "the block\n\nthe question",
    ]


async def test_notes_stand_at_the_head_of_a_question_with_a_picture_too() -> None:
    asked = Message("user", "What is this?", parts=(Image("data:image/png;base64,"), "What is this?"))
    bundle = await build_prompt(ScriptedModel(["x"]), "persona", [asked], tools=(), reply_tokens=50, block="the block")
    [_, shown] = bundle.messages
    assert shown.content == "the block\n\nWhat is this?"
    assert shown.parts == ("the block\n\n", *asked.parts)


async def test_each_turn_begins_like_the_one_before() -> None:
    before = await built(2, 8192, summary="s", block="block 2")
    after = await built(3, 8192, summary="s", block="block 3", earlier_block="block 2")
    common = before.messages[:-1]
    assert after.messages[: len(common)] == common


async def test_summary_and_memory_give_way_to_the_question() -> None:
    bundle = await built(2, 40, **EXTRAS)
    assert bundle.messages[-1].content == "the question"
    assert bundle.dropped == ("summary", "earlier memory", "memory")


async def test_without_anything_beside_it_there_is_the_conversation_alone() -> None:
    bundle = await built(1, 8192)
    assert [message.role for message in bundle.messages] == ["system", "user", "assistant", "user"]
    assert bundle.parts["memory"] == bundle.parts["summary"] == 0

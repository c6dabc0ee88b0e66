"""The estimate of tokens, beside a real tokenizer."""

import pytest

from chatbot.messages import Message, ToolCall, ToolSpec
from chatbot.models import litellm_import
from chatbot.models.model import estimate, estimate_text

TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog, and then it went home to think about its day. ",
    "German": "Die Bundesregierung beschließt heute Maßnahmen zur Förderung erneuerbarer Energien. ",
    "code": "    async def read(self, path: Path) -> bytes:\n        return (await self._open(path)).read(1024)\n",
    "JSON": '{"id": "9b2f0c6e-7a41", "items": [1, 2, 3], "is_open": true, "url": "https://example.com/a?b=c"}\n',
    "Chinese": "我们今天去北京的故宫博物院参观，天气非常好，人也不是很多，大家都很高兴。",
    "Japanese": "昨日は友達と一緒に映画を見に行きました。カタカナもひらがなもあります。",
    "Korean": "오늘은 날씨가 정말 좋아서 친구와 함께 공원에 갔습니다.",
    "Russian": "Сегодня прекрасная погода, и мы решили пойти гулять в парк вместе с друзьями. ",
    "Arabic": "ذهبنا اليوم إلى الحديقة مع الأصدقاء وكان الطقس جميلا جدا. ",
    "Hindi": "आज मौसम बहुत अच्छा है और हम दोस्तों के साथ पार्क गए थे। ",
    "emoji": "🎉🚀😀👨‍👩‍👧‍👦🇫🇷❤️🔥✨",
    "a hash": "a3f5e8c901b7d2446f0e9a8b7c6d5e4f",
    "base64": "aGVsbG8gd29ybGQgdGhpcyBpcyBhIHRlc3QgQUJDREVG",
    "digits": "3141592653589793238462643383279502884197",
    "capitals": "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG ",
    "mathematics": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β. ",
}


@pytest.mark.parametrize("kind", TEXTS)
async def test_the_estimate_is_cautious_and_not_wild(kind: str) -> None:
    litellm = await litellm_import.litellm()
    text = TEXTS[kind] * 5
    counted = len(litellm.encode(model="gpt-4", text=text))
    assert 0.85 * counted <= estimate_text(text) <= 1.6 * counted


def test_each_text_message_call_and_tool_adds_its_own() -> None:
    assert [estimate_text(""), estimate_text("a")] == [0, 1]
    message = Message("user", "hello")
    one = estimate([message])
    assert one > estimate_text("hello")
    assert estimate([message, message]) == 2 * one
    assert estimate([message], [ToolSpec("clock", "The time in a city.")]) > one + 10
    call = ToolCall("call_1", "search", '{"query": "' + "sea otters " * 50 + '"}')
    assert estimate([Message("assistant", "", tool_calls=(call,))]) > 100

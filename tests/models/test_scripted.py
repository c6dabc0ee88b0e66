"""The scripted model says what it was told to; the estimate of tokens, beside a real tokenizer."""

import time
from collections.abc import Sequence

import pytest

from chatbot.messages import Delta, Finished, Message, TextDelta, ToolCall, ToolCallDelta, ToolSpec, Usage
from chatbot.models import Price, ScriptedModel, litellm_import
from chatbot.models.model import estimate, estimate_text

HELLO = [Message("user", "hello")]
TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog, and then it went home to think about its day. ",
    "German": "Die Bundesregierung beschließt heute Maßnahmen zur Förderung erneuerbarer Energien. ",
    "code": "    async def read(self, path: Path) -> bytes:\n        return (await self._open(path)).read(1024)\n",
    "JSON": '{"id": "9b2f0c6e-7a41", "items": [1, 2, 3], "is_open": true, "url": "https://example.com/a?b=c"}\n',
    "indented JSON": '[\n  {\n    "lat": -41.2865,\n    "points": [\n      3,\n      7\n    ]\n  }\n]\n',
    "numbers": "[[3,7,1,0], [18017, 64, 0.2653, -9], [2026-11-30, 14:50:04]]\n",
    "Chinese": "我们今天去北京的故宫博物院参观，天气非常好，人也不是很多，大家都很高兴。",
    "Japanese": "昨日は友達と一緒に映画を見に行きました。カタカナもひらがなもあります。",
    "Korean": "오늘은 날씨가 정말 좋아서 친구와 함께 공원에 갔습니다.",
    "Russian": "Сегодня прекрасная погода, и мы решили пойти гулять в парк вместе с друзьями. ",
    "Arabic": "ذهبنا اليوم إلى الحديقة مع الأصدقاء وكان الطقس جميلا جدا. ",
    "Hindi": "आज मौसम बहुत अच्छा है और हम दोस्तों के साथ पार्क गए थे। ",
    "Armenian and Georgian": "Իմ դուստրը մարտին դառնում է յոթ տարեկան։ ჩემი ქალიშვილი შვიდი წლის ხდება. ",
    "Greek": "Η αδερφή μου μένει στη Βέρνη και παίζει τσέλο. ",
    "Hebrew": "אחותי גרה בברן ומנגנת בצ'לו. אתמול הלכנו יחד למוזיאון. ",
    "Burmese and Khmer": "ကျွန်မညီမသည် ဘန်းမြို့တွင်နေထိုင်ပြီး ဆယ်လိုတီးသည်။ ប្អូនស្រីរបស់ខ្ញុំរស់នៅទីក្រុងប៊ែន ហើយលេងសេឡូ។ ",
    "Telugu and Gujarati": "నా చెల్లెలు బెర్న్‌లో నివసిస్తుంది. મારી બહેન બર્નમાં રહે છે અને સેલો વગાડે છે. ",
    "Sinhala and Lao": "මගේ නංගී බර්න් නගරයේ ජීවත් වෙයි. ນ້ອງສາວຂອງຂ້ອຍອາໄສຢູ່ເມືອງເບີນ. ",
    "emoji": "🎉🚀😀👨‍👩‍👧‍👦🇫🇷❤️🔥✨",
    "a hash": "a3f5e8c901b7d2446f0e9a8b7c6d5e4f",
    "base64": "aGVsbG8gd29ybGQgdGhpcyBpcyBhIHRlc3QgQUJDREVG",
    "digits": "3141592653589793238462643383279502884197",
    "capitals": "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG ",
    "mathematics": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β. ",
}


async def reply_of(model: ScriptedModel, messages: list[Message] = HELLO) -> list[Delta]:
    return [delta async for delta in model.stream(messages)]


def text_of(deltas: Sequence[Delta | None]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_a_reply_comes_word_by_word_and_whole() -> None:
    *words, end = await reply_of(ScriptedModel(["  Two  words,\nand a 🎉 "]))
    assert words == [TextDelta(each) for each in ("  ", "Two  ", "words,\n", "and ", "a ", "🎉 ")]
    assert isinstance(end, Finished)


async def test_usage_is_computed_and_priced() -> None:
    model = ScriptedModel(["four words are here"], price=Price(1.0, 10.0))
    end = (await reply_of(model))[-1]
    assert isinstance(end, Finished)
    read, written = await model.count_tokens(HELLO), estimate_text("four words are here")
    assert end.usage == Usage(read, written, cost_usd=read + 10.0 * written)


async def test_calls_in_a_script_are_streamed_as_models_do() -> None:
    call = ToolCall("c1", "clock", '{"at": 1}')
    deltas = await reply_of(ScriptedModel([[TextDelta("hm"), call, call]]))
    assert deltas[1:5] == [
        ToolCallDelta(0, "c1", "clock", '{"at'),
        ToolCallDelta(0, arguments='": 1}'),
        ToolCallDelta(1, "c1", "clock", '{"at'),
        ToolCallDelta(1, arguments='": 1}'),
    ]
    assert (await reply_of(ScriptedModel([call])))[:2] == deltas[1:3]


@pytest.mark.parametrize("kind", TEXTS)
async def test_the_estimate_is_cautious_and_not_wild(kind: str) -> None:
    litellm = await litellm_import.litellm()
    text = TEXTS[kind] * 5
    counted = len(litellm.encode(model="gpt-4", text=text))
    assert 0.85 * counted <= estimate_text(text) <= 1.6 * counted


def test_a_huge_text_is_estimated_from_its_parts_as_closely_and_for_little_more() -> None:
    whole = "".join(text * (60_000 // len(text)) for text in TEXTS.values())
    pieces = [whole[at : at + 200_000] for at in range(0, len(whole), 200_000)]
    started = time.process_time()
    estimate_text(pieces[0])
    took = time.process_time() - started
    assert estimate_text(whole) == pytest.approx(sum(map(estimate_text, pieces)), rel=0.03)
    started = time.process_time()
    estimate_text(whole * 10)
    assert time.process_time() - started < 20 * took


def test_each_text_message_call_and_tool_adds_its_own() -> None:
    assert [estimate_text(""), estimate_text("a")] == [0, 1]
    message = Message("user", "hello")
    one = estimate([message])
    assert one > estimate_text("hello")
    assert estimate([message, message]) == 2 * one
    assert estimate([message], [ToolSpec("clock", "The time in a city.")]) > one + 10
    call = ToolCall("call_1", "search", '{"query": "' + "sea otters " * 50 + '"}')
    assert estimate([Message("assistant", "", tool_calls=(call,))]) > 100

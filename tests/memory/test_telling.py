"""Meaning of sentences: small talk, decisions, open items, what is rare, and what denies what."""

import pytest

from chatbot.memory.denial import contradict
from chatbot.memory.telling import closes, is_decision, is_open, is_small_talk, rarity

SMALL_TALK = [
    "hi",
    "Hello there!",
    "Hey Mel!",
    "Hey Tim, nice to meet you!",
    "Good morning, how are you doing today?",
    "Thanks!",
    "ok great, thank you",
    "Sure, sounds good.",
    "See you soon!",
    "lol",
    "Guten Morgen!",
    "Danke dir",
    "Bonjour, ça va ?",
    "¡Hola! ¿Qué tal?",
    "你好",
    "谢谢",
    "こんにちは",
    "ありがとう",
    "Привет!",
    "",
    "Wow, that's awesome!",
]
SAYING = [
    "The boiler leaks",
    "Hello, my sister moved to Lisbon.",
    "Thanks, the socket was never closed.",
    "17 of them",
    "blue",
    "Hi, Postgres is slow",
    "Ich wohne in Berlin",
    "我住在北京",
    "Good morning, the bus was late and I missed school",
]
DECISIONS = [
    "We decided to paint the kitchen teal.",
    "Let's go with the blue one!",
    "We finally agreed on Thursday.",
    "I'll use Postgres.",
    "Decision: no meetings on Fridays",
    "Wir haben beschlossen, umzuziehen.",
    "我们决定用 Postgres。",
    "We're going with oak.",
]
OPEN = [
    "TODO: renew the passport",
    "We still need to buy rosin.",
    "Remind me to call Ada.",
    "Please remind me to call Ada.",
    "I need to book the dentist.",
    "Open question: who pays for the roof",
    "The invoice is not yet paid.",
    "Don't forget to water the basil.",
    "Next step: measure the shelf",
    "Ich muss noch den Pass verlängern.",
    "待办：买菜",
]
NEITHER = [
    "Have we decided to use Postgres?",
    "Do I need to book it?",
    "I have to say, that was delicious.",
    "Keep going with it!",
    "I have to admit she is good.",
    "That painting is there to remind me to stay true.",
    "If I have to choose, tea.",
    "Don't forget to take breaks!",
    "We had to wait for the bus.",
    "You don't need to bring anything.",
    "It shows how much work we still have to do.",
    "I always have to sneeze in spring.",
    "Water the roses on day 3.",
    "I need to tell you something.",
]


@pytest.mark.parametrize(("texts", "expected"), [(SMALL_TALK, True), (SAYING + DECISIONS + OPEN, False)])
def test_small_talk_says_nothing(texts: list[str], *, expected: bool) -> None:
    assert [text for text in texts if is_small_talk(text) is not expected] == []


@pytest.mark.parametrize("group", [DECISIONS, OPEN, NEITHER, SMALL_TALK, SAYING])
def test_sentences_decide_or_leave_something_open_only_where_they_say_so(group: list[str]) -> None:
    assert [each for each in group if is_decision(each) is not (group is DECISIONS)] == []
    assert [each for each in group if is_open(each) is not (group is OPEN)] == []


@pytest.mark.parametrize(
    ("sentence", "item", "expected"),
    [
        ("I renewed the passport today.", "TODO: renew the passport", True),
        ("The rosin is bought.", "We still need to buy rosin.", True),
        ("The dentist is booked!", "I need to book the dentist.", True),
        ("Is the dentist booked?", "I need to book the dentist.", False),
        ("The dentist is nice.", "I need to book the dentist.", False),
        ("The hotel is booked.", "I need to book the dentist on Lime Street.", False),
        ("I still need to get the dentist booked.", "I need to book the dentist.", False),
    ],
)
def test_an_item_is_closed_by_a_sentence_that_says_that_it_is_done(sentence: str, item: str, *, expected: bool) -> None:
    assert closes(sentence, item) is expected


@pytest.mark.parametrize("form", ["Water the roses on day {}.", "Point {} is about matter number {}.", "{} kg today"])
def test_what_is_said_again_and_again_with_another_number_is_not_rare(form: str) -> None:
    texts = [form.format(n, 7 * n) for n in range(40)]
    texts.insert(20, "The kitchen is to be teal.")
    found = rarity(texts)
    assert max(range(len(texts)), key=found.__getitem__) == 20
    assert rarity([]) == []


DENIED = [
    ("is allergic to cats", "is not allergic to cats"),
    ("I eat meat", "I don't eat meat"),
    ("I can swim", "I can’t swim"),
    ("She plays tennis", "She no longer plays tennis"),
    ("I smoke", "I stopped smoking"),
    ("I have a dog", "I have no dog"),
    ("I work at Acme", "I used to work at Acme"),
    ("He likes beer", "He never liked beer"),
    ("The door is open", "It is false that the door is open"),
    ("Ich esse Fleisch", "Ich esse kein Fleisch"),
    ("Ich mag Katzen", "Ich mag Katzen nicht"),
    ("J'aime le thé", "Je n'aime pas le thé"),
    ("Me gusta el té", "No me gusta el té"),
    ("我喜欢茶", "我不喜欢茶"),
    ("猫が好きです", "猫が好きではない"),
    ("Люблю чай", "Не люблю чай"),
    ("Eu como carne", "Eu não como carne"),
    ("Mangio carne", "Non mangio carne"),
]
AGREED = [
    ("My blood type is AB negative", "I'm AB negative, that's my blood type"),
    ("I like tea", "I like green tea"),
    ("I don't eat meat", "I do not eat any meat"),
    ("I have no dog", "The cat is not ill"),
    ("We have no dog and two cats", "The tram was late and full"),
    ("Ich mag Tee", "Tee mag ich"),
]


@pytest.mark.parametrize(("pairs", "expected"), [(DENIED, True), (AGREED, False)])
def test_a_statement_and_its_denial_contradict(pairs: list[tuple[str, str]], *, expected: bool) -> None:
    assert [
        pair for pair in pairs if contradict(*pair) is not expected or contradict(*pair[::-1]) is not expected
    ] == []

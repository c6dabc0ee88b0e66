"""Tell English from other languages, to choose an encoder: by script first, then by function words.

A heuristic for texts of a sentence or more. Undecided texts, such as names and numbers, count as English.
"""

from __future__ import annotations

import re
from functools import cache

_LOOKED_AT = 2_000
"""Characters at the beginning of a text that decide."""
_FOREIGN_SHARE = 0.3
"""Share of letters in another script from which on a text is not English."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_ENGLISH = """
a about after all am an and any are as at be been but by can could did do does for from had has have he her him his
how i i'm if in is it it's its just like me my no not of on or our out she so some that the their them there they
this to up us was we were what when where which who why will with would yes you your
"""
_OTHERS = {
    "da": "af at de den der det du en er et for har hvad hvor i ikke jeg med min mit og om på som til vi være",
    "de": "aber als am auch auf aus bei bin bist das dass dem den der des die du ein eine einen er es für hab habe "
    "hat ich ihr im in ist ja kein keine man mein meine mich mir mit nach nicht noch nur oder schon sein "
    "seine sich sie sind so um und uns von war was wann warum wenn wer wie wir wird wo zu zum zur über",
    "es": "al cómo como con cuando cuál de del dónde donde el ella en es esta este estoy fue ha hay la las le lo "
    "los me mi mis muy más no nos o para pero por qué que quién se ser si sin soy su sus también te tengo tu "
    "un una y yo",
    "fi": "hän ei en että ja joka kun me minun minä missä mikä mitä mutta ne niin on oli se sen sinä tai",
    "fr": "à au aux avec c'est ce ces cette comment dans de des du elle en est et il ils j'ai je l la le les leur "
    "ma mais me mes mon ne nous on ou où par pas pour pourquoi qu que quel quelle qui sa se ses son suis sur "
    "un une vous été",
    "it": "al alla anche che chi ci come con cosa da dei del della di dove e è gli ha ho i il in io l la le lo ma "
    "mi mia mio mie nel nella non o per perché più qual quale quando se si sono su un una",
    "nl": "aan als bij dat de die dit een en er ga heb heeft het hij ik in is je kan maar me met mijn naar niet nog "
    "of om ook op te tot uit van voor waar was wat we wie zijn zo",
    "pl": "ale bardzo był była być co czy dla do gdzie go i ich ja jak jako jest jestem już kiedy kto mam mi mnie "
    "mój moja moje na nie o od po przez się są tak to tym w we z za ze że",
    "pt": "a ao as com como da das de do dos e é ela ele em está eu foi há isso lá mas me meu minha muito na não no "
    "nos o onde os ou para por quando que quem se sem ser seu sou sua também tem tenho um uma você",
    "sv": "att av de den det du en ett från för han har hon hur i inte jag kan med men min mitt mina när och om på "
    "som så till vad var vi är",
    "tr": "ama bana ben benim bir bu çok da daha de değil en gibi için ile kadar mi mı mu ne nerede olan olarak sen "
    "var ve yok",
}


def is_english(text: str) -> bool:
    """Return whether an English encoder understands the text."""
    text = text[:_LOOKED_AT]
    if text.isascii():
        return not _is_other_latin(text)
    letters = [char for char in text if char.isalpha()]
    foreign = sum(char > "\u024f" for char in letters)  # past the last block of Latin letters
    return foreign < _FOREIGN_SHARE * len(letters) and not _is_other_latin(text) if letters else True


def _is_other_latin(text: str) -> bool:
    """Return whether the function words of some other language outnumber the English ones."""
    words = [word.replace("’", "'") for word in _WORD.findall(text.lower())]
    english = sum(word in _english() for word in words)
    return any(sum(word in known for word in words) > english for known in _others())


@cache
def _english() -> frozenset[str]:
    return frozenset(_ENGLISH.split())


@cache
def _others() -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in _OTHERS.values())

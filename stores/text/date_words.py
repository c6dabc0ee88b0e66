"""Words of dates in English, German, French and Spanish: lower-case and without accents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def _each(words: str) -> list[str]:
    return words.split()


def _numbered(*lines: str, begin: int = 1) -> dict[str, int]:
    """The words of each line, by its place."""
    return {word: number for number, line in enumerate(lines, begin) for word in line.split()}


ENGLISH_MONTHS = _numbered(
    "january jan",
    "february feb",
    "march mar",
    "april apr",
    "may",
    "june jun",
    "july jul",
    "august aug",
    "september sept sep",
    "october oct",
    "november nov",
    "december dec",
)
MONTHS = ENGLISH_MONTHS | _numbered(
    "januar janner janvier janv enero ene",
    "februar fevrier fevr febrero",
    "marz maerz mrz mars marzo",
    "avril avr abril abr",
    "mai mayo",
    "juni juin junio",
    "juli juillet juil julio",
    "aout agosto",
    "septembre septiembre setiembre",
    "oktober okt octobre octubre",
    "novembre noviembre",
    "dezember dez decembre diciembre dic",
)
WEEKDAYS = _numbered(
    "monday montag lundi lunes",
    "tuesday dienstag mardi martes",
    "wednesday mittwoch mercredi miercoles",
    "thursday donnerstag jeudi jueves",
    "friday freitag vendredi viernes",
    "saturday samstag sonnabend samedi sabado",
    "sunday sonntag dimanche domingo",
    begin=0,
)
"""Monday is 0."""

COUNTS = {"a couple of": 2, "a couple": 2, "a few": 3, "several": 4, "un par de": 2, "ein paar": 3, "quelques": 3}
COUNTS |= _numbered(
    "one a an ein eine einem einer einen un une una",
    "two zwei deux dos",
    "three drei trois tres",
    "four vier quatre cuatro",
    "five funf fuenf cinq cinco",
    "six sechs seis",
    "seven sieben sept siete",
    "eight acht huit ocho",
    "nine neun neuf nueve",
    "ten zehn dix diez",
    "eleven elf onze once",
    "twelve zwolf zwoelf douze doce",
)
ORDINALS = _numbered(
    *_each("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"),
    *_each("fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"),
)
ORDINALS |= {f"twenty{dash}{word}": 20 + number for dash in "- " for word, number in [*ORDINALS.items()][:9]}
ORDINALS |= {"thirtieth": 30, "thirty-first": 31, "thirty first": 31}

CARDINALS = dict(
    zip(_each("one two three four five six seven eight nine ten eleven twelve"), range(1, 13), strict=True)
)

UNITS = dict.fromkeys(_each("day days tag tage tagen jour jours dia dias"), "day")
UNITS |= dict.fromkeys(_each("week weeks woche wochen semaine semaines semana semanas"), "week")
UNITS |= dict.fromkeys(_each("month months monat monate monaten mois mes meses"), "month")
UNITS |= dict.fromkeys(_each("year years jahr jahre jahren annee annees ans an ano anos"), "year")
UNITS |= dict.fromkeys(_each("weekend weekends wochenende wochenenden week-end week-ends"), "weekend")
UNITS |= {"fin de semana": "weekend", "fines de semana": "weekend"}
UNITS |= dict.fromkeys(_each("fortnight fortnights"), "fortnight")
UNITS |= {"quarter": "quarter", "quarters": "quarter", "quartal": "quarter"}

BEFORE = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}
BEFORE |= {
    stem + end: shift
    for stem, shift in {"letzte": -1, "vorige": -1, "vergangene": -1, "diese": 0, "nachste": 1, "kommende": 1}.items()
    for end in ("", "n", "r", "s", "m")
}
BEFORE |= {"ce": 0, "cet": 0, "cette": 0, "este": 0, "esta": 0, "proximo": 1, "proxima": 1, "prochain": 1}
BEFORE |= {"prochaine": 1, "pasado": -1, "pasada": -1, "ultimo": -1, "ultima": -1}
"""Words before a date that select one of several."""

AFTER = dict.fromkeys(_each("dernier derniere passe passee pasado pasada"), -1)
AFTER |= dict.fromkeys(_each("prochain prochaine proximo proxima"), 1) | {"que viene": 1}
"""Words after a date that select one, as in French and Spanish."""

SHIFTS: Mapping[str, int | None] = {
    **dict.fromkeys(["the day before yesterday", "day before yesterday"], -2),
    **dict.fromkeys(["yesterday", "last night", "last evening"], -1),
    **dict.fromkeys(["today", "tonight", "this morning", "this afternoon", "this evening"], 0),
    **dict.fromkeys(["the day after tomorrow", "day after tomorrow"], 2),
    "tomorrow": 1,
    **dict.fromkeys(["vorgestern", "avant-hier", "anteayer", "antier"], -2),
    **dict.fromkeys(["gestern", "gestern morgen", "hier soir", "hier matin", "ayer", "anoche"], -1),
    **dict.fromkeys(["heute", "heute morgen", "aujourd'hui", "ce matin", "ce soir"], 0),
    **dict.fromkeys(["hoy", "esta manana", "esta tarde", "esta noche"], 0),
    **dict.fromkeys(["morgen", "demain", "manana"], 1),
    **dict.fromkeys(["ubermorgen", "uebermorgen", "apres-demain", "pasado manana"], 2),
    **dict.fromkeys(["guten morgen", "am morgen", "jeden morgen", "der morgen", "den morgen"]),
    **dict.fromkeys(["la manana", "las mananas", "buenas mananas"]),
}
"""Days from today; None where a morning is meant, and no day."""

HOLIDAYS = {
    "christmas": (12, 25),
    "christmas day": (12, 25),
    "xmas": (12, 25),
    "christmas eve": (12, 24),
    "boxing day": (12, 26),
    "new year's eve": (12, 31),
    "new years eve": (12, 31),
    "new year's day": (1, 1),
    "new years day": (1, 1),
    "new year's": (1, 1),
    "halloween": (10, 31),
    "valentine's day": (2, 14),
    "valentines day": (2, 14),
    "valentine's": (2, 14),
    "st. patrick's day": (3, 17),
    "st patrick's day": (3, 17),
    "independence day": (7, 4),
    "fourth of july": (7, 4),
    "weihnachten": (12, 25),
    "heiligabend": (12, 24),
    "silvester": (12, 31),
    "neujahr": (1, 1),
    "noel": (12, 25),
    "saint-sylvestre": (12, 31),
    "jour de l'an": (1, 1),
    "navidad": (12, 25),
    "nochebuena": (12, 24),
    "nochevieja": (12, 31),
    "ano nuevo": (1, 1),
}
"""Holidays with a fixed month and day."""

SEASONS = {
    **dict.fromkeys(_each("spring fruhling fruhjahr printemps primavera"), 3),
    **dict.fromkeys(_each("summer sommer ete verano"), 6),
    **dict.fromkeys(_each("autumn fall herbst automne otono"), 9),
    **dict.fromkeys(_each("winter hiver invierno"), 12),
}
"""The first of the three months, in the northern half of the world."""

PARTS = {
    **dict.fromkeys(["early", "early in", "the beginning of", "the start of", "anfang", "debut", "principios de"], 0),
    **dict.fromkeys(["mid", "the middle of", "mitte", "mi", "mediados de"], 1),
    **dict.fromkeys(["late", "late in", "the end of", "end of", "ende", "fin", "fin de", "finales de"], 2),
}
"""The beginning, the middle and the end of a month or a year."""

FRENCH = frozenset(
    _each(
        "avant soir matin je j nous vous il elle on ai as a avons ete etait est le la les un une du des et que qu quoi"
    )
)
"""Words of a text in which `hier` is French, yesterday, unless it holds one of `GERMAN`, in which it is here."""
GERMAN = frozenset(_each("ich du er sie wir ihr der die das und ist war bin nicht ein eine den dem"))


def either(words: Iterable[str]) -> str:
    """Return a pattern of any of the words, longest first; a space matches any blanks."""
    return "|".join(word.replace(".", r"\.").replace(" ", r"\s+") for word in sorted(words, key=len, reverse=True))

"""Statements about the speaker's own health, which are private. Pure, by rule, in English.

What is denied tells of health, too. What is asked, supposed, quoted, or said of somebody else does not count: nobody
but the speaker is meant, and a text about an illness is no secret.
"""

from __future__ import annotations

import re

from chatbot.memory.slots import own_clauses, own_statements

_BEING = (
    r"diabetic|pregnant|asthmatic|epileptic|hiv[ -]positive|hiv[ -]negative|an(?:a)?emic|autistic|bipolar|depressed|"
    r"coeliac|celiac|(?:lactose|gluten|fructose|histamine)[ -]intolerant|hypertensive|immuno(?:compromised|suppressed)|"
    r"dyslexic|colou?r[ -]blind|deaf(?= |[.,!;]|$)|infertile|menopausal|in remission|in rehab|"
    r"(?:on|off) (?:medication|insulin|antidepressants|antibiotics|statins|dialysis|chemo(?:therapy)?|the pill(?! \w))"
)
_ILLNESS = (
    r"asthma|diabetes|adhd|add|autism|epilepsy|migraines?|depression|anxiety|ptsd|ocd|cancer|leuk(?:a)?emia|lymphoma|"
    r"hiv|aids|hepatitis|arthritis|osteoporosis|(?:coeliac|celiac|crohn's|parkinson's|alzheimer's|heart|kidney|liver|"
    r"thyroid|lung) disease|crohn's|parkinson's|(?:high|low) (?:blood pressure|blood sugar|cholesterol)|hypertension|"
    r"tinnitus|eczema|psoriasis|endometriosis|fibromyalgia|scoliosis|an(?:a)?emia|insomnia|vertigo|sciatica|gout|"
    r"bulimia|anorexia|schizophrenia|bipolar disorder|(?:eating|panic|anxiety|sleep) disorder|panic attacks|"
    r"sleep apno?ea|"
    r"multiple sclerosis|long covid|covid|pneumonia|bronchitis|tuberculosis|shingles|kidney stones|reflux|ibs|"
    r"(?:an )?(?:under|over)active thyroid|(?:back|knee|neck|chest|stomach|hip|shoulder) pains?|"
    r"an? (?:hernia|tumou?r|ulcer|slipped disc|heart condition|pacemaker|stoma)"
)
_OF_MINE = (
    r"blood (?:type|group|pressure|sugar)|cholesterol|diagnosis|medication|chemo(?:therapy)?|pregnancy|due date|"
    r"hiv status|asthma|diabetes|adhd|autism|epilepsy|migraines?|depression|anxiety|cancer|arthritis|thyroid"
)
_TREATED = (
    r"chemo(?:therapy)?|dialysis|surgery|an operation|a miscarriage|an abortion|a biopsy|a heart attack|a stroke|"
    r"a transplant|an? (?:hip|knee) replacement|a (?:c-section|mastectomy|hysterectomy|vasectomy)"
)
_MEDICINE = (
    r"medication|insulin|antidepressants|antibiotics|statins|metformin|sertraline|lithium|ritalin|methotrexate|warfarin|"
    r"beta[ -]?blockers|painkillers|sleeping pills|blood thinners|levothyroxine|prednisone|cortisone|ibuprofen|aspirin|"
    r"the pill|(?:\d+ ?(?:mg|mcg|ml) of )?(?:[a-z]+ ){0,3}(?:tablets|pills|medication|medicine)"
)
_DOCTOR = (
    r"psychiatrist|psychologist|psychotherapist|therapist|oncologist|cardiologist|neurologist|ur(?:o|ino)logist|"
    r"gyn(?:a)?ecologist"
)
_BLOOD = r"(?:a|b|ab|o|0)(?:[ -]?(?:negative|positive|neg|pos)|[+-])?(?![\w'])"
_GRADE = (
    r"(?:(?:a|an|some|my|mild|severe|bad|chronic|acute|type [12]|terminal|terrible|frequent|slight|bit of|little|"
    r"stage \w+|breast|skin|lung|prostate|really|also|still|just|now|both|recently|always)\s+)*"
)
_NOT = r"(?:(?:not|no longer|never|also|still|just|now|recently|currently|always|\d+ (?:weeks?|months?))\s+)*"
_END = (
    r"(?![\w'-]|\s+(?:start|patients?|research|awareness|charity|class|lecture|exam|book|glass|manual|of luck|about|to "
    r"(?:fashion|criticism|love)|team|packaging|dream|theory|study|studies|paper|seminar|case)\b)"
)
_HAVE = (
    r"have|'ve got|'ve|had|don't have|do not have|didn't have|no longer have|never had|suffer from|suffered from|"
    r"struggle with|live with|(?:have|'ve) been living with|(?:was|am|got|'ve been|have been|wasn't) diagnosed with|"
    r"developed|caught|got|am recovering from|'m recovering from|beat|survived"
)
_TAKE = (
    r"take|am taking|'m taking|have to take|need|need to take|use|stopped taking|started taking|don't take|"
    r"no longer take|forgot(?: to take)?|(?:was|am|'ve been|have been|got) prescribed"
)
_OF_HEALTH = re.compile(
    rf"(?:I|we)(?:\s|(?='))\s*(?:"
    rf"(?:am|'m|was|'re|are|(?:have|'ve) been|became|got)\s+{_NOT}(?:{_BEING}){_END}"
    rf"|(?:also |still |now |just |both )*(?:{_HAVE})\s+{_GRADE}(?:{_ILLNESS}){_END}"
    rf"|(?:'m|am|'re|are)(?: not)? expecting(?: an?(?: \w+)?| our(?: \w+)?)? (?:baby|child|twins|girl|boy)"
    rf"|(?:had|have|need|am having|'m having|got|am getting|will have)\s+{_GRADE}(?:{_TREATED}){_END}"
    rf"|(?:also |still |now )*(?:{_TAKE})\s+(?:my |some |an? )?(?:{_MEDICINE}){_END}"
    rf"|(?:see|am seeing|'m seeing|go to|have)\s+(?:an?|my)\s+(?:{_DOCTOR}){_END}"
    rf")"
    rf"|(?:I'm|im|I am)\s+{_NOT}(?:{_BEING}){_END}"
    rf"|my\s+(?:{_OF_MINE})\s+(?:is|isn't|was|has|starts?|ends?|gets?|got|makes?|came|comes|flared|went|are|acts?)\b"
    rf"|my (?:doctor|gp|psychiatrist|{_DOCTOR}) (?:put|has put|took|has taken) me (?:on|off)\b",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"blood (?:type|group)(?::| is|,) ?{_BLOOD}|(?:[\w'+-]+ ){{1,4}}(?:is|are) my (?:{_OF_MINE}){_END}",
    re.IGNORECASE,
)
"""The value comes first, or nobody is named: "AB negative is my blood type", "Blood type: AB negative"."""
_ASKED = re.compile(
    r"\byour (?:blood (?:type|group|pressure|sugar)|medication|health|diagnosis|illness|medical \w+|condition)\b|"
    r"\byou (?:take|taking|on) any (?:medication|medicine|pills)\b|\bare you (?:pregnant|diabetic|ill)\b|"
    r"\byou have any (?:medical|health|chronic|illness|condition|allerg)",
    re.IGNORECASE,
)


def tells_of_health(text: str, question: str = "") -> bool:
    """Return whether a message states something of its speaker's health, or answers the bot's question about it."""
    if question and _ASKED.search(question) and text.strip() and "?" not in text:
        return True
    return any(
        _NAMED.match(sentence) or any(_OF_HEALTH.match(clause) for clause in own_clauses(sentence))
        for sentence in own_statements(text.replace("’", "'"))
    )

"""Find marks that give a text another role: `system:` at the head of a line, tokens of chat templates.

They are taken away, not judged: "User: likes tea" is a note like another once it does not look like an entry.
"""

from __future__ import annotations

import re

from chatbot.disguises import skeleton

_HEAD = 300
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_TAKEN = "·"
"""Stands where a token stood, so that what was around it does not become another."""
_ROLES = (
    *("system", "developer", "assistant", "user", "human", "tool", "bot"),
    *("entwickler", "benutzer", "nutzer", "assistent"),
    *("système", "développeur", "utilisateur", "assistante"),
    *("sistema", "desarrollador", "usuario", "asistente", "desenvolvedor", "usuário", "assistente"),
    *("система", "разработчик", "пользователь", "ассистент"),
    *("系统", "系統", "助手", "用户", "用戶", "开发者", "開發者"),
    *("システム", "ユーザー", "アシスタント", "開発者"),
    *("시스템", "사용자", "어시스턴트", "개발자"),
    *("النظام", "المستخدم", "المساعد", "المطور"),
)
_AS_WRITTEN = r"(?-i:model|function|AI|ai|Ai)"
"""Roles that count in this case alone: "Model: Golf VII" is about a car."""
_ROLE = (
    rf"(?:{'|'.join(map(skeleton, _ROLES))}|{_AS_WRITTEN})(?: (?:message|prompt|note|role))?(?:\s?\([^()\n]{{0,30}}\))?"
)
_TIME = r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"
_LEAD = r"(?:\d{1,3}[.)]\s)?[\s·>#*_\-=`\"']*"
_PREFIX = re.compile(
    rf"(?:{_LEAD}[\[<({{]*\s*{_ROLE}[\s*_`\"'\]>)}}]*(?::[*_]*|\s*-+\s*{_TIME})"
    rf"|{_LEAD}[\[<({{]+\s*/?(?:system|developer|assistant)(?: (?:message|prompt|note))?\s*[\]>)}}]+)+\s*",
    re.IGNORECASE,
)
"""A role at the start of a line: bare, in brackets, as a heading of a transcript, with a colon after it."""
_TOKEN = re.compile(
    r"<\s*[|｜]\s*[\w ▁/-]{1,40}\s*[|｜]\s*>(?:\s*(?:system|assistant|user|tool|developer)\b)?"
    r"|\[\s*\|\s*[\w -]{1,40}\s*\|\s*\]"
    r"|\[/?\s*(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\s*\]|<</?SYS>>"
    r"|</?(?:start|end)_of_turn>|<[be]os>|</?s>",
    re.IGNORECASE,
)
"""A token of a chat template: ChatML, Llama, Mistral, Gemma, DeepSeek."""


def without_role_marks(text: str) -> str:
    """`text` without them, and without white space at the ends of its lines."""
    return "\n".join(map(_without_prefix, _LINE_END.split(_TOKEN.sub(_TAKEN, text))))


def _without_prefix(line: str) -> str:
    while end := _end_of_prefix(line[:_HEAD]):
        line = line[end:]
    return line.rstrip()


def _end_of_prefix(head: str) -> int:
    """Return where the mark ends in `head`, recognised in any disguise of its letters."""
    if head.isascii():
        plainly = _PREFIX.match(head)
        return plainly.end() if plainly else 0
    folded, ends = "", []
    for at, char in enumerate(head):
        piece = skeleton(char)
        folded += piece
        ends += [at + 1] * len(piece)
    found = _PREFIX.match(folded)
    return ends[found.end() - 1] if found else 0

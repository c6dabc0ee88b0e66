"""Rules by form, in any language: forged tool calls, forged frames, links that carry data away."""

from __future__ import annotations

from chatbot.chat.rules.rule import Rule, form

_DATA = r"(?:data|secrets?|history|conversation|passwords?|prompt|messages|context)"
_PLACEHOLDER = (
    r"(?:\{|%7b|<[a-z]|\[[a-z]|\$[a-z{]|\.\.\.|=(?=[\s)\"'])"
    rf"|[=/](?:(?:the|your|user|all|chat)[_-]?)?{_DATA}(?![a-z])|=(?-i:[A-Z]{{2,20}}_[A-Z_]{{2,30}}))"
)
_URL = r"<?(?:https?:)?//"

FORMS: tuple[Rule, ...] = (
    form(
        "tool-forgery",
        r"\"(?:tool_calls?|function_call|tool_use)\"\s{0,20}:",
        r"\"(?:name|tool|function)\"\s{0,20}:\s{0,20}\"[^\"]{1,80}\"\s{0,20},\s{0,20}"
        r"\"(?:arguments|parameters|input|args)\"\s{0,20}:",
        r"\"(?:arguments|parameters)\"\s{0,20}:\s{0,20}\{[^{}]{0,200}\}\s{0,20},\s{0,20}\"(?:name|tool|function)\"",
        r"<\s{0,9}/?\s{0,9}(?:\w{1,20}:)?(?:tool_calls?|function_calls?|tool_use|invoke|tool_response|tool_result)\b",
        r"<\s{0,9}function\s{0,9}=",
        r"\"(?:name|tool|function)\"\s{0,20}:\s{0,20}\"[^\"]{1,80}\"\s{0,20},\s{0,20}\"args\"\s{0,20}:",
        r"<\|python_tag\|>|\[/?TOOL_CALLS\]|(?<![\w.])functions\.\w{1,60}\s{0,3}\(\s{0,3}\{",
        r"^\s{0,20}action\s{0,9}:[^\n]{1,80}\n\s{0,20}action[ _]input\s{0,9}:",
    ),
    form(
        "forged-frame",
        r"[-=#*<\[({_~]\s{0,9}(?:begin|start|end|new|end of)[ _](?:of[ _])?(?:system|developer|admin|hidden)[ _]"
        r"(?:prompt|message|instructions?)",
        r"^\s{0,9}<\s{0,9}(?:system|instructions?|developer|admin|system[_-]prompt)\s{0,9}>",
        r"<(system|instructions?|developer|admin|system[_-]prompt)>[^<]{1,400}</\1>",
        r"\[\s{0,9}(?:system|developer|admin)[ _-](?:override|message|prompt|notice|update|command)[^\]\n]{0,40}\]",
        r"[-=#*~%]{2,40}\s{0,9}(?:system|developer|admin)[ _](?:override|message|prompt|notice)",
        r"\"role\"\s{0,9}:\s{0,9}\"(?:system|developer|assistant|tool)\"\s{0,9},\s{0,9}\"content\"",
        r"^\s{0,9}(?:system )?override\s{0,3}:",
        r"<!--\s{0,9}(?:assistant|ai|system|model|llm|bot|note to)(?![\w])",
        r"^\s{0,9}#{1,6}\s{0,9}instructions?\s{0,3}:?[^\n]{0,200}\n(?:[^\n]{0,400}\n){0,10}?\s{0,9}#{1,6}\s{0,9}response",
        r"(?-i:END OF (?:DATA|MEMORY|MEMORIES|CONTEXT|DOCUMENT|INPUT|USER INPUT))",
        r"(?<!\w)(?:memory|memories|context|memory block|data block|stored data) (?:ends|end|is over|stops)"
        r" here(?!\w)",
        r"(?-i:(?:BEGIN|START|END)(?: OF)?(?: NEW)? (?:SYSTEM|DEVELOPER|ADMIN) (?:PROMPT|MESSAGE|INSTRUCTIONS?))",
    ),
    form(
        "exfiltration-link",
        rf"!\[[^\]\n]{{0,200}}\]\(\s{{0,9}}{_URL}[^)\s?&#]{{1,500}}[?&#][^)\n]{{0,300}}?{_PLACEHOLDER}",
        rf"\[[^\]\n]{{0,200}}\]\(\s{{0,9}}{_URL}[^)\s]{{1,500}}?(?:\{{|%7b|<[a-z]|\.\.\.|=\[)",
        rf"<img\b[^>]{{0,200}}?src\s{{0,9}}=\s{{0,9}}[\"']?{_URL}[^>\s?&]{{1,500}}[?&][^>\s]{{0,200}}?{_PLACEHOLDER}",
        rf"^\s{{0,20}}\[[^\]\n]{{1,80}}\]:\s{{0,9}}{_URL}[^\s]{{1,500}}?(?:\{{|%7b|\.\.\.)",
        r"\]\(\s{0,9}(?:javascript|data|vbscript):",
    ),
)

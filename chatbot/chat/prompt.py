"""The prompt, in an order that suits prompt caches: the parts that change least come first.

persona and tools · the summary of what the window left out · the window · the message to be answered, with its notes

The window is cut at user entries, so a reply is never shown without its question nor a tool's answer without its call.
The last turn's memory block stays for one more turn, so that the model knows what a follow-up question is about.

Long texts are cut to the passages, of a few sentences each, that answer the question best, with marks for the rest.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from chatbot.chat.governor import without_tokens
from chatbot.errors import ContextTooLong
from chatbot.messages import Message, ToolSpec, ends_of
from chatbot.models.model import LARGEST_REPLY_SHARE, Disclosure, Model, estimate, estimate_text
from chatbot.operations import tool_names
from chatbot.stores.text.analysis import SENTENCE_SIGNS, terms, with_neighbours

_KEPT_AFTER_A_CUT = 0.75
"""A window that has become too long is cut to this share of its room, so that the next turns need not cut again."""


class PromptBundle(Struct, frozen=True):
    """The messages, and what each part takes in tokens; `left_out` counts messages."""

    messages: tuple[Message, ...]
    parts: Mapping[str, int] = field(default_factory=dict)
    """Tokens of persona, tools, summary, window, memory and, where there are any, the texts of attachments."""
    reply_tokens: int = 0
    context_window: int = 0
    left_out: int = 0
    exchanges: int = 0
    """Number of the user's messages shown, each with the entries after it."""
    dropped: tuple[str, ...] = ()
    """Parts that were left out because the window is full."""
    earlier_block: bool = False
    """True if the block of the previous message is shown with it."""
    cut: "tuple[Cut, ...]" = ()
    """Documents, answers of tools and long messages that were cut to fit."""

    @property
    def tokens(self) -> int:
        """The whole prompt."""
        return sum(self.parts.values())


async def build_prompt(
    model: Model,
    persona: str,
    dialogue: Sequence[Message],
    *,
    tools: Sequence[ToolSpec],
    reply_tokens: int,
    summary: str = "",
    block: str = "",
    earlier_block: str = "",
) -> PromptBundle:
    """Build the prompt for the next reply; `dialogue` ends with the message to be answered.

    `block` is the memory block for that message, `earlier_block` that of the previous one. Empty texts are left out.

    Long texts are cut to their best passages, then whole exchanges are left out, oldest first, until prompt and reply
    fit the model's window. If the last exchange needs the room, the summary, `earlier_block` and `block` are left out,
    in this order; if it must be cut anyway, `block` stays, provided that half of the room remains for what is cut.
    Raises `ContextTooLong` if the cut last exchange alone does not fit.
    """
    window = await model.context_window()
    reply = min(reply_tokens, window // LARGEST_REPLY_SHARE)
    system = Message("system", persona)
    persona_tokens = await model.count_tokens([system], tools)
    tool_tokens = persona_tokens - await model.count_tokens([system]) if tools else 0
    exchanges = _exchanges([_unmarked(each) for each in dialogue])
    costs = [await model.count_tokens(exchange) for exchange in exchanges]
    texts = {"summary": summary, "earlier memory": earlier_block if len(exchanges) > 1 else "", "memory": block}
    extras = {name: await model.count_tokens([Message("user", text)]) if text else 0 for name, text in texts.items()}
    room = window - reply - persona_tokens
    dropped = _dropped_extras(extras, exchanges[-1], costs[-1], room)
    texts |= dict.fromkeys(dropped, "")
    extras |= dict.fromkeys(dropped, 0)
    room -= sum(extras.values())
    exchanges, costs, cuts = await fit(exchanges, costs, room, model)
    first = _first_shown(costs, room)
    if first >= len(exchanges):
        raise ContextTooLong(
            f"{model.name} has a window of {window} tokens, too small for the persona ({persona_tokens}), "
            f"the message ({costs[-1]}) and a reply ({reply}): shorten the message, "
            "or lower max_output_tokens in [model]"
        )
    shown = exchanges[first:]
    files = sum([await _attached_tokens(model, each) for exchange in shown for each in exchange])
    last, earlier = _with_block(shown[-1], texts["memory"]), shown[:-1]
    if earlier:
        earlier[-1] = _with_block(earlier[-1], texts["earlier memory"])
    else:
        extras["earlier memory"] = 0
    before = [Message("user", texts["summary"])] if texts["summary"] else []
    return PromptBundle(
        messages=(system, *before, *chain.from_iterable(earlier), *last),
        parts={
            "persona": persona_tokens - tool_tokens,
            "tools": tool_tokens,
            "summary": extras["summary"],
            "window": sum(costs[first:]) - files,
            "memory": extras["memory"] + extras["earlier memory"],
            **({"attachments": files} if files else {}),
        },
        reply_tokens=reply,
        context_window=window,
        left_out=len(dialogue) - sum(map(len, exchanges[first:])),
        exchanges=len(exchanges) - first,
        earlier_block=bool(earlier and texts["earlier memory"]),
        dropped=tuple(dropped),
        cut=cuts,
    )


def _dropped_extras(extras: Mapping[str, int], last: Sequence[Message], needed: int, room: int) -> list[str]:
    """Return the names of the extras that leave no room for the last exchange, which needs so many tokens."""
    if needed > room >= 2 * (_fixed_cost(last, needed) + extras["memory"]):
        needed = room - extras["memory"]  # what must be cut anyway leaves room for a small memory block
    left, dropped = sum(extras.values()), []
    for name, tokens in extras.items():
        if tokens and needed + left > room:
            left -= tokens
            dropped.append(name)
    return dropped


def _unmarked(message: Message) -> Message:
    """Return the message; the answer of a tool without marks that a tokenizer could take for roles."""
    if message.role != "tool":
        return message
    parts = (without_tokens(each) if isinstance(each, str) else each for each in message.parts)
    return replace(message, content=without_tokens(message.content), parts=tuple(parts))


async def _attached_tokens(model: Model, message: Message) -> int:
    if message.source:
        return await model.count_tokens([message])
    if not message.images:
        return 0
    return await model.count_tokens([message]) - await model.count_tokens([replace(message, parts=())])


def _with_block(exchange: list[Message], block: str) -> list[Message]:
    """Put a memory block at the head of the question, so that a model reads it as notes, not as the question."""
    at = next((at for at, message in enumerate(exchange) if message.role == "user" and not message.source), None)
    if at is None or not block:
        return exchange
    question = exchange[at]
    parts = (f"{block}\n\n", *question.parts) if question.parts else ()
    noted = replace(question, content=f"{block}\n\n{question.content}", parts=parts)
    return [*exchange[:at], noted, *exchange[at + 1 :]]


def _first_shown(costs: Sequence[int], room: int) -> int:
    """Return the first exchange to show; a window that must be cut is cut by more than necessary."""
    total, first = sum(costs), 0
    kept = room if total <= room else room * _KEPT_AFTER_A_CUT
    while first < len(costs) and total > (kept if first < len(costs) - 1 else room):
        total -= costs[first]
        first += 1
    return first


def _exchanges(dialogue: Sequence[Message]) -> list[list[Message]]:
    exchanges: list[list[Message]] = []
    for message in dialogue:
        follows_its_file = exchanges and exchanges[-1][-1].source
        if (message.role == "user" and not follows_its_file) or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges


_EARLIER_SHARE = 8
"""If not everything fits, a file or tool result of earlier messages gets at most the window divided by this."""
_LEAST = 48
"""Minimum tokens of a cut text that is still useful."""
_ENDS = 600
"""Characters at each end of a long message that stay: the question is before or after what was pasted."""
_CHUNK = 200_000
_SHARE_OF_ROOM = 0.97
"""Estimates differ a little from what the model counts."""
_TRIES = 4


class Cut(Struct, frozen=True):
    """Part that was cut: its name, and its tokens before and after."""

    what: str
    tokens: int
    kept: int


async def fit(
    exchanges: list[list[Message]], costs: list[int], room: int, model: Model
) -> tuple[list[list[Message]], list[int], tuple[Cut, ...]]:
    """Cut long texts until the exchanges fit `room` tokens, if possible; return them, their tokens, and the cuts.

    Cuts long documents and tool results of earlier exchanges first, then the longest texts of the last one: in a
    thread, as a long document takes seconds.
    """
    if sum(costs) <= room or not exchanges:
        return exchanges, costs, ()
    most = await model.context_window() // _EARLIER_SHARE
    asked = _question(exchanges[-1])
    earlier = [
        await asyncio.to_thread(_cut_all, each, most, f"{_question(each)}\n{asked}", with_user=False)
        for each in exchanges[:-1]
    ]
    last = await asyncio.to_thread(_cut_last, exchanges[-1], costs[-1], room, asked)
    fitted = [*(each for each, _ in earlier), last[0]]
    new_costs = [
        cost if new is old else await model.count_tokens(new)
        for new, old, cost in zip(fitted, exchanges, costs, strict=True)
    ]
    less = room
    for _ in range(_TRIES):
        if new_costs[-1] <= room or last[0] is exchanges[-1]:
            break
        less = int(less * room / new_costs[-1] * _SHARE_OF_ROOM)
        last = await asyncio.to_thread(_cut_last, exchanges[-1], costs[-1], less, asked)
        fitted[-1], new_costs[-1] = last[0], await model.count_tokens(last[0])
    return fitted, new_costs, tuple(cut for _, cuts in [*earlier, last] for cut in cuts)


def _question(exchange: Sequence[Message]) -> str:
    """Return the user's message, of a long one the ends."""
    return ends_of(next((each.content for each in exchange if each.role == "user" and not each.source), ""), _ENDS)


def _cut_last(exchange: list[Message], cost: int, room: int, asked: str) -> tuple[list[Message], list[Cut]]:
    if cost <= room:
        return exchange, []
    left = int(room * _SHARE_OF_ROOM) - _fixed_cost(exchange, cost)
    cap = _cap(_sizes(exchange), left * estimate(exchange) // cost)
    return _cut_all(exchange, cap, asked, with_user=True) if cap >= _LEAST else (exchange, [])


def _sizes(exchange: Sequence[Message]) -> list[int]:
    """Return the estimated tokens of each text that may be cut."""
    return [estimate_text(each.content) for each in exchange if _may_be_cut(each, with_user=True)]


def _fixed_cost(exchange: Sequence[Message], cost: int) -> int:
    """Return the tokens, as the model counts them, of what is not cut."""
    return cost - cost * sum(_sizes(exchange)) // estimate(exchange)


def _cap(sizes: Iterable[int], room: int) -> int:
    """Return the largest size for each text at which all fit `room`: shorter texts stay whole."""
    sizes = sorted(sizes)
    for at, size in enumerate(sizes):
        if size * (len(sizes) - at) > room:
            return max(0, room // (len(sizes) - at))
        room -= size
    return sizes[-1] if sizes else 0


def _may_be_cut(message: Message, *, with_user: bool) -> bool:
    return bool(message.source) or message.role == "tool" or (with_user and message.role == "user")


def _cut_all(exchange: list[Message], most: int, asked: str, *, with_user: bool) -> tuple[list[Message], list[Cut]]:
    """Cut each long message of an exchange to `most` tokens; the exchange itself if none is longer."""
    names = {call.id: call.name for message in exchange for call in message.tool_calls}
    cuts: list[Cut] = []
    fitted: list[Message] = []
    for message in exchange:
        tokens = estimate_text(message.content)
        if tokens <= most or not _may_be_cut(message, with_user=with_user):
            fitted.append(message)
            continue
        text = _passages(message, most, tokens, question_words([asked]))
        what = message.source or names.get(str(message.tool_call_id), "") or "message"
        cuts.append(Cut(what, tokens, estimate_text(text)))
        parts = (text, *message.images) if message.parts else ()  # its pictures stay
        fitted.append(replace(message, content=text, parts=parts))
    return (fitted, cuts) if cuts else (exchange, [])


@lru_cache(maxsize=16)
def _passages(message: Message, most: int, tokens: int, words: frozenset[str]) -> str:
    """Return the best passages of a message, between the parts that stay."""
    before, text, after = _frame(message)
    label = f"[cut to fit: the best passages of about {tokens:,} tokens]"
    room = most - estimate_text(f"{before}\n{label}\n{after}")
    chunks = [("", text[at : at + _CHUNK]) for at in range(0, len(text), _CHUNK)]
    best = "\n".join(part for _, part in excerpt(chunks, words, max(room, 0), estimate_text))
    return "\n".join(filter(None, (before, label, best, after)))


def _frame(message: Message) -> tuple[str, str, str]:
    """Split a message into the beginning that stays, the part to cut, and the end that stays."""
    if message.source:
        mark, name, *body = message.content.split("\n")
        return f"{mark}\n{name}", "\n".join(body[:-1]), body[-1] if body else ""
    if message.role == "user" and len(message.content) > 2 * _ENDS:
        return message.content[:_ENDS], message.content[_ENDS:-_ENDS], message.content[-_ENDS:]
    return "", message.content, ""


_LEFT_OUT = "…"
_MOST_READ = 200_000
"""Maximum characters of a text that are read."""
_LONGEST = 200
"""Bytes at which a passage ends with its sentence; one without an end is cut at twice as many."""
_MOST_PASSAGES = 20_000
"""About how many passages texts are split into at most: those of long texts are larger."""
_LONGEST_TITLE = 200
_NEIGHBOURS = 0.15
"""Share of the rating of each neighbour that is added to a passage's own."""
_PIECE = re.compile(rf"[^\n{SENTENCE_SIGNS}]*(?:[{SENTENCE_SIGNS}]+|\n+|$)\s*")

LabelType = TypeVar("LabelType", bound=str)


class Passage(Struct, frozen=True):
    """A part of one of several texts; `text` is its number."""

    text: int
    begin: int
    end: int


def question_words(asked: Sequence[str]) -> frozenset[str]:
    """Return the terms by which passages are chosen: of the last message that has any."""
    found = (frozenset(terms(text[:_MOST_READ])) for text in reversed(asked))
    return next(filter(None, found), frozenset())


def excerpt(
    texts: Sequence[tuple[LabelType, str]], words: frozenset[str], most_tokens: int, count: Callable[[str], int]
) -> list[tuple[LabelType, str]]:
    """Return the best passages within `most_tokens`, a short title first; the beginning if none holds a word."""
    kept = [each for each in texts[:1] if each[0] == "title" and len(each[1]) <= _LONGEST_TITLE]
    rest = texts[len(kept) :]
    room = most_tokens - sum(count(f"{label} | {text}\n") for label, text in kept)
    read = [text[:_MOST_READ] for _, text in rest]
    least = sum(map(len, read)) // _MOST_PASSAGES
    passages = [each for number, text in enumerate(read) for each in _split(number, text, least)]
    chosen: list[Passage] = []
    for passage in _ranked(passages, rest, words):
        cost = count(rest[passage.text][1][passage.begin : passage.end]) + 4
        if cost <= room:
            room -= cost
            chosen.append(passage)
    if not chosen:
        return []
    return [*kept, *((rest[number][0], text) for number, text in _join_passages(chosen, [text for _, text in rest]))]


def _split(number: int, text: str, least: int) -> Iterable[Passage]:
    """Yield the passages of a text, each of at least `least` characters but the last."""
    longest = max(_LONGEST * len(text) // max(1, len(text.encode())), least)
    begin = end = 0
    for piece in _PIECE.finditer(text):
        if end > begin + least and (piece.end() - begin > longest or text[end - 1] == "\n"):
            yield Passage(number, begin, end)
            begin = end
        end = piece.end()
        while end - begin > 2 * longest:
            cut = text.rfind(" ", begin + longest, begin + 2 * longest) + 1 or begin + 2 * longest
            yield Passage(number, begin, cut)
            begin = cut
    if end > begin:
        yield Passage(number, begin, end)


def _ranked(passages: Sequence[Passage], texts: Sequence[tuple[str, str]], words: frozenset[str]) -> Iterable[Passage]:
    """Return the passages that hold a word, or are next to one that does, best first; all in order if none does."""
    contents = [texts[each.text][1][each.begin : each.end] for each in passages]
    held = [words & {*terms(text)} for text in contents]
    holders = Counter(word for each in held for word in each)
    own = [sum(math.log1p(len(passages) / holders[word]) for word in each) for each in held]
    ratings = dict(zip(passages, with_neighbours(own, _NEIGHBOURS), strict=True))
    good = [each for each in passages if ratings[each] > 0]
    return sorted(good, key=lambda each: -ratings[each]) if good else passages


def _join_passages(chosen: Iterable[Passage], texts: Sequence[str]) -> Iterable[tuple[int, str]]:
    """Yield each text with its chosen passages in order, and marks for the rest."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for each in sorted(chosen, key=lambda each: (each.text, each.begin)):
        of_text = spans.setdefault(each.text, [])
        if of_text and of_text[-1][1] == each.begin:
            of_text[-1] = (of_text[-1][0], each.end)
        else:
            of_text.append((each.begin, each.end))
    for number, parts in spans.items():
        text = texts[number]
        before = f"{_LEFT_OUT} " if parts[0][0] else ""
        after = f" {_LEFT_OUT}" if parts[-1][1] < len(text) else ""
        yield number, before + f"\n{_LEFT_OUT} ".join(text[begin:end].strip() for begin, end in parts) + after


MORE_TOOLS = "memory_more"
"""The tool through which a model calls those that prompts do not describe one by one."""
_LARGEST_TOOLS_SHARE = 2
"""Tools may take at most the model's window divided by this."""
_TOOLS_NAMED = 8
"""Tools that a notice names."""


def is_memory_tool(name: str) -> bool:
    """Return whether a tool works on memory: one of ours, also under the prefix of another server."""
    name, tools = name.lower(), (*tool_names(), MORE_TOOLS)
    return any(name.endswith(tool) and not name.removesuffix(tool)[-1:].isalnum() for tool in tools)


def withheld_tools(disclosure: Disclosure) -> frozenset[str]:
    """Return the memory tools whose answers may not be sent to a provider, and which its models are not offered.

    Even tools that write return memories; those of sessions return parts of transcripts, which have no sensitivity.
    """
    if not disclosure.memory:
        return tool_names()
    names = tool_names() if disclosure.sensitivity == "public" else ()
    return frozenset(name for name in names if name.startswith("session_"))


async def fitting_tools(model: Model, specs: Sequence[ToolSpec], *, memory: bool) -> tuple[tuple[ToolSpec, ...], str]:
    """Return the tools that do not take too much of the model's window, in their order, and a notice of the others.

    Without `memory`, the tools of memory are left out. The largest other tools are left out first, as a server
    may have any number of them; then the tools of memory, from the last: searching and reading come first.
    """
    window = await model.context_window()
    room = window // _LARGEST_TOOLS_SHARE
    specs = [spec for spec in specs if memory or not is_memory_tool(spec.name)]
    if not specs or await model.count_tokens([], specs) <= room:
        return tuple(specs), ""
    sizes = {spec.name: await model.count_tokens([], [spec]) for spec in specs}
    own = [spec for spec in specs if is_memory_tool(spec.name) and "__" not in spec.name]
    kept = [*own, *sorted((spec for spec in specs if spec not in own), key=lambda spec: sizes[spec.name])]
    while kept and sum(sizes[spec.name] for spec in kept) > room:
        kept.pop()
    names = [spec.name for spec in specs if spec not in kept]
    more = f" and {len(names) - _TOOLS_NAMED} more" if len(names) > _TOOLS_NAMED else ""
    notice = (
        f"the tools do not all fit a window of {window} tokens: {len(names)} of {len(specs)} are left out, "
        f"{', '.join(names[:_TOOLS_NAMED])}{more}"
    )
    return tuple(spec for spec in specs if spec in kept), notice

"""Model calls for clients that keep the conversation themselves: nothing is recalled or kept except the bill."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from chatbot.chat.ledger import Amount, Call, Limit, Payer
from chatbot.embedder import EmbeddingResult
from chatbot.messages import CallOptions, Delta, Message, ToolSpec
from chatbot.models.model import estimate_text
from chatbot.runtime import Runtime
from chatbot.stores.loops import to_its_end


def answer(
    runtime: Runtime,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolSpec] = (),
    max_output_tokens: int | None = None,
    options: CallOptions | None = None,
    payers: Sequence[Payer] = (),
) -> AsyncGenerator[Delta, None]:
    """Ask the identity's model. Yields deltas, `Finished` last; closing the generator stops the model.

    The persona comes first, unless `messages` have a system message. Raises `BudgetExceeded`, `ContextTooLong`, or the
    `ModelError` of the model.
    """
    if not any(message.role == "system" for message in messages):
        messages = (Message("system", runtime.persona), *messages)
    most = runtime.config.model.max_output_tokens
    calls = runtime.calls(reply_tokens=min(max_output_tokens or most, most), payers=payers)
    return calls.stream("answer", messages, tools=tools, options=options)


async def embed(runtime: Runtime, texts: Sequence[str], *, payers: Sequence[Payer] = ()) -> tuple[str, EmbeddingResult]:
    """Return the name of the memory's encoder, and its vectors of these texts; see `MemorySystem.embed`.

    Raises `BudgetExceeded` if a limit of the day is spent, unless the encoder is on this machine.
    """
    encoder = runtime.config.embedding.model
    if not encoder or encoder.startswith("local/"):
        return await runtime.memory.embed(texts)
    calls, tokens = runtime.calls(reply_tokens=0, payers=payers), sum(map(estimate_text, texts))
    began = calls.clock()

    def decide(limits: Sequence[Limit]) -> Amount:
        for limit in limits:
            least = tokens if limit.unit == "tokens" else 0
            if limit.left <= least:
                raise limit.refusal(tokens, fits_alone=limit.allowed > least)
        return Amount(tokens)

    bill: Call | None = None
    held = await calls.hold("embed", decide)

    async def settle() -> None:
        await calls.settle(held[:-1], bill)
        await calls.settle(held[-1:])  # the identity's: memory has put the call on its bill

    try:
        name, found = await runtime.memory.embed(texts)
        bill = Call(began, "", "embed", name, found.usage, 0.0)
    finally:
        await to_its_end(settle())
    return name, found

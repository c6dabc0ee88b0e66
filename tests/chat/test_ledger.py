"""The bill of an identity."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from chatbot.chat.ledger import NAME, Call, Ledger, merged
from chatbot.messages import Usage


def _call(session: str, purpose: str = "chat") -> Call:
    at = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(seconds=1)
    return Call(at, session, purpose, "m", Usage(10, 5, 0, 0.25), 1.0)


async def test_what_each_session_cost_is_summed_as_it_grows_in_whichever_process(tmp_path: Path) -> None:
    one, other = Ledger(tmp_path / "memory"), Ledger(tmp_path / "memory")
    assert await one.by_session() == {}
    await other.add(_call("a"))
    assert (await one.by_session())["a"].calls == 1
    with (tmp_path / "memory" / NAME).open("ab") as end:
        end.write(b'not json\n{"at": "torn')
    assert (await one.by_session())["a"].calls == 1
    for each in (_call("a", "extract"), _call("b"), _call("")):
        await other.add(each)
    bills = await one.by_session()
    assert {session: bill.calls for session, bill in bills.items()} == {"a": 2, "b": 1, "": 1}
    assert bills["a"].by_purpose["extract"].cost_usd == 0.25
    total = merged(bills.values())
    assert total == await other.total()
    bills["a"].calls = 99
    assert (await one.by_session())["a"].calls == 2

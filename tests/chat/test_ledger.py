"""The bill of an identity: calls are reserved before they are made, so that none pass a limit together."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from chatbot.chat.ledger import Amount, Bill, Call, Ledger, Quota, reply_within, sum_of, usd_text
from chatbot.errors import BudgetExceeded, QuotaExceeded
from chatbot.messages import Usage
from chatbot.models.model import Price
from tests.patience import PATIENCE_S

DAY_USD = 1.0
CALL_USD = 0.3


def _call(cost: float = CALL_USD, session: str = "a", purpose: str = "chat") -> Call:
    return Call(datetime.now(UTC), session, purpose, "m", Usage(10, 5, 0, cost), 1.0)


def _within_the_day(day: Bill, _: Bill) -> Amount:
    if day.cost_usd + CALL_USD > DAY_USD:
        raise BudgetExceeded(f"{day.cost_usd:.2f} are spent or reserved")
    return Amount(15, CALL_USD)


@pytest.mark.parametrize("names_sessions", [True, False])
async def test_what_is_settled_is_on_the_bill_and_reserved_no_more(tmp_path: Path, *, names_sessions: bool) -> None:
    ledger = Ledger(tmp_path, names_sessions=names_sessions)
    reservation = await ledger.reserve("a", _within_the_day)
    await ledger.settle(reservation, _call())
    assert sum_of((await ledger.by_session()).values()).cost_usd == CALL_USD
    seen: list[float] = []

    def look(day: Bill, session: Bill) -> Amount:
        seen.extend((day.cost_usd, session.cost_usd))
        return Amount()

    await ledger.reserve("a", _within_the_day)
    await ledger.reserve("a", look)
    assert seen == [2 * CALL_USD, 2 * CALL_USD]


async def test_another_day_begins_with_nothing_spent(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    await ledger.settle(None, _call(DAY_USD))
    with pytest.raises(BudgetExceeded):
        await ledger.reserve("a", _within_the_day)
    await ledger.reserve("a", _within_the_day, at=datetime.now(UTC) + timedelta(days=1))


async def test_a_clock_that_was_set_back_meanwhile_hides_no_call(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    days = [now, now - timedelta(days=3), now, now - timedelta(days=1)]
    for at in days:
        await Ledger(tmp_path).settle(None, replace(_call(), at=at))
    bills = await Ledger(tmp_path).by_day(2, now)
    assert {day: bill.calls for day, bill in bills.items()} == {days[3].date(): 1, now.date(): 2}


@pytest.mark.parametrize("clock", ["2026-01-01", "2126-01-01"])
async def test_a_reservation_whose_process_died_lapses_after_an_hour(tmp_path: Path, clock: str) -> None:
    """Also if the clock was ahead when it was made."""
    ledger = Ledger(tmp_path)
    for _ in range(3):
        await ledger.reserve("a", _within_the_day)
    file = tmp_path / "reservations.json"
    written = json.loads(file.read_bytes())
    assert len(written["reservations"]) == 3
    assert file.stat().st_mode & 0o777 == 0o600
    for each in written["reservations"]:
        each["until"] = f"{clock}T00:00:00.000000Z"
    file.write_text(json.dumps(written), encoding="utf-8")
    await ledger.reserve("a", _within_the_day, purpose="chat")
    bill = (await ledger.by_session())["a"]
    assert (bill.calls, bill.calls_of_unknown_cost, bill.cost_usd) == (3, 3, 0)
    await ledger.reserve("a", _within_the_day)
    assert sum_of((await ledger.by_session()).values()).calls == 3


SPENDER = """
import asyncio, sys
from pathlib import Path
from tests.chat.test_ledger import _call, _within_the_day
from chatbot.chat.ledger import Ledger
from chatbot.errors import BudgetExceeded

async def main():
    ledger, made = Ledger(Path(sys.argv[1])), 0
    for _ in range(20):
        try:
            reservation = await ledger.reserve("a", _within_the_day)
        except BudgetExceeded:
            continue
        await ledger.settle(reservation, _call())
        made += 1
    print(made)

asyncio.run(main())
"""


def test_two_processes_never_pass_the_limit_together(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPENDER, str(tmp_path)]
    root = Path(__file__).parents[2]
    spenders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(2)]
    made = [int(each.communicate(timeout=PATIENCE_S)[0]) for each in spenders]
    assert sum(made) == 3
    assert sum_of(asyncio.run(Ledger(tmp_path).by_session()).values()).cost_usd == pytest.approx(3 * CALL_USD)


def test_a_cost_is_never_shown_as_nothing() -> None:
    shown = [usd_text(each) for each in (0, 0.000012, 0.00012, 2)]
    assert shown == ["$0.00", "$0.00001", "$0.0001", "$2.00"]


async def test_what_each_session_cost_is_summed_as_it_grows_in_whichever_process(tmp_path: Path) -> None:
    one, other = Ledger(tmp_path / "memory"), Ledger(tmp_path / "memory")
    assert await one.by_session() == {}
    await other.settle(None, _call(0.25, "a"))
    assert (await one.by_session())["a"].calls == 1
    with (tmp_path / "memory" / "usage.jsonl").open("ab") as end:
        end.write(b'not json\n{"at": "torn')
    assert (await one.by_session())["a"].calls == 1
    for each in (_call(0.25, "a", "extract"), _call(0.25, "b"), _call(0.25, "")):
        await other.settle(None, each)
    bills = await one.by_session()
    assert {session: bill.calls for session, bill in bills.items()} == {"a": 2, "b": 1, "": 1}
    assert bills["a"].by_purpose["extract"].cost_usd == 0.25
    total = sum_of(bills.values())
    assert total == sum_of((await other.by_session()).values())
    bills["a"].calls = 99
    assert (await one.by_session())["a"].calls == 2


@pytest.mark.parametrize("quota", [Quota(day_tokens=100), Quota(day_usd=0.1)])
def test_a_call_beyond_a_whole_limit_is_not_told_to_wait(quota: Quota) -> None:
    spent = Bill(input_tokens=90, cost_usd=0.09)
    limits, price = quota.limits(spent, "this user", datetime.now(UTC)), Price(0.001, 0.001)
    with pytest.raises(QuotaExceeded, match="it resets at"):
        reply_within(limits, prompt=50, reply=20, price=price, model="m")
    with pytest.raises(BudgetExceeded, match="with 99 tokens of prompt it exceeds the whole") as refused:
        reply_within(limits, prompt=99, reply=20, price=price, model="m")
    assert not isinstance(refused.value, QuotaExceeded)
    if quota.day_usd:
        with pytest.raises(BudgetExceeded, match=r"price of gpt-4o is unknown: set it in \[providers.openai.prices"):
            reply_within(limits, prompt=1, reply=20, price=None, model="gpt-4o")
    assert "= 1,234,567 " in str(replace(limits[0], allowed=1234567.0).refusal(1))

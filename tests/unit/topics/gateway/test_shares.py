"""The shares of memory and of the event loop that one client and one address get."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from zkmigrate.topics.gateway.rules.layout import FrameError
from zkmigrate.topics.gateway.serving import turns
from zkmigrate.topics.gateway.serving.room import (
    AGAIN_S,
    ASKED,
    CROWDED_S,
    FREE,
    LARGE,
    SHARE,
    SPARE,
    TOTAL,
    Room,
)
from zkmigrate.topics.gateway.serving.turns import BURST, CLIENT, COST, MOST, PASSED, RATE, TURN, Turns


class Hall:
    """A room, its clock, and the calls that it has scheduled, with the seconds until then."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.room = Room(lambda: self.clock, lambda seconds, call: self.later.append((seconds, call)))

    def turn(self) -> None:
        """Make the calls that were scheduled before."""
        due, self.later = self.later, []
        for _, call in due:
            call()

    def holder(self, share: str, count: int = FREE + 1) -> Holder:
        one = Holder(self, share)
        self.room.keep(one, count)
        return one


class Holder:
    """A connection. asked: how often it was told to look for room again."""

    def __init__(self, hall: Hall, share: str) -> None:
        self.hall, self.share, self.asked, self.ended = hall, share, 0, ""

    def go_on(self) -> None:
        self.asked += 1
        self.hall.room.may(self)

    def stop(self, error: FrameError) -> None:
        self.ended = error.what
        self.hall.room.release(self)


def test_each_byte_counts_until_its_connection_has_ended() -> None:
    hall = Hall()
    one, other = hall.holder("a", 5), hall.holder("a", FREE + 1)
    assert (hall.room.total, [*hall.room.held]) == (FREE + 6, [other])
    hall.room.keep(other, FREE + 9)
    hall.room.keep(one, FREE)
    assert (hall.room.total, [*hall.room.held]) == (2 * FREE + 9, [other])
    for gone in (one, other):
        hall.room.release(gone)
    room = hall.room
    assert (room.total, room.held, room._of, room._kept, dict(room._bytes)) == (0, {}, {}, {}, {})


def test_an_address_beyond_its_share_waits_for_its_own_oldest_and_keeps_no_other_waiting() -> None:
    hall = Hall()
    other = hall.holder("b", LARGE + 1)
    first, second = hall.holder("a", SHARE // 2), hall.holder("a", LARGE + 1)
    hall.room.keep(first, SHARE - LARGE - 1)
    assert hall.room.may(second), "what grows counts once"
    hall.room.keep(first, SHARE)
    assert [hall.room.may(one) for one in (first, second, other)] == [True, False, True]
    hall.room.keep(first, 0)
    assert hall.room.may(second)


def test_beyond_the_total_everybody_waits_for_the_oldest_of_all() -> None:
    hall = Hall()
    holders = [hall.holder(f"{n}", SHARE) for n in range(TOTAL // SHARE)]
    assert all(map(hall.room.may, holders)), "at the limit"
    late, few = hall.holder("late", LARGE + 1), hall.holder("few", FREE + 1)
    told = [hall.room.may(one) for one in (*holders, late, few)]
    assert told == [True] + [False] * len(holders) + [True], "who has little goes on"
    hall.room.keep(late, SPARE)
    assert not hall.room.may(few), "until that is used up, too"


def test_who_waits_is_asked_in_the_next_turn_after_bytes_were_released_and_again_each_second() -> None:
    hall = Hall()
    first, second = hall.holder("a", SHARE + 1), hall.holder("a", LARGE + 1)
    gone = hall.holder("a", LARGE + 1)
    assert not hall.room.may(second)
    assert not hall.room.may(gone)
    assert [seconds for seconds, _ in hall.later] == [AGAIN_S]
    hall.room.release(gone)
    assert [seconds for seconds, _ in hall.later] == [AGAIN_S, 0.0]
    hall.later.pop(0)
    hall.turn()
    assert (second.asked, gone.asked) == (1, 0), "a connection that has ended is not asked"
    hall.later = [(AGAIN_S, hall.room._look)]
    hall.turn()
    hall.turn()
    assert second.asked == 2
    hall.clock = CROWDED_S
    hall.room.may(second)
    assert first.ended == "memory"
    hall.turn()
    hall.turn()
    assert (second.asked, hall.room._waiting) == (3, {}), "it has room now, and is not asked any more"


def test_in_one_round_each_connection_that_waits_is_asked_once_and_few_in_a_turn() -> None:
    hall = Hall()
    hall.holder("a", SHARE + 1)
    waiting = [hall.holder("a") for _ in range(2 * ASKED + 1)]
    assert not any(map(hall.room.may, waiting))
    hall.later.clear()
    hall.room._wake()
    hall.room._wake()
    asked = []
    while hall.later:
        hall.turn()
        asked.append(sum(one.asked for one in waiting))
    assert asked == [ASKED, 2 * ASKED, 2 * ASKED + 1]
    hall.room._wake()
    hall.room.release(waiting[0])
    assert len(hall.later) == 1


def test_what_is_read_and_each_new_connection_use_up_the_turn() -> None:
    soon = list[Callable[[], None]]()
    one = Turns(soon.append, lambda: 0.0)
    one.connected("a")
    assert one.spent == CLIENT
    assert one.read("a", PASSED * (TURN - CLIENT))
    assert not one.read("a", PASSED * int(BURST)), "the connection was paid for, too"
    assert len(soon) == 1, "its end is scheduled once"
    soon.pop()()
    assert (one.spent, soon) == (0, [])
    one.spend("a", COST * (TURN // 2 - 1))
    assert soon == []
    one.spend("a", COST)
    assert len(soon) == 1


def test_an_address_pays_for_what_was_read_and_gets_credit_back_with_time_up_to_its_burst() -> None:
    clock, soon = 0.0, list[Callable[[], None]]()
    one = Turns(soon.append, lambda: clock)
    one.spend("a", COST * int(BURST))
    assert one.spent >= TURN
    assert not one.may("a")
    assert one.may("b"), "another address has not asked"
    clock += 11 / RATE
    assert [one.may("a") for _ in range(11)] == [True] * 10 + [False]
    clock += 1000.0
    soon.pop()()
    assert sum(one.may("a") for _ in range(1000)) == TURN + BURST
    assert sum(one.may(f"{n}") for n in range(1000)) == MOST - TURN - BURST, "all of them together"


def test_so_many_addresses_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_ADDRESSES", 3)
    one = Turns(list[Callable[[], None]]().append, lambda: 0.0)
    for n in range(10):
        one.spend(f"{n}", COST)
    assert [*one._credit] == ["7", "8", "9"]


def test_a_turn_that_was_used_to_half_is_followed_by_another_and_an_idle_one_by_none() -> None:
    soon, done = list[Callable[[], None]](), list[int]()
    one = Turns(soon.append, lambda: 0.0)
    for n in range(2 * TURN):
        one.later("a", partial(done.append, n))
    sizes = []
    for _ in range(3):
        assert len(soon) == 1
        soon.pop()()
        sizes.append(len(done))
    assert (sizes, soon) == ([TURN, 2 * TURN, 2 * TURN], []), "the last one has nothing to do, and ends"
    one.later("a", lambda: done.append(-1))
    soon.pop()()
    assert (done[-1], soon) == (-1, [])


def test_a_client_whose_turn_fails_takes_no_turn_from_the_others() -> None:
    """A defect that one client's bytes reach would else end the service of all that wait."""
    soon, done = list[Callable[[], None]](), list[str]()
    one = Turns(soon.append, lambda: 0.0)

    def fails() -> None:
        raise IndexError

    one.later("a", fails)
    one.later("b", lambda: done.append("b"))
    with pytest.raises(IndexError):
        soon.pop()()
    soon.pop()()
    one.later("c", lambda: done.append("c"))
    soon.pop()()
    assert (done, soon) == (["b", "c"], [])


def test_a_client_that_fails_when_it_looks_for_room_keeps_no_other_from_looking() -> None:
    hall = Hall()
    hall.holder("a", SHARE + 1)
    bad, good = hall.holder("a"), hall.holder("a")

    def fails() -> None:
        raise IndexError

    bad.go_on = fails  # type: ignore[method-assign]
    assert not hall.room.may(bad)
    assert not hall.room.may(good)
    hall.room._wake()
    for _ in range(3):
        with suppress(IndexError):
            hall.turn()
        hall.room._wake()
    assert good.asked

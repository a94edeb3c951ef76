"""The clocks of runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import EtlError
from etl.tables.sequence import MOST_AHEAD, SPAN, Run, next_clock
from schemas import TableName

TABLE = TableName("ks", "metadata")
TIMES = st.integers(0, 2 * MOST_AHEAD)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1), TIMES)
def test_each_run_writes_later_than_all_before_it(times: list[tuple[int, int]], after: int) -> None:
    last, written = None, after
    for here, attempt in times:
        try:
            clock = next_clock(here=here, last=last, at_server=here, after=after, table=TABLE)
        except EtlError:
            assert max(after, last or 0) - here > MOST_AHEAD - SPAN
            continue
        run = Run(table=TABLE, sequence=1, clock=clock)
        number = attempt % (SPAN - 1)
        assert written < clock == run.clock_of(0) < run.clock_of(1)
        assert run.clock_of(number) < run.last_clock
        assert clock >= here
        last, written = clock, run.last_clock


@given(st.integers(0, 2**40), st.integers(0, SPAN - 2), st.integers(0, SPAN - 2))
def test_no_two_attempts_of_a_session_have_one_write_time(first: int, one: int, other: int) -> None:
    run = Run(table=TABLE, sequence=1, clock=5, first_attempt=first)
    assert (run.clock_of(first + one) == run.clock_of(first + other)) == (one == other)


@pytest.mark.parametrize("attempt", [6, 7 + SPAN - 1])
def test_an_attempt_without_a_write_time_is_an_error(attempt: int) -> None:
    run = Run(table=TABLE, sequence=1, clock=5, first_attempt=7)
    with pytest.raises(EtlError, match=r"at most 999,999 attempts of tasks in run 1 of ks\.metadata.* --resume"):
        run.clock_of(attempt)


def test_clocks_that_disagree_are_refused_and_by_how_much() -> None:
    here, hour = 1_700_000_000_000_000, 3_600_000_000
    with pytest.raises(EtlError, match=r"it is 2023-11-14 22:13:20 UTC here, .* 23:13:20 UTC, 1 h 0 min 0 s later"):
        next_clock(here=here, last=here + hour, at_server=here, table=TABLE)
    with pytest.raises(EtlError, match=r"1 h 0 min 0 s later\. Correct the clock"):
        next_clock(here=here, last=None, at_server=here, after=here + hour, table=TABLE)
    with pytest.raises(EtlError, match=r"23:13:20 UTC here, and .* 22:13:20 UTC at Cassandra, 1 h 0 min 0 s earlier"):
        next_clock(here=here + hour, last=here, at_server=here, table=TABLE)
    ahead = here + MOST_AHEAD - SPAN
    assert next_clock(here=here, last=ahead, at_server=here, table=TABLE) == ahead + SPAN

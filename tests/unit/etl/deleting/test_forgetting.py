"""What a run that frees the space of replaced bytes says."""

from dataclasses import replace

from etl.deleting.forgetting import ForgetReport

WOULD = ForgetReport(
    kept_table="ks.data_history", before=4, copies=3, of=10, bytes=2_500_000, states=2, left=1, confirm=3,
    sequence=None, seconds=1.0,
)  # fmt: skip


def test_a_report_says_what_is_deleted_and_how_to_confirm_it() -> None:
    what = "3 of 10 copies of replaced bytes (2.5 MB) in ks.data_history, of 2 states up to run 4"
    left = "1 are left, of runs that have not finished"
    assert str(WOULD) == f"would delete {what}; {left}; nothing was deleted; to delete them, add --count 3"
    done = replace(WOULD, sequence=7, left=0, confirm=None)
    assert str(done) == f"deleted {what} in 1.0 s; run 7"

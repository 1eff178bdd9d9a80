"""When a run has had its time. Pure: the runtime stops a run by it, operator and embedded dispatcher end by it one that
no pod holds."""

from datetime import datetime, timedelta

from runyard_api.internal import RunError

DEADLINE_EXCEEDED = "DeadlineExceeded"


def past_deadline(started: datetime | None, seconds: int | None, now: datetime) -> RunError | None:
    """Why a run that started its first attempt then ends as timeout now; None: it has time left, or all there is."""
    if started is None or seconds is None or now < started + timedelta(seconds=seconds):
        return None
    return exceeded(seconds)


def exceeded(seconds: int) -> RunError:
    """Why a run ends as timeout."""
    return RunError(error=DEADLINE_EXCEEDED, message=f"the run took longer than the {seconds} s it may take")

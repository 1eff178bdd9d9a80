"""What a claim comes to, for every state a lease and a run can be in."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.store_rows import run_row as run

from runyard_api.errors import Early, Held, Stale
from runyard_api.states import RunState
from runyard_store.leases import UPDATE_CLAIM_MS, Lease, decide
from runyard_store.rows import RunRow

FREE = Lease(epoch=4, run_id=None, attempt=0, holder=None, claimed_ms=0, last_base=0, pre_run=None)
OURS = replace(FREE, run_id="run", attempt=2, holder="pod-a", claimed_ms=1_000)
UPDATE = replace(FREE, holder="update", claimed_ms=1_000)
OTHER_RUN = replace(OURS, run_id="other")
RUNNING = run(status=RunState.RUNNING, attempt=2)


@pytest.mark.parametrize(
    ("lease", "row", "ask", "want"),
    [
        pytest.param(FREE, run(), {}, "started", id="a pending run on a free thread starts"),
        pytest.param(FREE, run(), {"attempt": 3}, "started", id="whose earlier attempts never arrived, too"),
        pytest.param(OURS, RUNNING, {"attempt": 2}, "mine", id="the same holder asks again for its attempt"),
        pytest.param(OURS, RUNNING, {"attempt": 2, "holder": "pod-b"}, Stale, id="another holder asks for it"),
        pytest.param(OURS, RUNNING, {"attempt": 1}, Stale, id="an attempt older than the run's"),
        pytest.param(OURS, RUNNING, {"attempt": 3, "holder": "pod-b"}, "started", id="the next attempt takes over"),
        pytest.param(OURS, RUNNING, {"attempt": 3}, "started", id="on the same pod as well"),
        pytest.param(FREE, run(), {"lower_unfinished": True}, Early, id="an earlier run is unfinished"),
        pytest.param(
            OURS, RUNNING, {"attempt": 2, "lower_unfinished": True}, "mine", id="being early is no news to the holder"
        ),
        pytest.param(UPDATE, run(), {"now_ms": 1_000}, Held, id="a state update is under way"),
        pytest.param(UPDATE, run(), {"now_ms": 1_000 + UPDATE_CLAIM_MS}, "started", id="a state update was lost"),
        pytest.param(OTHER_RUN, run(), {"now_ms": 10**12}, Held, id="another run never loses the lease by age"),
        pytest.param(OURS, run(status=RunState.ERROR), {}, "terminal", id="a finished run is not executed again"),
        pytest.param(
            OTHER_RUN,
            run(status=RunState.SUCCESS),
            {"lower_unfinished": True},
            "terminal",
            id="whoever holds the thread",
        ),
    ],
)
def test_decide(lease: Lease, row: RunRow, ask: dict[str, Any], want: str | type[Exception]) -> None:
    asked: dict[str, Any] = {"attempt": 1, "holder": "pod-a", "now_ms": 2_000, "lower_unfinished": False} | ask
    if isinstance(want, str):
        assert decide(lease, row, **asked) == want
    else:
        with pytest.raises(want):
            decide(lease, row, **asked)

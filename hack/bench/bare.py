"""The floor: the same graph in one process, with LangGraph's own saver on the same kind of database.

Used by __main__.py as the other side of the ratio.
"""

import asyncio
import sys
import time
import uuid
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from hack.bench.load import INPUTS
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

GRAPHS = Path(__file__).parents[2] / "tests" / "graphs"


async def runs_per_second(database: str, graph: str, *, runs: int, concurrency: int) -> float:
    """Executes `runs` runs of a test graph, `concurrency` at a time; `database` is a Postgres URL or a sqlite path."""
    async with _saver_maker(database) as make:
        await make().setup()
        builder = _graph(graph)
        places = asyncio.Semaphore(concurrency)

        async def one() -> None:
            async with places:
                bound = builder.copy({"checkpointer": make()})
                config = {"configurable": {"thread_id": str(uuid.uuid4())}}
                async for _ in bound.astream(INPUTS[graph], config, stream_mode=["values", "updates", "messages"]):
                    pass

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(runs)))
        return runs / (time.perf_counter() - start)


def _graph(name: str) -> Any:
    sys.path.insert(0, str(GRAPHS))
    import graphs

    graph = getattr(graphs, name)
    return graph.compile() if hasattr(graph, "compile") else graph


class _saver_maker(AbstractAsyncContextManager[Any]):  # noqa: N801  used like a function
    """Gives a function that makes one saver per run, on one pool (Postgres) or one connection (sqlite)."""

    def __init__(self, database: str) -> None:
        self._database = database

    async def __aenter__(self) -> Any:
        if self._database.startswith("postgres"):
            options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            self._held: Any = AsyncConnectionPool(self._database, min_size=1, max_size=10, kwargs=options, open=False)
            pool = await self._held.__aenter__()
            return lambda: AsyncPostgresSaver(pool)
        self._held = AsyncSqliteSaver.from_conn_string(self._database)
        saver: BaseCheckpointSaver[Any] = await self._held.__aenter__()
        return lambda: saver

    async def __aexit__(self, *error: Any) -> None:
        await self._held.__aexit__(*error)

"""The database: threads, leases, runs, event log, keys; LangGraph's savers and store on the same database, fenced."""

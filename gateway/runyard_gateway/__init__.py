"""The REST and SSE front: turns requests into Runs, renders and relays their streams."""

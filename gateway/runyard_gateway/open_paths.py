"""The paths that anybody may ask for, and that are answered whatever the load. Used by auth.py, load.py, openapi.py."""

OPEN_PATHS = frozenset({"/", "/ok", "/info", "/docs", "/openapi.json"})
"""What probes and chat UIs ask for before they have a key; it tells nothing but that a server is here."""

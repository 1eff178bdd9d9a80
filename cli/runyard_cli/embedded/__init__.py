"""Runyard in one process: gateway, dispatcher and runtime on one sqlite file, for laptops."""

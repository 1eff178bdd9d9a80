"""docs/api.md lists what is served, no more and no less."""

import re
from pathlib import Path
from typing import Any

from runyard_gateway.app import Deps, create_app
from runyard_gateway.settings import Settings

API = Path(__file__).parents[3] / "docs" / "api.md"


def test_the_documented_routes_are_those_that_are_served() -> None:
    nothing: Any = None
    paths = create_app(Settings(), Deps(db=nothing, runs=nothing)).openapi()["paths"]
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    first_cells = [line.split("|")[1] for line in API.read_text().splitlines() if line.startswith("| `")]
    documented = [route for cell in first_cells for route in re.findall(r"`([^`]+)`", cell)]
    assert len(documented) == len(set(documented))
    assert set(documented) == served

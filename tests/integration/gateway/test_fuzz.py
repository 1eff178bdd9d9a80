"""Every route of the OpenAPI is fuzzed, on a gateway with a runtime and PostgreSQL; FUZZ_EXAMPLES makes it longer."""

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from tests.integration.gateway.fuzz import Target, fuzz, operations
from tests.integration.gateway.world import World, running_world
from tests.support.postgres import postgres_server

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(3600)]
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "8"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))


@pytest.fixture(scope="module")
def postgres_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        postgres_server() as server,
        running_world(tmp_path_factory.mktemp("world"), database_url=server.new_database()) as world,
    ):
        yield world


# The generator of long arrays draws from `random`; the seed is ours all the same.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
def test_no_route_fails_hangs_or_answers_what_it_doesnt_declare(postgres_world: World) -> None:
    target = Target(postgres_world.url, postgres_world.alice)
    target.prepare()
    found = list(operations(target))
    assert len(found) > 30
    failures = []
    for operation, mode in itertools.product(found, (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)):
        try:
            fuzz(target, operation, mode, examples=EXAMPLES, number=SEED)
        except Unsatisfiable:  # a route without parameters takes whatever comes
            assert mode is GenerationMode.NEGATIVE
        except (Exception, BaseExceptionGroup) as error:
            failures += [f"{operation.label}: {each}" for each in getattr(error, "exceptions", [error])]
    assert not failures, "\n\n".join(failures)

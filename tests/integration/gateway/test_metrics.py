"""What a scrape tells after known requests: on the metrics' port alone, with labels that stay few."""

import socket
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.gateway.process import gateway_process, prepare_database
from tests.support.apiserver import ApiServer

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(90)]


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Sample name and label values, in the order of the labels' names -> value."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=20).text
    return {
        (
            sample.name.removeprefix("runyard_gateway_"),
            *(sample.labels[name] for name in sorted(sample.labels)),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_counts_requests_by_route_and_shows_the_present(tmp_path: Path, api_server: ApiServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"sqlite:///{tmp_path / 'gateway.db'}"
    prepare_database(url)
    settings = {"RUNYARD_METRICS_PORT": str(port)}
    with gateway_process(tmp_path, url, api_server.kubeconfig, "default", **settings) as gateway:
        with httpx.Client(base_url=gateway.url, headers={"x-api-key": "secret"}, timeout=20) as http:
            threads = [http.post("/threads", json={}).json()["thread_id"] for _ in range(5)]
            for thread in threads:
                http.get(f"/threads/{thread}")
            assert http.get("/metrics").status_code == 404  # not on the public port
        for path in ("/nope/1", "/nope/2", "/threads"):
            httpx.get(gateway.url + path, timeout=20)
        found = scraped(port)
    assert found["requests_total", "POST", "/threads", "200"] == 5
    assert found["requests_total", "GET", "/threads/{thread_id}", "200"] == 5
    assert found["requests_total", "GET", "none", "401"] == 3
    assert found["request_seconds_count", "POST", "/threads"] == 5
    assert found["authentications_total", "refused"] >= 3
    assert found["authentications_total", "key"] >= 10
    assert (found["streams",], found["submissions_total",], found["events_relayed_total",]) == (0, 0, 0)
    assert 0 <= found["database_connections",] <= found["database_connections_max",] == 20
    assert 0 <= found["watch_age_seconds", "agents"] < 120
    assert not [labels for labels in found if any(thread in label for thread in threads for label in labels)]

"""The bench's pure parts: reading /proc and metrics, comparing with goals, and the page the figures become."""

import pytest
from hack.bench.api_writes import writes
from hack.bench.figures import BEGIN, END, Figure, Section, at_least, at_most, markdown, placed
from hack.bench.processes import Use, parent_of, part_of, spent, use_of


@pytest.mark.parametrize(
    ("command", "in_cluster", "part"),
    [
        (["/usr/local/bin/python3", "/usr/local/bin/runyard-gateway"], True, "gateway"),
        (["python", "-m", "runyard_runtime"], True, "runtime"),
        (["postgres: runyard_gateway runyard 10.244.1.7(41234) idle"], True, "Postgres"),
        (["/opt/bin/kube-apiserver", "--etcd-servers=x"], True, "API server"),
        (["/opt/bin/kubenode", "kubelet", "--config=x"], True, "nodes"),
        (["python", "-m", "runyard_cli", "dev"], False, "runyard dev"),
        (["/cache/bin/python", "/cache/bin/langgraph", "dev"], False, "langgraph dev"),
        (["vi", "notes.txt"], False, None),
        ([], True, None),
    ],
)
def test_a_process_is_known_by_its_program_or_module(command: list[str], in_cluster: bool, part: str | None) -> None:
    assert part_of(command, in_cluster=in_cluster) == part


def test_a_service_outside_the_cluster_is_somebody_elses() -> None:
    assert part_of(["python", "-m", "runyard_gateway"], in_cluster=False) is None


def test_a_process_with_brackets_in_its_name_is_read_with_its_ended_children() -> None:
    rest = ["S", "17", *["0"] * 9, "100", "50", "7", "3", *["0"] * 6, "25"]
    stat = f"42 (a) b) {' '.join(rest)}"
    assert use_of(stat, ticks=100, page=4096) == Use(cpu=1.6, memory=25 * 4096)
    assert parent_of(stat) == 17


def test_cpu_is_told_biggest_first_and_for_parts_that_began_meanwhile() -> None:
    before = {"gateway": Use(1.0), "etcd": Use(2.0), "idle": Use(5.0)}
    after = {"gateway": Use(1.5), "etcd": Use(4.0), "idle": Use(5.0), "runtime": Use(1.0), "other": Use(9.0)}
    assert list(spent(before, after, but={"other"}).items()) == [("etcd", 2.0), ("runtime", 1.0), ("gateway", 0.5)]


def test_writes_of_one_resource_are_counted_when_they_succeeded() -> None:
    metrics = "\n".join(
        [
            "# HELP apiserver_request_total x",
            'apiserver_request_total{code="201",resource="runs",verb="POST"} 5',
            'apiserver_request_total{code="409",resource="runs",verb="POST"} 2',
            'apiserver_request_total{code="200",resource="runs",verb="PATCH"} 7',
            'apiserver_request_total{code="200",resource="pods",verb="PATCH"} 9',
            'apiserver_request_total{code="200",resource="runs",verb="WATCH"} 1',
        ]
    )
    assert writes(metrics, "runs") == {"POST": 5, "PATCH": 7}


def test_a_goal_is_met_at_its_bound() -> None:
    assert at_most("latency", 20.0, "ms", goal=20).met
    assert not at_most("latency", 20.1, "ms", goal=20).met
    assert at_least("speed", 100.0, "", goal=100).met
    assert not at_least("speed", 99.9, "", goal=100).met


def test_the_report_is_a_table_for_each_section_with_rows() -> None:
    sections = [
        Section("cluster", [at_least("runs/s | stub", 90.0, "", goal=100), Figure("idle", "3 %")]),
        Section("none"),
    ]
    assert markdown(["Date: today"], sections).splitlines() == [
        "- Date: today",
        "",
        "### cluster",
        "",
        "| What | Measured | Goal | Met |",
        "|---|---|---|---|",
        "| runs/s \\| stub | 90.0 | ≥ 100 | **no** |",
        "| idle | 3 % |  |  |",
    ]


def test_figures_take_the_place_of_older_ones() -> None:
    document = f"# Page\n{BEGIN}\nold\n{END}\nmore\n"
    assert placed(document, "new\n") == f"# Page\n{BEGIN}\n\nnew\n\n{END}\nmore\n"


@pytest.mark.parametrize("document", ["# Page", f"{END} {BEGIN}", BEGIN])
def test_a_document_without_a_place_for_figures_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="no place for figures"):
        placed(document, "new")

"""What detectors ask for, windows have: the catalog says so."""

import ast
from collections import defaultdict
from pathlib import Path

import numpy as np

import alerts
from api.jobs.correlate import things
from api.jobs.correlate.meanings import ReadingName, all_names, fitting
from collector.contract.catalog import load_catalog

THINGS = ("port", "nic", "gpu", "host")


def asked_for() -> set[str]:
    """Texts in the code of detectors that are names of readings."""
    folder = Path(alerts.__file__).parent
    trees = (ast.parse(path.read_text("utf-8")) for path in folder.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {str(node.value) for node in nodes if isinstance(node, ast.Constant)}


def test_no_detector_asks_for_a_reading_that_windows_lack() -> None:
    windows = defaultdict(set)
    for file in load_catalog().files:
        for metric in file.metrics if file.target.name in THINGS else ():
            windows[metric.name.removeprefix(f"fabric_{file.target.name}_")].add(metric.window)
    asked = asked_for() & set(windows)
    assert len(asked) > 50, "the names of readings are no longer found"
    assert sorted(name for name in asked if windows[name] == {""}) == []


def test_windows_have_what_the_catalog_says_and_nothing_else() -> None:
    chosen = {
        choice.metric
        for target in (things.PORTS, things.NICS, things.GPUS, things.HOSTS)
        for choice in target.choices
    }
    assert chosen == {metric.name for metric in load_catalog().metrics if metric.window}


def test_a_label_splits_a_reading_and_other_kinds_keep_their_name() -> None:
    split = {choice.reading: choice.split for choice in things.HOSTS.choices if choice.split}
    for prefix, label in (("mount_", "storage"), ("clock_", "by"), ("probe_", "to")):
        own = {name for name in split if name.startswith(prefix)}
        assert {split.pop(name) for name in own} == {label}
    assert split == {"cpu_seconds_total": "mode", "step_phase_seconds_total": "phase"}


def test_a_sampled_counter_is_of_its_port_or_of_its_interface() -> None:
    """The same metric of both: an interface has no port, and is no port without a number."""
    metric = "fabric_burst_peak_bytes_per_second"
    port, nic = (all_names(one.choices)[metric] for one in (things.PORTS, things.NICS))
    assert port.choice.reading == nic.choice.reading == "burst_peak_bytes_per_second"
    rdma = {"host": "node0", "device": "mlx5_0", "port": "1", "direction": "transmit"}
    plain = {"host": "node0", "device": "eth2", "direction": "transmit"}
    keys = things.PORTS.keys, things.NICS.keys
    assert [port.key(one, keys[0]) for one in (rdma, plain)] == [("node0", "mlx5_0", "1"), None]
    assert [nic.key(one, keys[1]) for one in (rdma, plain)] == [None, ("node0", "eth2")]


def test_labels_that_a_metric_is_split_by_have_a_bound_and_the_same_ones_stay() -> None:
    """Two metrics that learned their labels in another order keep the same labels."""
    labels = ["node2/rail0", "node0/rail0", "node1/rail0"]
    sent = [ReadingName(f"probe_sent_total:{label}", is_max=False, label=label) for label in labels]
    lost = [
        ReadingName(f"probe_lost_total:{label}", is_max=False, label=label)
        for label in reversed(labels)
    ]
    rows = np.array([0, 1, 2, 0, -1])
    assert fitting(rows, sent, 2).tolist() == [False, True, True, False, True]
    assert fitting(rows, lost, 2).tolist() == [True, True, False, True, True]
    assert fitting(rows, sent, 3).all()

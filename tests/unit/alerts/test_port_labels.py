"""What evidence of a port is called: labels that select its series, and the series' own name."""

import msgspec
import numpy as np

from alerts.signals.ports import Span, observe
from alerts.window.model import Readings
from api.jobs.correlate.things import without_doubles
from tests.worlds.ring_jobs import make_ports, make_window


def test_series_of_an_interface_are_named_by_it() -> None:
    ports = make_ports(["node0", "node1"], netdev=["eth2", ""])
    named = {"host": "node0", "device": "eth2"}
    assert ports.labels(0, "fabric_nic_up") == named
    assert ports.labels(0, "fabric_port_state") == {
        "host": "node0",
        "device": "mlx5_0",
        "port": "1",
    }
    assert ports.labels(1, "fabric_nic_up") == {"host": "node1", "device": "mlx5_0"}
    assert ports.row_of_netdev == {("node0", "eth2"): 0}


def test_a_reading_of_both_targets_is_called_as_it_was_read() -> None:
    def of(metric: str, *rows: int) -> dict[str, Readings]:
        values = np.ones((len(rows), 10))
        return {"receive_bytes_total": Readings(metric=metric, row=np.array(rows), values=values)}

    both = without_doubles(
        of("fabric_port_receive_bytes_total", 0), of("fabric_nic_receive_bytes_total", 0, 1)
    )
    ports = make_ports(["node0", "node1"], netdev=["eth2", "eth3"], readings=both)
    window = msgspec.structs.replace(make_window(), ports=ports)
    evidence = [
        observe(window, row, "receive_bytes_total", Span(0, 1), text="", value=1.0, unit="")
        for row in (0, 1)
    ]
    assert [one.metric for one in evidence] == [
        "fabric_port_receive_bytes_total",
        "fabric_nic_receive_bytes_total",
    ]
    assert evidence[1].labels == {"host": "node1", "device": "eth3"}

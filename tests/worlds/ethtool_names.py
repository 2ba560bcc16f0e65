"""What node_exporter's ethtool collector calls a driver's statistic. Written from its output."""

import re


def exported(statistic: str) -> str:
    """The series' name of what ``ethtool -S`` calls by this name.

    >>> exported("rx_prio3_pause"), exported("port.link_xoff_tx")
    ('node_ethtool_received_prio3_pause', 'node_ethtool_port_link_xoff_transmitted')
    """
    name = re.sub(r"[^a-z0-9_]", "_", statistic.lower()).lstrip("_")
    for short, long in (("rx", "received"), ("tx", "transmitted")):
        name = re.sub(rf"(^|_){short}(?=_|$)", rf"\1{long}", name)
    return f"node_ethtool_{name}"

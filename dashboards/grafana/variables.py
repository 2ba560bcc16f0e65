"""The choices at the top of boards. The same name means the same on each, so links carry them."""

from __future__ import annotations

from dashboards.grafana.expressions import HERE, HERE_OR_NOWHERE
from dashboards.grafana.model import Variable

CLUSTER = Variable(
    name="cluster",
    title="Cluster",
    query="label_values(fabric_port_state, cluster)",
    is_many=True,
    is_all_default=True,
)
JOB = Variable(
    name="job", title="Job", query=f"label_values(fabric_job_ranks{{{HERE_OR_NOWHERE}}}, job)"
)
"""What the service makes of a job's collectives has no cluster: boards of one must still show
it."""
HOST = Variable(name="host", title="Host", query=f"label_values(fabric_host_load1{{{HERE}}}, host)")
SWITCH = Variable(
    name="switch", title="Switch", query=f"label_values(fabric_switch_info{{{HERE}}}, host)"
)
PORT_OWNER = Variable(
    name="host", title="Host or switch", query=f"label_values(fabric_port_state{{{HERE}}}, host)"
)
"""Whatever has ports. On a switch the device has the same name."""
DEVICE = Variable(
    name="device",
    title="Device",
    query=f'label_values(fabric_port_state{{{HERE}, host="$host"}}, device)',
)
PORT = Variable(
    name="port",
    title="Port",
    query=f'label_values(fabric_port_state{{{HERE}, host="$host", device="$device"}}, port)',
)
INSTANCE = Variable(
    name="instance",
    title="Service",
    query="label_values(fabric_service_info, instance)",
    is_many=True,
    is_all_default=True,
)
"""Processes of the service. They belong to no cluster: one may serve several."""

"""The choices at the top of boards. The same name means the same on each, so links carry them."""

from __future__ import annotations

from dashboards.grafana.model import Variable

CLUSTER = Variable(
    name="cluster",
    title="Cluster",
    query="label_values(fabric_port_state, cluster)",
    is_many=True,
    is_all_default=True,
)
JOB = Variable(
    name="job", title="Job", query='label_values(fabric_job_ranks{cluster=~"$cluster|"}, job)'
)
"""What the service makes of a job's collectives has no cluster: boards of one must still show
it."""
HOST = Variable(
    name="host",
    title="Host",
    query='label_values(fabric_host_load1{cluster=~"$cluster"}, host)',
)
SWITCH = Variable(
    name="switch",
    title="Switch",
    query='label_values(fabric_switch_info{cluster=~"$cluster"}, host)',
)
PORT_OWNER = Variable(
    name="host",
    title="Host or switch",
    query='label_values(fabric_port_state{cluster=~"$cluster"}, host)',
)
"""Whatever has ports. On a switch the device has the same name."""
DEVICE = Variable(
    name="device",
    title="Device",
    query='label_values(fabric_port_state{cluster=~"$cluster", host="$host"}, device)',
)
PORT = Variable(
    name="port",
    title="Port",
    query="label_values(fabric_port_state"
    '{cluster=~"$cluster", host="$host", device="$device"}, port)',
)
INSTANCE = Variable(
    name="instance",
    title="Service",
    query="label_values(fabric_service_info, instance)",
    is_many=True,
    is_all_default=True,
)
"""Processes of the service. They belong to no cluster: one may serve several."""

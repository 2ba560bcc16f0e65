"""Prometheus rule files and the life of their alerts. Pure: text and vectors in, alerts out.

`model` has the types, `file` reads rule files (`plain_yaml` their YAML), `knobs` fills
thresholds into the pack that we ship, `template` expands labels and annotations,
`life` moves alerts from pending to firing to resolved, `inhibit` marks those that an incident
explains, `notices` plans notifications for receivers.
The rule pack itself lies in `alerts/rules`.
"""

"""Prometheus rule files and the life of their alerts. Pure: text and vectors in, alerts out.

`model` has the words, `file` reads rule files (`plain_yaml` their YAML), `knobs` fills
thresholds into the pack that we ship, `template` expands labels and annotations,
`life` moves alerts from pending to firing to resolved, `inhibit` says which of them are explained
by an incident, `notices` what to tell whom, and when.
The rule pack itself lies in `alerts/rules`.
"""

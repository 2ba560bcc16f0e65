"""Grafana dashboards: what they ask, the JSON that Grafana reads, and how it gets there."""

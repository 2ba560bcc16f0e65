"""What people look at: Grafana dashboards and the built-in page."""

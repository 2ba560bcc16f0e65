"""PromQL as Prometheus answers it: text → plan → matrices (series x steps) → answer."""

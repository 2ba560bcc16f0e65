"""Stand-ins for programs that cannot run here: Grafana, Kubernetes, Slurm, switches."""

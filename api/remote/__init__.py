"""Programs that run beside the service and ask it over HTTP: nothing of the service is imported.

`client` asks, `executor` is the loop of everything that acts on a scheduler. `slurm` runs with an
agent's packages; `top`, `kubernetes` and `actions` need those of the extra `server`.
"""

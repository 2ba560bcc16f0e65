"""Programs beside the service, clients of its HTTP interface: they import nothing of the service.

`client` sends requests, `executor` is the loop of every program that acts on a scheduler. `slurm`
runs with an agent's packages; `top`, `kubernetes` and `actions` need those of the extra `server`.
"""

"""Agents, service and store under kills, stops, full disks, wrong clocks and cut networks.

`make chaos` runs all of it. Each case is a few lines over `tests.chaos.stand`; after each, one
ledger (`tests.chaos.ledger`) compares what was acknowledged and paged with what is stored.
"""

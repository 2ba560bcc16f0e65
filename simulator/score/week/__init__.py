"""A week of a fleet, without us and with us: what schedulers lose to hosts that make trouble.

Events, not packets: a host has a fault or has none, a job runs, is slow, hangs, or waits. What
Fabricscope finds of a fault is drawn with the recall, the errors and the delay that the scoreboard
measured; from there on everything is the service's own code: verdicts become incidents
(`alerts.judge.incident`), incidents charges and states (`alerts.health`), these become drains
(`alerts.policy`) and places for jobs (`api.fleet.placement`). Nothing here reads a clock.
"""

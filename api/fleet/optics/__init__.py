"""Dying optics of the fleet: hours of readings, judged every few minutes by the process that leads.

`read` asks the store for what is new, `task` judges and writes findings and series.
"""

"""Optics and cables that are dying: named before they damage a packet. Pure.

`history` has hours of readings in cells of minutes, `trend` tells a lasting rise from noise, a step
and a common cause, `judge` names the ports. A verdict explains why a job is slow *now*; this is
about later, so nothing here reaches the judge of jobs (docs/decisions/0079).
"""

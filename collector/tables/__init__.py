"""Drivers' names of counters and our metrics: data for the sources, one table per driver.

A table maps file name → metric, factor, width. The catalog defines the metric.
"""

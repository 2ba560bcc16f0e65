"""Shared by every part of the service: errors, limits, time parsing, self-monitoring metrics."""

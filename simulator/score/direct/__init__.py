"""Verdicts on a simulated cluster without a store: columns go from agents to detectors.

Everything before a window and after it is the service's own: agents' batches (not compressed), the
inference of jobs, the joining of records and the fitting of clocks, detectors, judge and incidents.
What is left out is the wire, the door, the store, and the inventory. `tests/conformance` holds it
against the service, verdict for verdict.
"""

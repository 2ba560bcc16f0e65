"""The vocabulary that agent, service, detectors and simulator share.

A leaf: it imports the standard library and msgspec, nothing else of ours.
"""

"""gNMI: the door to switches that stream. `collector.switches.gnmi.tables` maps paths to metrics.

`model` defines requests and messages, `client` listens to real switches (gRPC), `replay` yields
what a captured tree recorded, `decode` turns messages into paths and plain values. `feed` finds the
leaves in them, `numbers` reads one leaf, `leaves` keeps the latest value of each, `stream` is the
thread that listens and reconnects after every failure.
"""

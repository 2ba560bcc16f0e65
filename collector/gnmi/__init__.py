"""gNMI: the door to switches that stream. What the numbers mean stands in `collector.tables.gnmi`.

`model` says what is asked and told, `client` listens to real switches (gRPC), `replay` tells what
a captured tree recorded, `decode` turns messages into paths and plain values. `feed` finds the
leaves in them, `numbers` reads one leaf, `board` keeps the latest value of each, `stream` is the
thread that listens and comes back after every failure.
"""

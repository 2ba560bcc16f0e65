"""Fast mode: the batches that production agents on the simulated hosts would send, without files.

Each module stands for sources of the agent; `batches.Reporter` puts them together.
"""

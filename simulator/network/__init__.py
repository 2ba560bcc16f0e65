"""The network as a fluid: flow speeds, queues, marks, pauses and drops."""

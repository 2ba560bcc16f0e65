"""The network as a fluid: how fast flows go, where queues stand, who marks, pauses and drops."""

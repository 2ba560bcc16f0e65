"""Cluster topologies, and the paths of flows through them."""

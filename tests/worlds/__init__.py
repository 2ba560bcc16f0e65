"""Data that tests are made of: windows, jobs, topologies, simulated clusters."""

"""Switches over SNMP and gNMI: clients, decoding, and one table for each maker."""

"""Faults, one file each; a file in this folder is all that a new one needs."""

"""Slurm's side of Fabricscope: an executor that drains what is held, jobs that are told, cables.

Runs near Slurm with an agent's packages. It asks the service over HTTP and Slurm through its own
programs (`sinfo`, `scontrol`); on doubt it changes nothing and says so.
"""

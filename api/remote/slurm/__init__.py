"""Slurm's side of Fabricscope: an executor that drains held hosts, job registration, cables.

Runs near Slurm with an agent's packages. It queries the service over HTTP and Slurm through its own
programs (`sinfo`, `scontrol`); on doubt it changes nothing and logs why.
"""

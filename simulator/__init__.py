"""A simulated cluster: topology, collectives and faults, shown through production interfaces."""

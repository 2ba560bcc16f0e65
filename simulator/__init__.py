"""A cluster that is not there: topology, collectives and faults, as real interfaces show them."""

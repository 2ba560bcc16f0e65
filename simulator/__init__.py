"""A cluster that is not there: topology, collectives and faults, shown as real interfaces show them."""

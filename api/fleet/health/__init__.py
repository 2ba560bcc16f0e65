"""The health of the fleet, kept in memory: for schedulers that ask every second."""

"""Actions on hosts: a policy evaluated every few seconds, operators' requests, and their record."""

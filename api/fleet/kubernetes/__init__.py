"""The service's answers to Kubernetes: the scheduler's extender, and topology labels of hosts."""

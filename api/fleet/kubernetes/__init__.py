"""The service's answers to Kubernetes: the scheduler's extender, and topology labels of hosts.

Pure, behind `api.http.routes.kubernetes`. What runs in the cluster is `api.remote.kubernetes`.
"""

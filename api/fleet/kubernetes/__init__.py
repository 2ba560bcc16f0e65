"""What Kubernetes asks the service: the scheduler's extender, and where each host hangs as labels.

Pure, behind `api.http.routes.kubernetes`. What runs in the cluster is `api.remote.kubernetes`.
"""

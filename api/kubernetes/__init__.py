"""Kubernetes, from both sides.

Its scheduler asks the service (`extender`, `labels`: pure, behind `api.routes.kubernetes`). And
`fabricscope kubernetes` is a program of its own that runs in the cluster: it asks the service over
HTTP (`service`), follows nodes (`client`, `follow`), decides what they should carry (`plan`, pure)
and writes it (`controller`), one of several at a time (`lease`). Why so: docs/decisions/0038.
"""

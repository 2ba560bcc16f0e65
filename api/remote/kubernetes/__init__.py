"""`fabricscope kubernetes`: a program that runs in a cluster.

It queries the service over HTTP, follows nodes (`client`, `follow`), decides what they should carry
(`plan`, pure) and writes it (`controller`), one of several at a time (`lease`). Or it passes a
scheduler's requests on (`gateway`). Why by hand: docs/decisions/0038.
"""

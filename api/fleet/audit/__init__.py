"""The fleet's audit: facts that agents sent, judged by the checks that also judge one host.

`facts` reads the latest facts of every host from the store, `paths` judges what only the whole
fabric shows, `fleet_audit` combines them and caches the answer.
"""

"""Rule files at work: checked and tested by hand (`fabricscope rules`), evaluated by the service.

`alerts.rulebook` defines what a rule means; this package connects it to PromQL, files and stores.
"""

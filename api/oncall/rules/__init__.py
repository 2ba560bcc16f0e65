"""Rule files at work: checked and tested by hand (`fabricscope rules`), evaluated by the service.

What a rule means stands in `alerts.rulebook`; here it meets PromQL, files, stores and people.
"""

"""Fast sampling of a few byte counters, in a process of its own.

`plan` defines what is sampled, `track` reduces one counter's samples, `detect` finds bursts in
them, `ring` keeps the raw ones, `sampler` is the process, `process` its other end in the agent and
`replay` what stands in for it on a captured tree. The process imports this package and nothing else
of ours, and no package of others: it stands on every host, beside a training job.
"""

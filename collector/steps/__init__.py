"""The one file that runs in other people's training processes, apart from everything else of ours.

`fabricscope_steps.py` imports the standard library only, and nothing here imports it: users take a
copy into their project (`fabricscope shim`): a training program may have a `collector` of its own.
"""

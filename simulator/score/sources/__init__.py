"""The fabric's faults on a cluster whose switches are seen through one interface alone.

Each source renders the simulated switches in its own words and hands them to the reader that a
production system has for it; the service then knows of switches what that reader gave. A fault is
*found*, *missed*, or *not visible*: no verdict, and the source has none of the counters that it
shows in.
"""

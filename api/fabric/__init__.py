"""The fabric's topology: from observed link ends to links, tiers, rails and paths.

`model` defines the terms. `resolve` joins link ends (each port's report of its neighbour) to links;
`tiers` finds each switch's tier; `paths` finds all equal-cost paths; `plan` and `mistakes` compare
the cabling with what it should be. All pure; the inventory stores, the routes query.
"""

"""What is cabled to what: from the link ends that were seen to links, tiers, rails and paths.

`model` holds the words. `resolve` joins link ends (what each port says of its neighbour) to links;
`tiers` says where each switch stands; `paths` finds all equal-cost ways; `plan` and `mistakes` hold
what is there against what should be. All pure; the inventory keeps, the routes ask.
"""

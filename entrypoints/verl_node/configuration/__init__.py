"""Checks a training configuration before anything trains: composes it with Hydra, as the trainer does, and applies
verl's own validation and our rules. `python3 -m verl_node.configuration` runs it.

To add a rule: write a function ``name(config, facts)`` that yields findings in a module here, its threshold as data
beside it, and name it in rules.RULES; one that needs the model or the data goes into rules.LATER_RULES.
"""

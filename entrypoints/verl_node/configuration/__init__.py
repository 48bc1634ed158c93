"""Checks a training configuration before anything trains.

It composes the configuration with Hydra, as the trainer does, and applies verl's own validation and our rules.
`python3 -m verl_node.configuration` runs it. To add a rule: write ``name(config, facts)``, which yields findings, in a
module of rules/, and list it in rules.RULES; one that needs the model or the data goes into rules.LATER_RULES.
"""

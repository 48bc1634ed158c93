"""The training's configuration, looked at before anything trains: composed by Hydra as the trainer itself will, held
against verl's own validation and against rules of ours. `python3 -m verl_node.configuration` runs it.

To add a rule: write a function ``name(config, facts)`` that yields findings in a module here, its threshold as data
beside it, and name it in rules.RULES; one that has to know the model or the data goes into rules.LATER_RULES.
"""

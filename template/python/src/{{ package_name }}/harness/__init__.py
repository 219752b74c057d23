"""The harness of the agent: it comes from the template, and `copier update` merges it.

An edit here can conflict with an update: your own code is in the folder above.
"""

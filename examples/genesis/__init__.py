"""Batches of story details through outbox, bus, agents and callbacks: the whole of a design, in one program.

python -m examples.genesis
"""

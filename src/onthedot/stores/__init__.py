"""Stores: where tasks live. `contract` defines what each of them does, `schemes` which URL names which."""

from onthedot.stores.schemes import connect as connect

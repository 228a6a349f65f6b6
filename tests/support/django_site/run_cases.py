"""Runs the cases of a module: ``python run_cases.py expectations.run_cases``."""

import sys
import unittest

import django

if __name__ == "__main__":
    django.setup()
    unittest.main(module=None, argv=["run_cases", "-v", *sys.argv[1:]])

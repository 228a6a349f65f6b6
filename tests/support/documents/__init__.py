"""The code blocks of the documentation: how they are read and run. CONTRIBUTING.md has the rules for authors."""

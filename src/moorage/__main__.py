"""`python -m moorage`."""

from moorage.cli import main

main.entry()

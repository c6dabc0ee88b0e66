"""Figures as bars: on the terminal, and as one page that needs nothing else."""

"""Stores: the contracts, the plug-ins that ship, and the kit that tests them. Knows nothing of the app."""

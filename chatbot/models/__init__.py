"""Models: the contract, LiteLLM behind it, the embedded local model, and the scripted one."""

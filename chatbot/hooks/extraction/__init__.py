"""The hooks of the section `[extraction]`: facts and summaries by a model, asked after the turn."""
